//! The processors and GPUs of this host, according to files of the operating system.

use std::fs;

/// What a server runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The processor's name; empty if unknown.
    pub processor: String,
    /// Names of the GPUs, in the driver's order.
    pub gpus: Vec<String>,
    /// Version of the GPUs' driver; empty without one.
    pub driver: String,
}

impl Host {
    /// This one.
    pub fn this() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let folders = fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten();
        let mut gpus: Vec<(String, String)> = folders
            .filter_map(|folder| {
                let text = fs::read_to_string(folder.path().join("information")).ok()?;
                Some((folder.file_name().to_string_lossy().into_owned(), value(&text, "Model")?))
            })
            .collect();
        gpus.sort();
        let driver = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        Self {
            processor: value(&cpus, "model name").unwrap_or_default(),
            gpus: gpus.into_iter().map(|(_, name)| name).collect(),
            driver: version(&driver).unwrap_or_default(),
        }
    }
}

/// The value of the first line `name : value`.
fn value(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// The first word of the driver's line that is a version, such as 580.159.04.
fn version(text: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_found_in_the_systems_files() {
        let cpus = "processor\t: 0\nmodel name\t: A Processor @ 2.0GHz\nmodel name\t: Another\n";
        assert_eq!(value(cpus, "model name").as_deref(), Some("A Processor @ 2.0GHz"));
        let driver = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version: gcc 13.3.0\n";
        assert_eq!(version(driver).as_deref(), Some("580.159.04"));
        assert_eq!((value("", "Model"), version("")), (None, None));
    }
}

//! The processors and GPUs of this host, read from files of the operating system, and the GPUs that
//! a server uses.

use std::fs;

use schemas::sweep::SystemSettings;

/// The hardware that a server runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The processor's name; empty if unknown.
    pub processor: String,
    /// In the driver's order, by bus.
    pub gpus: Vec<HostGpu>,
    /// Version of the GPUs' driver; empty without one.
    pub driver: String,
}

/// A GPU of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostGpu {
    /// Its index in the driver's order.
    pub number: usize,
    pub name: String,
    /// `GPU-…`; empty if unknown.
    pub uuid: String,
}

impl Host {
    /// This host.
    pub fn this() -> Self {
        // Files of the driver, not CUDA: opening a device would take memory that servers need.
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let folders = fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten();
        let mut gpus: Vec<(String, String, String)> = folders
            .filter_map(|folder| {
                let text = fs::read_to_string(folder.path().join("information")).ok()?;
                let uuid = value(&text, "GPU UUID").unwrap_or_default();
                Some((folder.file_name().to_string_lossy().into_owned(), value(&text, "Model")?, uuid))
            })
            .collect();
        gpus.sort();
        let gpu = |(number, (_, name, uuid))| HostGpu { number, name, uuid };
        let driver = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        Self {
            processor: value(&cpus, "model name").unwrap_or_default(),
            gpus: gpus.into_iter().enumerate().map(gpu).collect(),
            driver: version(&driver).unwrap_or_default(),
        }
    }

    /// The GPUs that a server uses: the first ones visible to it, as many as its arguments say. All
    /// GPUs of the host if that is unknown.
    pub fn used_by(self, system: &SystemSettings) -> Self {
        let inherited = || std::env::var(VISIBLE).ok();
        let visible = system.env.get(VISIBLE).cloned().or_else(inherited);
        let gpus = used(&self.gpus, system, visible.as_deref());
        Self { gpus, ..self }
    }
}

/// Variable that lists the GPUs visible to a process, by number or by a prefix of their UUID.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// Arguments that select other GPUs than the first ones.
const ELSEWHERE: [&str; 2] = ["--base-gpu-id", "--gpu-id-step"];

fn used(all: &[HostGpu], system: &SystemSettings, visible: Option<&str>) -> Vec<HostGpu> {
    let words = || system.command.iter().chain(&system.extra_args);
    let goes_elsewhere = words().any(|word| ELSEWHERE.contains(&word.split('=').next().unwrap_or_default()));
    let find = |word: &str| {
        let of_number = |number: usize| all.iter().find(|gpu| gpu.number == number);
        let of_uuid = || all.iter().find(|gpu| word.starts_with("GPU-") && gpu.uuid.starts_with(word));
        word.parse().map_or_else(|_| of_uuid(), of_number).cloned()
    };
    // A number that does not exist hides all after it. MIG devices are not resolved.
    let seen = match visible.map(str::trim) {
        Some(list) if !list.contains("MIG-") => list.split(',').map_while(|word| find(word.trim())).collect(),
        Some(_) => return all.to_vec(),
        None => all.to_vec(),
    };
    if goes_elsewhere { seen } else { seen.into_iter().take(system.gpus()).collect() }
}

/// The value of the first line of the form `name : value`.
fn value(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// The first word of the driver's first line that is a version, such as 580.159.04.
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

    #[test]
    fn a_server_uses_the_first_gpus_that_it_sees() {
        let gpu = |number: usize| HostGpu { number, name: "H200".into(), uuid: format!("GPU-{number}abc") };
        let all: Vec<HostGpu> = (0..4).map(gpu).collect();
        let numbers = |arguments: &[&str], visible: Option<&str>| -> Vec<usize> {
            let extra_args = arguments.iter().map(ToString::to_string).collect();
            let system = SystemSettings { extra_args, ..SystemSettings::default() };
            used(&all, &system, visible).iter().map(|gpu| gpu.number).collect()
        };
        assert_eq!(numbers(&[], None), [0]);
        assert_eq!(numbers(&[], Some("3")), [3]);
        assert_eq!(numbers(&["--tp-size", "2"], None), [0, 1]);
        assert_eq!(numbers(&["--tp", "2"], Some("2, 3")), [2, 3]);
        assert_eq!(numbers(&["--tp", "2"], Some("GPU-3,GPU-1a")), [3, 1]);
        assert_eq!(numbers(&["--base-gpu-id=2"], None), [0, 1, 2, 3]);
        assert_eq!(numbers(&[], Some("MIG-1")), [0, 1, 2, 3]);
        assert_eq!(numbers(&[], Some("-1")), Vec::<usize>::new());
        assert_eq!(numbers(&["--tp", "2"], Some("1,9,2")), [1]);
    }
}

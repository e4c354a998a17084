//! `spectune demo`: writes the demo models and sweeps, for users who have the binary but not the
//! repository.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use crate::{exit::Exit, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune demo
  spectune sweep spectune-demo/sweeps/demo.toml     # two to four minutes on two cores
  spectune serve results/demo/tuned.toml";

/// Write the demo models and sweep files to a folder.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The folder to write to; files that differ from the demo's are never overwritten
    #[arg(long, value_name = "DIR", default_value = "spectune-demo")]
    out: PathBuf,
}

/// A file of the repository. It gets the same path in the folder, since sweep files name models by
/// relative paths.
struct DemoFile {
    path: &'static str,
    bytes: &'static [u8],
}

macro_rules! demo_files {
    ($($path:literal),* $(,)?) => {
        &[$(DemoFile { path: $path, bytes: include_bytes!(concat!("../../../", $path)) }),*]
    };
}

const FILES: &[DemoFile] = demo_files![
    "models/tiny/eagle2/config.json",
    "models/tiny/eagle2/model.safetensors",
    "models/tiny/eagle3/config.json",
    "models/tiny/eagle3/model.safetensors",
    "models/tiny/target/config.json",
    "models/tiny/target/generation_config.json",
    "models/tiny/target/model.safetensors",
    "models/tiny/target/special_tokens_map.json",
    "models/tiny/target/tokenizer.json",
    "models/tiny/target/tokenizer_config.json",
    "schemas/json/sweep.schema.json",
    "schemas/json/train.schema.json",
    "sweeps/demo-prompts.jsonl",
    "sweeps/demo.toml",
    "sweeps/guided.toml",
    "sweeps/open-loop.toml",
    "sweeps/train/demo.toml",
    "sweeps/train/python-prompts.jsonl",
];

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let out = arguments.out;
    // All files are checked before any is written.
    let missing: Vec<&DemoFile> = FILES
        .iter()
        .filter_map(|file| is_missing(&out, file).map(|is| is.then_some(file)).transpose())
        .collect::<anyhow::Result<_>>()?;
    for file in missing {
        let path = out.join(file.path);
        write(&path, file.bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    terminal::note(&format!(
        "The demo is in {}. Its models are real but tiny: good for trying spectune, not for judging the text. Next:",
        out.display()
    ));
    terminal::lines(&format!("  spectune sweep {}", out.join("sweeps/demo.toml").display()));
    Ok(Exit::Fine)
}

/// Writes a file whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    let mut aside = path.as_os_str().to_owned();
    aside.push(".part");
    let written = fs::write(&aside, bytes).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        // What failed is the error to report.
        drop(fs::remove_file(&aside));
    }
    written
}

/// Whether the file does not exist yet; an error if another file is in its place.
fn is_missing(out: &Path, file: &DemoFile) -> anyhow::Result<bool> {
    let path = out.join(file.path);
    match fs::read(&path) {
        Ok(bytes) if bytes == file.bytes => Ok(false),
        Ok(_) => bail!("{} exists and differs from the demo's; give another folder with --out", path.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_that_its_files_name_are_in_it() {
        let name = |file: &DemoFile| {
            let first = std::str::from_utf8(file.bytes).ok()?.lines().next()?;
            first.strip_prefix("#:schema ").map(|place| place.trim_start_matches("../").to_owned())
        };
        let named: Vec<String> = FILES.iter().filter_map(name).collect();
        assert!(named.len() >= 4, "{named:?}");
        assert!(named.iter().all(|place| FILES.iter().any(|file| file.path == place)), "{named:?}");
    }

    #[test]
    fn a_file_is_written_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("models/model.safetensors");
        // What cannot be written aside leaves nothing in the file's place.
        fs::create_dir_all(folder.path().join("models/model.safetensors.part")).expect("a folder");
        assert!(write(&path, b"weights").is_err() && !path.exists());
        let other = folder.path().join("sweeps/demo.toml");
        write(&other, b"[models]").expect("it is written");
        assert_eq!(fs::read(&other).expect("it is read"), b"[models]");
        assert_eq!(fs::read_dir(folder.path().join("sweeps")).expect("a folder").count(), 1);
    }
}

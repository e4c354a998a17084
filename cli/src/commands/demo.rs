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
        let written = fs::create_dir_all(path.parent().unwrap_or(&out)).and_then(|()| fs::write(&path, file.bytes));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    terminal::note(&format!(
        "The demo is in {}. Its models are real but tiny: good for trying spectune, not for judging the text. Next:",
        out.display()
    ));
    terminal::lines(&format!("  spectune sweep {}", out.join("sweeps/demo.toml").display()));
    Ok(Exit::Fine)
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

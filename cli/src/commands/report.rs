//! `spectune report`: the ranked report of one or several sweeps.

use std::path::{Path, PathBuf};

use anyhow::bail;
use reports::{ReportInput, Sweep};
use schemas::tuned::TunedFile;

use crate::{exit::Exit, setup, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune report results/demo
  spectune report results-1 results-2 --out merged";

/// Write the ranked report of one or several sweeps.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Folders of sweeps: shards of one sweep are put together, others are shown side by side
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Folder for the report; the first sweep's unless given
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let input = input(&arguments.folders)?;
    if input.sweeps.iter().all(|sweep| sweep.records.is_empty()) {
        bail!("no trial is finished in {}", arguments.folders[0].display());
    }
    let out = arguments.out.as_ref().unwrap_or(&arguments.folders[0]);
    let files = reports::write(&input, out)?;
    terminal::print(&reports::terminal_table(&input, terminal::width()))?;
    for file in files {
        terminal::note(&file.display().to_string());
    }
    Ok(Exit::Fine)
}

/// What the folders of sweeps hold.
///
/// # Errors
/// When a folder has no journal that can be read.
pub fn input(folders: &[PathBuf]) -> anyhow::Result<ReportInput> {
    let sweeps = folders.iter().map(|folder| sweep(folder)).collect::<anyhow::Result<_>>()?;
    Ok(ReportInput { sweeps })
}

fn sweep(folder: &Path) -> anyhow::Result<Sweep> {
    let contents = tuner::journal::read(folder)?;
    let tuned = folder.join(tuner::outcome::FILE_NAME);
    let mut notices: Vec<String> = contents
        .damaged
        .iter()
        .map(|line| format!("line {line} of the journal is damaged: its trial is missing here"))
        .collect();
    let tuned = match tuned.exists().then(|| setup::read_source(&tuned)).transpose()? {
        None => None,
        Some(source) => match TunedFile::read(&source) {
            Ok(tuned) => Some(tuned),
            Err(finding) => {
                notices.push(format!("{} cannot be read: {}", source.name(), finding.message));
                None
            }
        },
    };
    Ok(Sweep {
        name: folder.display().to_string(),
        records: contents.records,
        file: Some(contents.header.file),
        tuned,
        planned: Some(contents.header.planned),
        notices,
    })
}

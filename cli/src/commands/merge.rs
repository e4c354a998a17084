//! `spectune merge`: merges sweep folders into one.

use std::path::{Path, PathBuf};

use crate::{exit::Exit, results_folder, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune merge results/demo-shard-*-of-8 --out results/demo
  spectune merge host-1/demo host-2/demo --out demo && spectune report demo

The folders are shards of one sweep, or runs of the same sweep on several machines of one kind. Each \
shape is compared with the baselines of its own folder, and repeats of a trial from several folders \
are pooled. Trials that --out already contains are kept. Sweeps of different machines are not \
merged: `spectune report` shows them side by side.";

/// Merge the shards of a sweep into one folder.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Folders of shards, or of the same sweep; those of several prompt files are merged file by
    /// file
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Folder for the merged journal and its tuned file
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let Some(workloads) = tuner::trials::workload_folders::by_name(&arguments.folders) else {
        return merge(&arguments.folders, &arguments.out);
    };
    let mut exit = Exit::Fine;
    for (name, folders) in workloads {
        terminal::note(&format!("workload {name}"));
        if merge(&folders, &arguments.out.join(name))? == Exit::Findings {
            exit = Exit::Findings;
        }
    }
    terminal::note(&format!("report all: spectune report {}", arguments.out.display()));
    Ok(exit)
}

/// Merges folders with journals.
fn merge(folders: &[PathBuf], out: &Path) -> anyhow::Result<Exit> {
    folders.iter().try_for_each(|folder| results_folder::check_has_journal(folder))?;
    let summary = tuner::sweep::merge::run(folders, out)?;
    summary.notes.iter().for_each(|note| terminal::note(note));
    let out = out.display();
    let planned = match (summary.planned, summary.missing.is_empty()) {
        (0, _) => String::new(),
        (planned, true) => format!(" of {planned} planned"),
        (planned, false) => format!(" of at least {planned} planned"),
    };
    let pooled = match summary.pooled {
        0 => String::new(),
        pooled => format!(", and {pooled} further repeats from other folders"),
    };
    let repeated = match summary.repeated {
        0 => String::new(),
        left_out => {
            format!("; {left_out} records skipped: duplicates, or trials that were measured on another machine")
        }
    };
    terminal::note(&format!("{}{planned} trials in {out}{pooled}{repeated}", summary.trials));
    if !summary.missing.is_empty() {
        let missing: Vec<String> = summary.missing.iter().map(ToString::to_string).collect();
        terminal::note(&format!("no folder contains shard {}", missing.join(", ")));
    }
    terminal::note(&format!("report it: spectune report {out}"));
    match &summary.tuned {
        Some(tuned) => terminal::note(&format!("tuned:     {}", tuned.display())),
        None => {
            terminal::note("no tuned.toml: no configuration can be chosen, or the models are unknown on this machine")
        }
    }
    Ok(if summary.ranking.iter().any(|ranking| ranking.chosen.is_some()) { Exit::Fine } else { Exit::Findings })
}

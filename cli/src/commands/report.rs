//! `spectune report`: the ranked report of one or several sweeps.

mod fail_if;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use reports::{ReportInput, Sweep};
use schemas::training_record::TrainingRecord;
use tuner::regression::FailCondition;

use crate::{exit::Exit, results_folder, setup, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune report results/demo
  spectune report results-1 results-2 --out merged
  spectune report before after --compare --out before-and-after
  spectune report --compare monday today saturday sunday --fail-if 'throughput < 0.97'
  spectune report results/two-servers --fail-if 'latency > 1.05'

--fail-if is a check for CI. The second folder is compared with the mean of all others, for the configuration that the \
first chose under each load. The runs must be of one host with the same models, workload and settings; only the \
version of the engine may differ. Since hours differ, the interval comes from the scatter between at least three older \
runs, or from two servers that `spectune tune --url URL --url URL2` measured in turns. Exit code 1 if the whole interval \
is beyond the ratio, 4 if the comparison cannot tell.";

/// Write the ranked report of one or several sweeps.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Folders of sweeps: shards of one sweep are merged, others are shown side by side
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Compare two sweeps by configuration, even if their fingerprints differ
    #[arg(long)]
    compare: bool,
    /// Fail if this holds for the second folder relative to the others: METRIC < RATIO or METRIC >
    /// RATIO, with throughput, latency, ttft, itl or accept_length
    #[arg(long, value_name = "CONDITION")]
    fail_if: Option<FailCondition>,
    /// With --fail-if: only under this load, such as 8 (batch size) or "4 requests/s"
    #[arg(long, value_name = "LOAD", requires = "fail_if")]
    load: Option<String>,
    /// Folder for the report (default: the first sweep's)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    if let Some(condition) = arguments.fail_if {
        return fail_if::run(&arguments.folders, arguments.load.as_deref(), condition);
    }
    if arguments.compare && arguments.folders.len() != 2 {
        bail!("--compare takes two folders, the baseline first; {} given", arguments.folders.len());
    }
    if let [folder] = arguments.folders.as_slice()
        && folder.join("training.json").exists()
    {
        return report_training(folder, arguments.out.as_deref().unwrap_or(folder));
    }
    if let Some(folder) = arguments.folders.iter().find(|folder| tuner::running::journal::is_running(folder)) {
        if arguments.folders.len() > 1 {
            bail!(
                "{} holds measurements of running servers: report it alone; to compare two servers, measure them in turns \
                 with `spectune tune --url URL --url URL2`",
                folder.display()
            );
        }
        return super::running::report(folder, arguments.out.as_deref().unwrap_or(folder)).map(|_| Exit::Fine);
    }
    let folders = tuner::trials::workload_folders::expanded(&arguments.folders);
    let input = ReportInput { compare: arguments.compare, ..input(&folders)? };
    input.sweeps.iter().flat_map(Sweep::named_notices).for_each(|notice| terminal::note(&notice));
    if input.sweeps.iter().all(|sweep| sweep.records.is_empty()) {
        bail!("no finished trial in {}", arguments.folders[0].display());
    }
    let out = arguments.out.as_ref().unwrap_or(&arguments.folders[0]);
    let files = reports::write(&input, out)?;
    terminal::print(&reports::terminal_table(&input, terminal::width()))?;
    terminal::note(&written(&files));
    Ok(Exit::Fine)
}

/// The report of a training run.
fn report_training(folder: &Path, out: &Path) -> anyhow::Result<Exit> {
    let record = read_record(folder)?;
    let files = reports::training::write(&record, out)?;
    terminal::print(&reports::training::summary(&record))?;
    if let Some(page) = files.first() {
        terminal::note(&format!("report: {}", page.display()));
    }
    Ok(Exit::Fine)
}

/// Reads the record of a training run.
///
/// # Errors
/// When the folder has none.
pub fn read_record(folder: &Path) -> anyhow::Result<TrainingRecord> {
    let path = folder.join("training.json");
    let text = setup::read_text(&path, setup::LARGEST_CONFIGURATION).with_context(|| {
        let looks_like = results_folder::looks_like(folder);
        format!(
            "{} contains no finished training run: give a folder that `spectune train` wrote; {looks_like}",
            folder.display()
        )
    })?;
    TrainingRecord::parse(&text).map_err(|reason| anyhow::anyhow!("{}: {reason}", path.display()))
}

/// Names the page, and counts the other files.
pub fn written(files: &[PathBuf]) -> String {
    let Some(page) = files.first() else { return "nothing was written".into() };
    let others = files.len() - 1;
    let tables = if cfg!(feature = "parquet") { "CSV, Parquet" } else { "CSV" };
    format!("report: {}   (also written: Markdown, JSON, {tables} and charts, {others} files)", page.display())
}

/// Reads the folders of sweeps.
///
/// # Errors
/// When a folder has no readable journal.
pub fn input(folders: &[PathBuf]) -> anyhow::Result<ReportInput> {
    folders.iter().try_for_each(|folder| results_folder::check_has_journal(folder))?;
    let sweeps = folders.iter().map(|folder| Sweep::read(folder)).collect::<Result<_, _>>()?;
    Ok(ReportInput { sweeps, compare: false })
}

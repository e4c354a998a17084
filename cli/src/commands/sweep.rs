//! `spectune sweep`: measures configurations and keeps the fastest.

mod jobs;
mod plan;
mod progress;
mod workloads;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use anyhow::{Context, bail};
use engine::{DeviceChoice, EngineError};
use schemas::{
    kind::FileKind,
    quoting::quoted,
    sweep::{StrategyName, SweepFile, Until},
    text::Source,
    toml_file::FieldError,
    version::EngineVersion,
};
use tuner::{
    TunerError,
    running::record::RunningSettings,
    strategy::Shard,
    sweep::{StopReason, SweepInputs, SweepRequest, SweepSummary, jobs::JobScheduler},
    trials::record::{Outcome, Record},
};

use self::progress::Bar;
use crate::{
    commands::{report, running, supervise},
    exit::{self, Exit},
    interrupt,
    load_flags::refuse_given,
    results_folder, setup, sweep_inputs, terminal,
    wrong_file::WrongFile,
};

const EXAMPLES: &str = "\
Examples:
  spectune sweep sweeps/demo.toml --out demo-results
  spectune sweep sweep.toml --out results --dry-run
  spectune sweep sweep.toml --out results --resume
  spectune sweep sweep.toml --out results --resume --until decided
  spectune sweep sweep.toml --shard 2/8
  spectune sweep sweep.toml --emit slurm > sweep.slurm
  spectune sweep sweep.toml --emit k8s --shards 16 > sweep.yaml
  spectune sweep sweep.toml --emit bash > sweep.sh

Ctrl-C keeps every finished trial and exits with code 130; --resume continues from there. \
Without --out, results are written to a folder named after the sweep file (and the shard), under \
results/.

In a SLURM array job, the shard is taken from SLURM_ARRAY_TASK_ID and _COUNT (with _MIN and \
_STEP), in a Kubernetes Indexed Job from JOB_COMPLETION_INDEX and SPECTUNE_SHARDS; \
--shard 1/1 turns that off. `spectune merge` merges the shards.

--emit submits nothing. Each task of the job resumes its shard, and the last step merges them.";

/// Disk space for hidden states in GiB, if none is given.
const KEEP_STATES: u64 = 4;

/// Measure configurations on a workload and find the fastest.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The sweep file; `spectune schema sweep` prints its schema
    sweep: PathBuf,
    /// Folder for journal, tuned file and report
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue the sweep that was started in the folder
    #[arg(long)]
    resume: bool,
    /// When repeats end: repeats (after search.repeats) or decided (when it is decided whether
    /// speculation pays and what to run, within search.seconds and search.trials); overrides the
    /// sweep file
    #[arg(long, value_name = "WHEN", conflicts_with = "emit")]
    until: Option<Until>,
    /// Print the plan and the number of trials, and estimate the duration from a few short batches,
    /// without sweeping
    #[arg(long)]
    dry_run: bool,
    /// Measure one of several parts of the space; 1/1 measures all of it and ignores the
    /// scheduler's variables
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Print a job file that sweeps in shards and merges them, without measuring: slurm, k8s or
    /// bash
    #[arg(long, value_name = "SCHEDULER", conflicts_with_all = ["resume", "dry_run", "shard"])]
    emit: Option<JobScheduler>,
    /// Stop servers that a killed sweep of the folder left running, without measuring
    #[arg(long, conflicts_with_all = ["resume", "dry_run", "emit", "until", "device", "tp_size", "keep_states"])]
    end_servers: bool,
    /// Number of shards in the job file (default: the number of configurations, at most 8; for
    /// bash, the number of GPUs)
    #[arg(long, value_name = "N", requires = "emit")]
    shards: Option<usize>,
    /// Device to run on: auto, cpu, cuda or cuda:N; overrides the sweep file
    #[arg(long)]
    device: Option<engine::DeviceChoice>,
    /// Number of GPUs over which the models are split, starting at the device; overrides the sweep
    /// file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8), conflicts_with = "emit")]
    tp_size: Option<u8>,
    /// Guided search: maximum disk space in GiB for the target's hidden states (states.bin next to
    /// the journal), from which acceptance can be recomputed without the target; 0 keeps none.
    /// Default: 4
    #[arg(long, value_name = "GIB", conflicts_with = "emit")]
    keep_states: Option<u64>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let source = setup::read_source(&arguments.sweep)?;
    setup::expect_kind(&source, FileKind::Sweep)?;
    let mut file = SweepFile::read_all(&source).map_err(|findings| WrongFile::all(source.clone(), findings))?;
    if let Some(size) = arguments.tp_size {
        file.engine.tp_size = size.into();
    }
    if let Some(until) = arguments.until {
        file.search.until = until;
    }
    if let Some(scheduler) = arguments.emit {
        return jobs::emit(scheduler, &file, &arguments);
    }
    if arguments.end_servers {
        return end_servers(&arguments);
    }
    let folder = schemas::paths::folder_of(&arguments.sweep);
    check_effects(&arguments, &file)?;
    if file.system.url.is_some() {
        return at_url(file, &folder, &source, &arguments);
    }
    let shard = jobs::shard(arguments.shard)?;
    let out = arguments.out.clone().unwrap_or_else(|| default_out(&arguments.sweep, shard));
    let again = again(&arguments, &out, shard);
    let job = SweepJob {
        file,
        folder,
        source,
        out,
        resume: arguments.resume,
        dry_run: arguments.dry_run,
        shard,
        device: arguments.device,
        keep_states: arguments.keep_states.unwrap_or(KEEP_STATES).saturating_mul(1 << 30),
        again,
        words: str::to_owned,
        check_version: None,
    };
    match job.file.workload.prompt_files.as_slice() {
        [] => measure(job).map(|measured| measured.exit),
        _ => workloads::measure_each(&job),
    }
}

/// Refuses flags without effect on what the file measures.
fn check_effects(arguments: &Arguments, file: &SweepFile) -> anyhow::Result<()> {
    let Arguments { until, device, tp_size, keep_states, .. } = arguments;
    if file.system.url.is_some() {
        let of_starts =
            [("--until", until.is_some()), ("--device", device.is_some()), ("--tp-size", tp_size.is_some())];
        refuse_given(&of_starts, "an engine that the sweep starts, and a server at a URL is measured as it is")?;
    }
    let is_guided = file.search.strategy == StrategyName::Guided && file.system.url.is_none();
    refuse_given(&[("--keep-states", keep_states.is_some() && !is_guided)], "search.strategy = \"guided\"")
}

/// A sweep with everything that a command line says of it.
pub(super) struct SweepJob<'a> {
    /// What is measured.
    pub file: SweepFile,
    /// Folder to which its paths refer.
    pub folder: PathBuf,
    /// Its text, for the positions of errors.
    pub source: Source,
    /// Folder of the results.
    pub out: PathBuf,
    /// Whether to continue.
    pub resume: bool,
    /// Whether to print the plan and measure nothing.
    pub dry_run: bool,
    /// Which part of the space.
    pub shard: Option<Shard>,
    /// The device, if the command line gives one.
    pub device: Option<DeviceChoice>,
    /// Disk space for hidden states, in bytes.
    pub keep_states: u64,
    /// "continue with: …".
    pub again: String,
    /// Says messages about the sweep file in the words of the command that runs it.
    pub words: fn(&str) -> String,
    /// Checks the version of a server's engine once one runs.
    pub check_version: Option<&'a CheckVersion<'a>>,
}

/// A check of the version of an engine, whose error ends the sweep before its first trial.
pub(super) type CheckVersion<'a> = dyn Fn(EngineVersion) -> Result<(), TunerError> + 'a;

/// How a sweep ended.
pub(super) struct MeasuredSweep {
    /// The exit code.
    pub exit: Exit,
    /// The result; `None` if nothing was measured or the sweep was interrupted.
    pub summary: Option<SweepSummary>,
}

impl From<Exit> for MeasuredSweep {
    fn from(exit: Exit) -> Self {
        Self { exit, summary: None }
    }
}

/// Runs a sweep, and prints its result.
///
/// # Errors
/// When its inputs are wrong, or nothing could be measured.
pub(super) fn measure(job: SweepJob<'_>) -> anyhow::Result<MeasuredSweep> {
    let SweepJob {
        file,
        folder,
        source,
        out,
        resume,
        dry_run,
        shard,
        device,
        keep_states,
        again,
        words,
        check_version,
    } = job;
    let file =
        sweep_inputs::resolve(file, &folder, &source).map_err(|findings| WrongFile::all(source.clone(), findings))?;
    // Before models are loaded, which takes long.
    results_folder::check_for_sweep(&out, resume)?;
    // A dry run has nothing to finish, so a signal ends it at once.
    let never = AtomicBool::new(false);
    let interrupted = if dry_run { &never } else { interrupt::polled() };
    let supervisor = supervise::program();
    let inputs = SweepInputs { file, folder, shard, device };
    let request = SweepRequest { inputs, out, resume, keep_states, interrupted, supervisor };
    let at_its_place = |error: TunerError| in_file(error, &request.inputs, &source);
    if dry_run {
        let outline = plan::outline(&tuner::sweep::outline(&request.inputs)?, &request.inputs.file.search);
        // The capacity of a server is unknown before it is started.
        if !request.inputs.file.system.is_in_process() {
            terminal::print(&words(&outline))?;
            return Ok(Exit::Fine.into());
        }
        let planned =
            crate::progress::waiting("loading models to measure the estimate", |_| tuner::sweep::plan(&request));
        // An error is printed alone, not below a plan.
        let planned = planned.map_err(at_its_place)?;
        terminal::print(&(outline + &plan::estimate(&planned, request.resume)))?;
        return Ok(Exit::Fine.into());
    }
    interrupt::advise(again.clone());
    let mut bar = Bar::checking(check_version, words);
    let ended = tuner::sweep::run(&request, &mut bar);
    bar.finish();
    match ended {
        Ok(summary) => Ok(MeasuredSweep { exit: finish(&summary, &request, &again)?, summary: Some(summary) }),
        Err(error) if interrupted.load(Relaxed) => {
            // The interrupt is not the only error: a server may have failed before it.
            if !error.is_interruption() {
                terminal::print_error(&anyhow::anyhow!(words(&error.to_string())));
            }
            terminal::note(&format!("interrupted; {again}"));
            Ok(Exit::Interrupted.into())
        }
        // A long sweep must not end without saying that its trials are kept.
        Err(error) if bar.done() > 0 => {
            terminal::print_error(&anyhow::anyhow!(words(&error.to_string())));
            terminal::note(&format!("{} finished trials are kept; {again}", bar.done()));
            Ok(exit::from_error(&error.into()).into())
        }
        Err(error) => Err(at_its_place(error)),
    }
}

/// Measures the running server of a sweep file.
fn at_url(file: SweepFile, folder: &Path, source: &Source, arguments: &Arguments) -> anyhow::Result<Exit> {
    if jobs::shard(arguments.shard)?.is_some() {
        bail!("a server at a URL is measured as it is: there is nothing to split into shards");
    }
    let file =
        sweep_inputs::resolve(file, folder, source).map_err(|findings| WrongFile::all(source.clone(), findings))?;
    let inputs = running::RunningInputs {
        urls: file.system.url.clone().into_iter().collect(),
        api_key_env: file.system.api_key_env.clone(),
        launch: None,
        model: Some(folder.join(&file.models.target)),
        models: Some(file.models.clone()),
        requested: RunningSettings {
            urls: Vec::new(),
            workload: file.workload.clone(),
            folder: folder.canonicalize().unwrap_or_else(|_| folder.to_owned()).display().to_string(),
            loads: tuner::space::settings::loads(&file),
            repeats: file.search.repeats,
            seconds: file.search.seconds,
            flush: file.system.flush,
        },
        out: arguments.out.clone().unwrap_or_else(|| default_out(&arguments.sweep, None)),
        resume: arguments.resume,
        dry_run: arguments.dry_run,
    };
    let word = |path: &Path| quoted(&path.display().to_string());
    let again = format!("sweep {} --out {} --resume", word(&arguments.sweep), word(&inputs.out));
    running::measure(&inputs, &again)
}

fn end_servers(arguments: &Arguments) -> anyhow::Result<Exit> {
    let out = arguments.out.clone().unwrap_or_else(|| default_out(&arguments.sweep, arguments.shard));
    let ended = tuner::system::server::end_left(&out)?;
    if ended > 0 {
        terminal::note(&format!("{ended} server processes were stopped"));
    }
    Ok(Exit::Fine)
}

/// Adds the position in the sweep file to an error about one of its values.
fn in_file(error: TunerError, inputs: &SweepInputs, source: &Source) -> anyhow::Error {
    let wrong = match &error {
        TunerError::BatchTooLarge { batch, .. } => {
            let wrong = FieldError::at(&["batch", "sizes"], error.to_string());
            let sizes = inputs.file.batch.sizes.as_ref();
            let place = sizes.and_then(|sizes| sizes.iter().position(|size| size == batch));
            place.map_or(wrong.clone(), |place| wrong.element(place))
        }
        TunerError::Engine(EngineError::Device(_))
            if inputs.device.is_none() && inputs.file.engine.device != "auto" =>
        {
            FieldError::at(&["engine", "device"], error.to_string())
        }
        _ => return error.into(),
    };
    // The error stays in the chain, which decides the exit code.
    anyhow::Error::new(error).context(WrongFile::new(source.clone(), Box::new(wrong.locate(source))))
}

/// Prints the table to stdout, and the names of the written files to stderr.
fn finish(summary: &SweepSummary, request: &SweepRequest<'_>, again: &str) -> anyhow::Result<Exit> {
    let SweepRequest { inputs: SweepInputs { file, folder, .. }, out, .. } = request;
    terminal::note(&format!(
        "{} trials measured, {} kept from before: {}",
        summary.ran,
        summary.kept,
        summary.stopped.words()
    ));
    let interrupted = summary.stopped == StopReason::Interrupted;
    if let Some(cut) = &summary.cut {
        terminal::note(&format!("{cut}; {again}"));
    }
    if summary.records.is_empty() {
        terminal::note("no trial has finished yet: there is nothing to rank");
        if interrupted {
            terminal::note(&format!("interrupted; {again}"));
        }
        return Ok(if interrupted { Exit::Interrupted } else { Exit::Findings });
    }
    let input = report::input(std::slice::from_ref(out))?;
    // If one of them fails, through a closed pipe or a full disk, the other still runs.
    let report = reports::write(&input, out);
    let printed = terminal::print(&reports::terminal_table(&input, terminal::width()));
    if let Ok(files) = &report {
        terminal::note(&report::written(files));
    }
    match &summary.tuned {
        Some(tuned) => terminal::note(&format!("tuned:  {0}   (run it: spectune serve {0})", tuned.display())),
        None if file.models.model_shape.is_some() => terminal::note("no tuned file: the weights are random"),
        None => terminal::note(
            "no configuration can be chosen: every trial failed, or the baseline without speculation was not measured",
        ),
    }
    if let Some(warning) = tuner::workload::warning(file, folder) {
        terminal::note(&format!("warning: {warning}"));
    }
    if interrupted {
        terminal::note(&format!("interrupted; {again}"));
    }
    report.with_context(|| {
        format!(
            "the report could not be written, but every trial is kept; to write it later: spectune report {}",
            out.display()
        )
    })?;
    printed?;
    if let Some(reason) = all_speculation_failed(&summary.records) {
        terminal::note(&format!("every configuration with speculation failed; the last one: {reason}"));
        return Ok(if interrupted { Exit::Interrupted } else { Exit::Findings });
    }
    let chosen = summary.ranking.iter().any(|ranking| ranking.chosen.is_some());
    Ok(match (interrupted, chosen) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Fine,
        (false, false) => Exit::Findings,
    })
}

/// The last reason, if speculation was tried and no trial with it was measured.
fn all_speculation_failed(records: &[Record]) -> Option<&str> {
    let speculating = || records.iter().filter(|record| !record.trial.configuration.is_off());
    if speculating().any(|record| matches!(record.outcome, Outcome::Measured(_))) {
        return None;
    }
    // The last one: earlier ones may have failed for reasons that were fixed on a resumed run.
    speculating().rev().find_map(|record| match &record.outcome {
        Outcome::Failed { reason, .. } => Some(reason.as_str()),
        Outcome::Measured(_) => None,
    })
}

/// The shell command that continues a sweep.
fn again(arguments: &Arguments, out: &Path, shard: Option<Shard>) -> String {
    let word = |path: &Path| quoted(&path.display().to_string());
    let mut command = format!("sweep {} --out {} --resume", word(&arguments.sweep), word(out));
    if let Some(shard) = shard {
        command.push_str(&format!(" --shard {shard}"));
    }
    match arguments.device {
        Some(DeviceChoice::Cpu) => command.push_str(" --device cpu"),
        Some(DeviceChoice::Cuda(number)) => command.push_str(&format!(" --device cuda:{number}")),
        // The sweep file or the machine decides again.
        Some(DeviceChoice::Emulator | DeviceChoice::Auto) | None => {}
    }
    if let Some(size) = arguments.tp_size {
        command.push_str(&format!(" --tp-size {size}"));
    }
    if let Some(until) = arguments.until {
        command.push_str(&format!(" --until {}", until.name()));
    }
    let again = if arguments.sweep.as_os_str() == "-" { ", with the same file on standard input" } else { "" };
    interrupt::go_on(&format!("{command}{again}"))
}

/// Shards on one file system have separate folders.
fn default_out(sweep: &Path, shard: Option<Shard>) -> PathBuf {
    results_folder::folder_of_shard(&results_folder::stem(sweep, "sweep"), shard)
}

//! `spectune sweep`: measures configurations and keeps the fastest.

mod jobs;
mod progress;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::Context;
use schemas::sweep::SweepFile;
use tuner::{
    configuration::Load,
    jobs::{Scheduler, place},
    record::Role,
    strategy::Shard,
    sweep::{Asked, Plan, StopReason, SweepRequest, SweepSummary, folder_of},
};

use self::progress::Bar;
use crate::{
    checkpoint,
    commands::report,
    exit::{self, Exit},
    setup::{self, WrongFile},
    terminal,
};

const EXAMPLES: &str = "\
Examples:
  spectune sweep sweeps/demo.toml --out demo-results
  spectune sweep sweep.toml --out results --dry-run
  spectune sweep sweep.toml --out results --resume
  spectune sweep sweep.toml --shard 2/8
  spectune sweep sweep.toml --emit slurm > sweep.slurm
  spectune sweep sweep.toml --emit k8s --shards 16 > sweep.yaml
  spectune sweep sweep.toml --emit bash > sweep.sh

Ctrl-C keeps every finished trial and ends with code 130; --resume goes on behind them.
Without --out the results lie in a folder named after the sweep file (and the shard), under
results/.

In an array job of SLURM the shard is taken from SLURM_ARRAY_TASK_ID and _COUNT (with _MIN and
_STEP), in an Indexed Job of Kubernetes from JOB_COMPLETION_INDEX and SPECTUNE_SHARDS;
--shard 1/1 turns that off. `spectune merge` puts shards together.

--emit submits nothing. Each task of the job resumes its shard, and the last step merges them.";

/// Measure configurations on a workload and keep the fastest.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The sweep file; `spectune schema sweep` says what it can hold
    sweep: PathBuf,
    /// Folder for journal, tuned file and report
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the sweep that was started in the folder
    #[arg(long)]
    resume: bool,
    /// Print the plan with its count and an estimate of its time, and measure nothing else
    #[arg(long)]
    dry_run: bool,
    /// Measure one of several parts of the space; 1/1 is all of it, whatever a scheduler's variables say
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Print a job file that sweeps in shards and merges them, and measure nothing: slurm, k8s or bash
    #[arg(long, value_name = "SCHEDULER", conflicts_with_all = ["resume", "dry_run", "shard"])]
    emit: Option<Scheduler>,
    /// Number of shards in the job file; unless given as many as configurations, at most 8, and for bash as many as GPUs
    #[arg(long, value_name = "N", requires = "emit")]
    shards: Option<usize>,
    /// Where to run: auto, cpu, cuda or cuda:N; wins over the sweep file
    #[arg(long)]
    device: Option<engine::DeviceChoice>,
    /// Guided search: most disk in GiB for the target's hidden states (states.bin beside the journal), from which
    /// acceptance can be told again without the target; 0 keeps none
    #[arg(long, value_name = "GIB", default_value_t = 4)]
    keep_states: u64,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let source = setup::read_source(&arguments.sweep)?;
    let mut file = SweepFile::read(&source).map_err(|finding| WrongFile::new(source, finding))?;
    if let Some(scheduler) = arguments.emit {
        return jobs::emit(scheduler, &file, &arguments);
    }
    let folder = folder_of(&arguments.sweep);
    if file.models.model_shape.is_none() {
        file.models.target = checkpoint::folder(&folder, &file.models.target)?;
        if !file.models.draft.is_empty() {
            file.models.draft = checkpoint::folder(&folder, &file.models.draft)?;
        }
    }
    let shard = jobs::shard(arguments.shard)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let request = SweepRequest {
        file,
        folder,
        out: arguments.out.clone().unwrap_or_else(|| default_out(&arguments.sweep, shard)),
        resume: arguments.resume,
        shard,
        device: arguments.device,
        keep_states: arguments.keep_states.saturating_mul(1 << 30),
        interrupted: &interrupted,
    };
    if arguments.dry_run {
        terminal::print(&describe(&tuner::sweep::plan(&request)?, &request))?;
        return Ok(Exit::Fine);
    }
    let flag = interrupted.clone();
    ctrlc::set_handler(move || flag.store(true, std::sync::atomic::Ordering::Relaxed))
        .context("cannot listen for Ctrl-C")?;
    let mut bar = Bar::default();
    let ended = tuner::sweep::run(&request, &mut bar);
    bar.finish();
    match ended {
        Ok(summary) => finish(&summary, &request),
        Err(error) if bar.done() > 0 => {
            let error = error.into();
            terminal::print_error(&error);
            terminal::note(&format!("{} finished trials are kept; {}", bar.done(), go_on(&request)));
            Ok(exit::of(&error))
        }
        Err(error) => Err(error.into()),
    }
}

/// The table on stdout, what was written on stderr.
fn finish(summary: &SweepSummary, request: &SweepRequest<'_>) -> anyhow::Result<Exit> {
    let out = request.out.display();
    terminal::note(&format!(
        "{} trials measured, {} kept from before: {}",
        summary.ran,
        summary.kept,
        summary.stopped.words()
    ));
    let interrupted = summary.stopped == StopReason::Interrupted;
    if summary.records.is_empty() {
        terminal::note("no trial is finished yet: there is nothing to rank");
        if interrupted {
            terminal::note(&format!("interrupted; {}", go_on(request)));
        }
        return Ok(if interrupted { Exit::Interrupted } else { Exit::Findings });
    }
    let input = report::input(std::slice::from_ref(&request.out))?;
    // Neither a closed pipe nor a full disk takes the other one with it.
    let report = reports::write(&input, &request.out);
    let printed = terminal::print(&reports::terminal_table(&input, terminal::width()));
    if let Some(report) = report.iter().flatten().next() {
        terminal::note(&format!("report: {}", report.display()));
    }
    match &summary.tuned {
        Some(tuned) => terminal::note(&format!("tuned:  {0}   (run it: spectune serve {0})", tuned.display())),
        None if request.file.models.model_shape.is_some() => terminal::note("no tuned file: the weights are random"),
        None => {
            terminal::note("no configuration can be chosen: every trial failed, or no speculation was not measured")
        }
    }
    if interrupted {
        terminal::note(&format!("interrupted; {}", go_on(request)));
    }
    report.with_context(|| {
        format!("the report is not written; every trial is kept, so once it can be: spectune report {out}")
    })?;
    printed?;
    let chosen = summary.ranking.iter().any(|ranking| ranking.chosen.is_some());
    Ok(match (interrupted, chosen) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Fine,
        (false, false) => Exit::Findings,
    })
}

fn go_on(request: &SweepRequest<'_>) -> String {
    format!("go on with: spectune sweep … --out {} --resume", request.out.display())
}

/// Shards on one file system have a folder each.
fn default_out(sweep: &Path, shard: Option<Shard>) -> PathBuf {
    let name = sweep.file_stem().map_or_else(|| "sweep".into(), |name| name.to_string_lossy().into_owned());
    let whole = PathBuf::from("results").join(name);
    shard.map_or(whole.clone(), |shard| place::folder(&whole, shard))
}

fn describe(plan: &Plan, request: &SweepRequest<'_>) -> String {
    let mut text = String::new();
    let loads: BTreeSet<Load> = plan.trials.iter().map(|trial| trial.load).collect();
    let loads: Vec<String> = loads.iter().map(ToString::to_string).collect();
    text += &format!("device     {} ({})\n", plan.fingerprint.device, plan.fingerprint.device_name);
    text += &format!("space      {} configurations\n", plan.space.entrants.len());
    if let Some(dropped) = plan.space.dropped_words() {
        text += &format!("           {dropped}\n");
    }
    text += &format!("loads      {}\n", loads.join(", "));
    let done = if plan.done > 0 { format!(", {} of them done", plan.done) } else { String::new() };
    let (trials, repeats) = (plan.planned.trials, request.file.search.repeats);
    text += &match plan.planned.exact {
        true => {
            format!("trials     {trials} ({repeats} {}){done}\n", if repeats == 1 { "repeat" } else { "repeats" })
        }
        false => format!(
            "trials     at most {trials}, by {}: {} of them, the baselines, in any case{done}\n",
            request.file.search.strategy.name(),
            plan.trials.len()
        ),
    };
    let same =
        plan.asked.windows(2).all(|pair| (pair[0].requests, pair[0].tokens) == (pair[1].requests, pair[1].tokens));
    for (at, Asked { load, requests, tokens }) in plan.asked.iter().take(if same { 1 } else { usize::MAX }).enumerate()
    {
        let (label, load) =
            (if at == 0 { "a trial" } else { "" }, if same { String::new() } else { format!("{load}: ") });
        text += &format!("{label:<10} {load}{requests} requests, up to {tokens} tokens\n");
    }
    text += &format!(
        "estimate   {}{}, if every trial ran as without speculation, extrapolated from short batches measured now:\n",
        plan.estimate.seconds.map_or_else(|| "unknown".into(), reports::duration),
        if plan.planned.exact { "" } else { " for those" }
    );
    for one in &plan.estimate.basis {
        text += &match one.tokens_per_s_per_user.zip(one.trial_seconds) {
            Some((rate, seconds)) => format!(
                "           {}: {rate:.0} tokens/s for each of {} requests, so {} a trial\n",
                one.load,
                one.batch_size,
                reports::duration(seconds)
            ),
            None => format!("           {}: could not be measured\n", one.load),
        };
    }
    text.push('\n');
    text += "num_steps,topk,num_draft_tokens\n";
    for one in &plan.space.entrants {
        let role = match one.role {
            Role::NoSpeculation => "   always measured",
            Role::EngineDefault => "   the engine's default, always measured",
            Role::Candidate => "",
        };
        text += &format!("  {}{role}\n", one.configuration);
    }
    text
}

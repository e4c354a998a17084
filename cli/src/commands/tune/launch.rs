//! `spectune tune FILE`: measures what a launch file starts, with other shapes, and changes the
//! launch to the fastest.

mod checks;
mod conclude;
mod needs;
mod plan;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use launch::Launch;
use schemas::{
    flags::Key,
    quoting::quoted,
    secrets::masked_text,
    sweep::{SweepFile, Until, Workload},
    text::{Source, is_variable_name},
};
use tuner::{
    from_launch::{
        LaunchDraft, LaunchOverrides, LaunchStart, choose, mount_models, on_host, read_to_run, sweep_of, variables,
    },
    strategy::Shard,
};

use self::{checks::Checks, conclude::Conclusion};
use super::{Again, words::with_flags_of_tune};
use crate::{
    checkpoint,
    commands::sweep,
    exit::{self, Exit},
    interrupt, results_folder, setup, terminal,
    wrong_file::WrongFile,
};

/// Disk space for hidden states, as of a sweep.
const KEEP_STATES: u64 = 4 << 30;

/// What is tuned, and how.
pub struct Inputs {
    /// The launch file.
    pub file: PathBuf,
    /// Which of its launches, from 1.
    pub number: Option<usize>,
    /// Values of variables.
    pub set: Vec<String>,
    /// The words that start the engine.
    pub command: Option<String>,
    /// Commands that start and end several processes.
    pub start: Option<LaunchStart>,
    /// Whether a container's command runs without the container.
    pub local: bool,
    /// Whether the prefix cache stays on.
    pub keep_prefix_cache: bool,
    /// Folder with tokenizer and config.json of the target, if the launch's is not here.
    pub model_path: Option<PathBuf>,
    /// Which part of the sweep.
    pub shard: Option<Shard>,
    /// Folder or id of a draft.
    pub draft: Option<String>,
    /// How it drafts.
    pub algorithm: Option<String>,
    /// The requests.
    pub workload: Workload,
    /// Numbers of requests that run together.
    pub concurrency: Vec<usize>,
    /// Borders between buckets of contexts.
    pub contexts: Vec<usize>,
    /// Repeats.
    pub repeats: usize,
    /// Time budget.
    pub seconds: Option<f64>,
    /// When repeats end.
    pub until: Until,
    /// Folder of the results.
    pub out: Option<PathBuf>,
    /// Whether to continue.
    pub resume: bool,
    /// What to do besides measuring.
    pub mode: Mode,
    /// Whether errors of the linter are ignored.
    pub force: bool,
    /// The command line, for the message that continues.
    pub again: Again,
}

/// What the command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Measures, and prints the change.
    Measure,
    /// Measures, and writes the change into the file.
    Write,
    /// Prints the plan.
    DryRun,
    /// Prints the sweep file.
    PrintSweep,
}

/// Tunes a launch.
///
/// # Errors
/// When the launch has errors or cannot be started here, or nothing could be measured.
pub fn tune(inputs: &Inputs) -> anyhow::Result<Exit> {
    let source = setup::read_source(&inputs.file)?;
    let variables = variables(given(&inputs.set)?);
    let parsed = read_to_run(&source, &variables);
    let launch = choose(&source, &parsed.launches, inputs.number).map_err(anyhow::Error::msg)?;
    let checks = Checks::from_source(&source, launch, inputs.force);
    // A launch with errors would fail on a server after minutes; its findings say it now.
    if !checks.is_sound()? {
        return Ok(Exit::Findings);
    }
    let wanted = LaunchOverrides { variables: Some(variables), ..wanted(inputs, launch)? };
    let mut plan = sweep_of(&source, launch, &wanted)
        .map_err(|reasons| anyhow::anyhow!("{} cannot be tuned:\n  {}", source.name(), reasons.join("\n  ")))?;
    // The plan is printed even if a model is missing here.
    let found = find_models(&mut plan.file, inputs.model_path.as_deref());
    let refused = checks.keep_sound_shapes(&mut plan.file.space, &plan.draft)?;
    if plan.file.space.shapes.is_empty() && !refused.is_empty() && !inputs.force {
        bail!(
            "{} cannot run any shape with {}: give another --draft or --algorithm, or try it anyway with --force\n  {}",
            launch.engine,
            draft_in_words(&plan.draft),
            refused.join("\n  ")
        );
    }
    let needs = needs::LaunchNeeds::from_launch(launch, &plan.file);
    plan.file.knobs.capture_sizes.extend(needs.other_captures());
    let text = plan::sweep_text(source.name(), &plan.file).context("the sweep cannot be written")?;
    if inputs.mode == Mode::PrintSweep {
        terminal::print(&text)?;
        return Ok(Exit::Fine);
    }
    terminal::note(&plan::table(&source, launch, &plan, &refused, &needs));
    // Only now, since the printed plan helps to find out what is missing.
    found?;
    let out = inputs.out.clone().unwrap_or_else(|| default_out(&inputs.file, inputs.shard));
    let measured = measure(sweep::SweepJob {
        file: plan.file.clone(),
        folder: std::env::current_dir()?,
        source: Source::new(format!("the sweep of {} (--print-sweep)", source.name()), text),
        out: out.clone(),
        resume: inputs.resume,
        dry_run: inputs.mode == Mode::DryRun,
        shard: inputs.shard,
        device: None,
        keep_states: KEEP_STATES,
        again: interrupt::go_on(&inputs.again.with(&format!("--out {} --resume", word(&out)))),
        words: with_flags_of_tune,
        check_version: Some(&|version| checks.for_version(version)),
    })?;
    if let (Exit::Fine, Some(summary)) = (measured.exit, &measured.summary) {
        let (file, mode) = (inputs.file.as_path(), inputs.mode);
        Conclusion { source: &source, file, launch, plan: &plan, summary, mode, out: &out }.show()?;
    }
    Ok(measured.exit)
}

/// Runs the sweep of a launch; an error that names a key of sweep files is told in the words of
/// this command.
fn measure(job: sweep::SweepJob<'_>) -> anyhow::Result<sweep::MeasuredSweep> {
    let ended = sweep::measure(job);
    let Err(error) = &ended else { return ended };
    let reworded = with_flags_of_tune(&error.to_string());
    // Errors of the sweep name its keys, but the user has written flags.
    if error.is::<WrongFile>() || reworded == error.to_string() {
        return ended;
    }
    terminal::print_error(&anyhow::anyhow!(reworded));
    Ok(exit::from_error(error).into())
}

/// Replaces the models of a launch by folders of this machine, and makes them visible in its
/// container, if it runs in one: prompts are tokenised here.
fn find_models(file: &mut SweepFile, target: Option<&Path>) -> anyhow::Result<()> {
    let folder = std::env::current_dir()?;
    if let Some(target) = target {
        file.models.target = target.display().to_string();
    }
    let command = &mut file.system.command;
    let (mut places, mut absent) = (Vec::new(), Vec::new());
    for name in [&mut file.models.target, &mut file.models.draft] {
        if name.is_empty() {
            continue;
        }
        if let Some(place) = on_host(command, name) {
            *name = place;
        }
        match checkpoint::folder(&folder, name) {
            Ok(found) if !folder.join(&found).is_dir() => {
                absent.push(format!(
                    "there is no folder {found} on this machine, where prompts are tokenised and servers are started: give the \
                     target's with --model-path DIR and the draft's with --draft DIR, or run this where they are"
                ));
                continue;
            }
            Ok(found) => *name = found,
            Err(error) => {
                absent.push(error.to_string());
                continue;
            }
        }
        let place = folder.join(&*name);
        places.push(place.canonicalize().unwrap_or(place).display().to_string());
    }
    if !absent.is_empty() {
        bail!("{}", absent.join("\n"));
    }
    // A container sees only what is mounted into it, under the same path.
    mount_models(command, &places.iter().map(String::as_str).collect::<Vec<_>>());
    Ok(())
}

fn wanted(inputs: &Inputs, launch: &Launch) -> anyhow::Result<LaunchOverrides> {
    let command = inputs.command.as_ref().map(|text| text.split_whitespace().map(str::to_owned).collect());
    let draft = match (&inputs.draft, &inputs.algorithm) {
        (None, None) => None,
        (path, Some(algorithm)) => {
            let path = path.clone().or_else(|| given_draft(launch)).unwrap_or_default();
            if let Some(reason) = needs::other_head(&path, algorithm) {
                bail!("{reason}");
            }
            Some(LaunchDraft { path, algorithm: algorithm.to_ascii_uppercase() })
        }
        (Some(path), None) => {
            let head = needs::facts_of(path).and_then(|draft| draft.draft_head());
            let Some((_, algorithm)) = head.and_then(|head| head.algorithm()) else {
                bail!("how {path} drafts is not known from its files here: give --algorithm EAGLE3, EAGLE or NEXTN");
            };
            Some(LaunchDraft { path: path.clone(), algorithm: algorithm.to_owned() })
        }
    };
    Ok(LaunchOverrides {
        workload: inputs.workload.clone(),
        concurrency: inputs.concurrency.clone(),
        contexts: inputs.contexts.clone(),
        repeats: inputs.repeats,
        seconds: inputs.seconds,
        until: inputs.until,
        draft,
        command,
        start: inputs.start.clone(),
        local: inputs.local,
        keep_prefix_cache: inputs.keep_prefix_cache,
        variables: None,
    })
}

fn draft_in_words(draft: &LaunchDraft) -> String {
    match draft.path.as_str() {
        "" => draft.algorithm.clone(),
        path => format!("{} and the draft {path}", draft.algorithm),
    }
}

/// The variables of `--set`.
fn given(set: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let pair = |pair: &String| match pair.split_once('=').filter(|(name, _)| is_variable_name(name)) {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => bail!("--set takes NAME=VALUE, but got {}", masked_text(pair)),
    };
    set.iter().map(pair).collect()
}

fn given_draft(launch: &Launch) -> Option<String> {
    Some(launch.text(Key::SpeculativeDraftModelPath)?.value.to_owned())
}

fn default_out(file: &Path, shard: Option<Shard>) -> PathBuf {
    results_folder::folder_of_shard(&format!("tune-{}", results_folder::stem(file, "launch")), shard)
}

fn word(path: &Path) -> String {
    quoted(&path.display().to_string())
}

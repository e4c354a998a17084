//! `spectune tune FILE`: measures what a launch file starts, with other shapes, and changes the launch to the fastest.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use launch::Launch;
use schemas::{
    diagnostic::{Findings, Format, Severity, render},
    flags::Key,
    quoting::quoted,
    secrets::masked_text,
    sweep::Workload,
    text::{Source, is_variable_name},
    tree::TreeShape,
};
use tuner::{
    configuration::Load,
    from_launch::{Draft, LaunchSweep, Treated, Wanted, algorithm_of, choose, read_to_run, rewrite, sweep_of},
    selection::{LoadRanking, Verdict},
};

use crate::{
    commands::{lint, sweep},
    exit::Exit,
    interrupt, setup, terminal,
};

/// Disk space for hidden states, as of a sweep.
const KEEP_STATES: u64 = 4 << 30;
/// The widest column of the table of flags.
const WIDEST: usize = 44;

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
    /// Folder or id of a draft.
    pub draft: Option<String>,
    /// How it drafts.
    pub algorithm: Option<String>,
    /// The requests.
    pub workload: Workload,
    /// Numbers of requests that run together.
    pub concurrency: Vec<usize>,
    /// Repeats.
    pub repeats: usize,
    /// Time budget.
    pub seconds: Option<f64>,
    /// Folder of the results.
    pub out: Option<PathBuf>,
    /// Whether to continue.
    pub resume: bool,
    /// What to do besides measuring.
    pub mode: Mode,
    /// Whether errors of the linter are ignored.
    pub force: bool,
    /// The command line, for the message that continues.
    pub again: String,
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
    let parsed = read_to_run(&source, variables(&inputs.set)?);
    let launch = choose(&source, &parsed.launches, inputs.number).map_err(anyhow::Error::msg)?;
    if !is_sound(&source, launch, inputs)? {
        return Ok(Exit::Findings);
    }
    let wanted = wanted(inputs, launch)?;
    let plan = sweep_of(launch, &wanted)
        .map_err(|reasons| anyhow::anyhow!("{} cannot be tuned:\n  {}", source.name(), reasons.join("\n  ")))?;
    let text = plan.file.write().context("the sweep cannot be written")?;
    if inputs.mode == Mode::PrintSweep {
        terminal::print(&format!("# The sweep that `spectune tune {}` runs\n{text}", inputs.file.display()))?;
        return Ok(Exit::Fine);
    }
    terminal::note(&table(&source, launch, &plan.treated));
    let out = inputs.out.clone().unwrap_or_else(|| default_out(&inputs.file));
    let measured = sweep::measure(sweep::Job {
        file: plan.file.clone(),
        folder: std::env::current_dir()?,
        source: Source::new(format!("the sweep of {} (--print-sweep)", source.name()), text),
        out: out.clone(),
        resume: inputs.resume,
        dry_run: inputs.mode == Mode::DryRun,
        shard: None,
        device: None,
        keep_states: KEEP_STATES,
        again: interrupt::go_on(&format!("{} --out {} --resume", inputs.again, word(&out))),
    })?;
    if let (Exit::Fine, Some(summary)) = (measured.exit, &measured.summary) {
        conclude(&source, launch, &plan, &summary.ranking, inputs)?;
    }
    Ok(measured.exit)
}

/// Shows what the linter finds in the launch; false if that has errors.
fn is_sound(source: &Source, launch: &Launch, inputs: &Inputs) -> anyhow::Result<bool> {
    let mut findings = lint::findings_of(source, None)?;
    findings.retain(|finding| launch.span.start <= finding.span.start && finding.span.end <= launch.span.end);
    findings.retain(|finding| finding.severity >= Severity::Warning);
    if findings.is_empty() {
        return Ok(true);
    }
    let shown = render(&[Findings { source, diagnostics: &findings }], Format::Full, terminal::stderr_is_coloured());
    terminal::note(shown.trim_end());
    let is_wrong = findings.iter().any(|finding| finding.severity == Severity::Error);
    if is_wrong && !inputs.force {
        terminal::note("the launch has errors, so it is not started; mend them, or start it anyway with --force");
    }
    Ok(!is_wrong || inputs.force)
}

fn wanted(inputs: &Inputs, launch: &Launch) -> anyhow::Result<Wanted> {
    let command = inputs.command.as_ref().map(|text| text.split_whitespace().map(str::to_owned).collect());
    let draft = match (&inputs.draft, &inputs.algorithm) {
        (None, None) => None,
        (path, Some(algorithm)) => Some(Draft {
            path: path.clone().or_else(|| given_draft(launch)).unwrap_or_default(),
            algorithm: algorithm.to_ascii_uppercase(),
        }),
        (Some(path), None) => {
            let target = launch.text(Key::ModelPath).map(|target| PathBuf::from(target.value));
            let Some(algorithm) = target.and_then(|target| algorithm_of(&target, Path::new(path))) else {
                bail!("how {path} drafts is not known from its files here: give --algorithm EAGLE3, EAGLE or NEXTN");
            };
            Some(Draft { path: path.clone(), algorithm: algorithm.to_owned() })
        }
    };
    Ok(Wanted {
        workload: inputs.workload.clone(),
        concurrency: inputs.concurrency.clone(),
        repeats: inputs.repeats,
        seconds: inputs.seconds,
        draft,
        command,
    })
}

/// The variables of `--set`.
fn variables(set: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let pair = |pair: &String| match pair.split_once('=').filter(|(name, _)| is_variable_name(name)) {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => bail!("--set takes NAME=VALUE, but got {}", masked_text(pair)),
    };
    set.iter().map(pair).collect()
}

fn given_draft(launch: &Launch) -> Option<String> {
    Some(launch.text(Key::SpeculativeDraftModelPath)?.value.to_owned())
}

/// The flags that are not measured as the launch has them.
fn table(source: &Source, launch: &Launch, treated: &[Treated]) -> String {
    let line = source.position(launch.anchor.start).line;
    let mut text = format!("{}, line {line}: {}\n", source.name(), source.slice(launch.anchor).trim());
    let short = |text: &str| match text.char_indices().nth(WIDEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    };
    let rows: Vec<(String, String, &str)> =
        treated.iter().map(|row| (short(&row.launch), short(&row.measured), row.why)).collect();
    let width = |of: fn(&(String, String, &str)) -> usize| rows.iter().map(of).max().unwrap_or_default();
    let (first, second) = (width(|row| row.0.chars().count()), width(|row| row.1.chars().count()));
    text += &format!("  {:<first$}  {:<second$}  why\n", "launch", "measured");
    for (launch, measured, why) in &rows {
        text += &format!("  {launch:<first$}  {measured:<second$}  {why}\n");
    }
    text.trim_end().to_owned()
}

/// Prints the change of the launch, and writes it if requested.
fn conclude(
    source: &Source,
    launch: &Launch,
    plan: &LaunchSweep,
    rankings: &[LoadRanking],
    inputs: &Inputs,
) -> anyhow::Result<()> {
    let name = source.name();
    let decided: Vec<(Load, Option<TreeShape>)> = rankings.iter().map(|one| (one.load, decision(one))).collect();
    let shape = match decided.as_slice() {
        [(_, first), rest @ ..] if rest.iter().all(|(_, shape)| shape == first) => *first,
        _ => {
            terminal::note(&differing(name, &decided));
            return Ok(());
        }
    };
    let Some(shape) = shape else {
        terminal::note(&format!("{name} stays as it is: nothing is shown to be faster; see the verdicts above"));
        return Ok(());
    };
    let runs_already = if shape.is_off() { !speculates(launch) } else { plan.own == Some(shape) };
    if runs_already {
        terminal::note(&format!("{name} stays as it is: nothing faster was found"));
        return Ok(());
    }
    let draft = Draft { path: plan.file.models.draft.clone(), algorithm: plan.file.models.algorithm.clone() };
    let changed = rewrite(source, launch, &draft, shape);
    let why = gain(shape, plan.own, rankings);
    match (&changed.text, inputs.mode) {
        (Some(text), Mode::Write) => {
            lint::write_changed(text, &inputs.file, source)?;
            terminal::note(&format!("{name} is changed: {why}"));
        }
        (Some(text), _) => {
            terminal::print(&lint::difference(source, text))?;
            terminal::note(&format!("{why}; to write this into {name}: the same command with --write --resume"));
        }
        (None, _) if shape.is_off() => {
            terminal::note(&format!("{why}: remove the speculative flags from {name}, which cannot be edited here"));
        }
        (None, _) => {
            terminal::print(&format!("{}\n", changed.flags))?;
            terminal::note(&format!("{why}; {name} cannot be edited here: change these flags by hand"));
        }
    }
    Ok(())
}

/// The shape that a launch for this load should have; `None` if that is not known.
fn decision(ranking: &LoadRanking) -> Option<TreeShape> {
    match ranking.verdict {
        Verdict::Pays => Some(ranking.chosen.as_ref()?.shape),
        Verdict::DoesNotPay => Some(TreeShape::OFF),
        Verdict::Tie | Verdict::CannotTell(_) | Verdict::AllFailed | Verdict::NotCompared => None,
    }
}

/// What each load would take, if they differ.
fn differing(name: &str, decided: &[(Load, Option<TreeShape>)]) -> String {
    let mut text = format!("{name} stays as it is: it runs one shape, but the loads differ:\n");
    for (load, shape) in decided {
        let what = match shape {
            None => "not decided".to_owned(),
            Some(shape) if shape.is_off() => "no speculation".to_owned(),
            Some(shape) => shape.to_string(),
        };
        text += &format!("  {load}: {what}\n");
    }
    text + "tune for the load that counts (--concurrency N), or give the engine a policy if it follows one (spectune export --help)"
}

/// Why a shape is better than what the launch runs now.
fn gain(shape: TreeShape, own: Option<TreeShape>, rankings: &[LoadRanking]) -> String {
    let speed = |ranking: &LoadRanking, shape: TreeShape| {
        let entry = ranking.entries.iter().find(|entry| entry.configuration.shape == shape)?;
        Some(entry.output_tokens_per_s?.median)
    };
    let shown = |shape: TreeShape| if shape.is_off() { "no speculation".to_owned() } else { shape.to_string() };
    let of_load = |ranking: &LoadRanking| {
        let new = speed(ranking, shape)?;
        let old = own.and_then(|own| Some(format!(", {:.0} with {own}", speed(ranking, own)?)));
        Some(format!("{}: {new:.0} tokens/s{}", ranking.load, old.unwrap_or_default()))
    };
    let figures: Vec<String> = rankings.iter().filter_map(of_load).collect();
    format!("{} is faster ({})", shown(shape), figures.join("; "))
}

fn speculates(launch: &Launch) -> bool {
    launch.has(Key::SpeculativeAlgorithm) || launch.vllm_speculation().is_some()
}

fn default_out(file: &Path) -> PathBuf {
    let name = file.file_stem().map_or_else(|| "launch".into(), |name| name.to_string_lossy().into_owned());
    PathBuf::from("results").join(format!("tune-{name}"))
}

fn word(path: &Path) -> String {
    quoted(&path.display().to_string())
}

//! `spectune bench --simulate-acceptance` with a rollout or a closed loop: measures policies on the
//! loads that `spectune simulate` predicts.

use std::sync::Arc;

use anyhow::bail;
use engine::{Engine, PlayedAcceptance};
use schemas::tree::TreeShape;
use tuner::{
    TunerError,
    forecast::{
        compare::{FORMAT, MeasuredRun, Policies},
        drafts::Drafts,
        figures::Figures,
        load::{Load, SendPattern},
        plan::{NamedTable, SimulatedRow},
        rollout::Rollout,
    },
    policies::played_load::{self, PlayedLoad},
};

use super::{
    Arguments,
    turns::{self, BenchTurn, Turned},
};
use crate::{engine_setup, exit::Exit, load_flags, progress, terminal};

const HEADER: &str = "policy           load                                  seconds   tok/s  accept  prefill s  batch up to  \
                      rounds  round ms\n";

/// The loads, one for each batch size of a closed loop, or one rollout.
///
/// # Errors
/// When a flag is impossible.
pub fn loads(arguments: &Arguments) -> anyhow::Result<Vec<Load>> {
    let lengths = arguments.load.lengths()?;
    let Some(prompt_tokens) = arguments.input_len else { bail!("give --input-len, the tokens of each prompt") };
    let limited = arguments.load.limited()?;
    let keeps_contexts = arguments.load.keep_contexts;
    let of = |prompts, samples| Rollout {
        prompts,
        samples,
        prompt_tokens,
        lengths: lengths.clone(),
        limited,
        keeps_contexts,
    };
    if let Some((prompts, samples, sent)) = arguments.load.rollout()? {
        return Ok(vec![load_flags::checked(Load { requests: of(prompts, samples), sent })?]);
    }
    let Some(each) = arguments.requests_per_user.filter(|_| !arguments.batch_size.is_empty()) else {
        bail!("give a load: --rollout, or --requests-per-user and --batch-size");
    };
    let closed = |batch: &usize| {
        load_flags::checked(Load { requests: of(batch.saturating_mul(each), 1), sent: SendPattern::Closed(*batch) })
    };
    arguments.batch_size.iter().map(closed).collect()
}

/// The policies: those of the file, else each shape for all rounds.
///
/// # Errors
/// When the file cannot be read.
pub fn policies(arguments: &Arguments) -> anyhow::Result<Vec<NamedTable>> {
    if let Some(path) = &arguments.policies {
        return Ok(Policies::read(path)?.policies);
    }
    let fixed = |shape: TreeShape| NamedTable {
        name: if shape.is_off() { "none".into() } else { format!("fixed {shape}") },
        // No batch is larger, so the row holds for all of them.
        rows: vec![SimulatedRow { batch: usize::MAX, context: None, shape }],
    };
    Ok(arguments.shapes.iter().map(|trial| fixed(trial.shape)).collect())
}

/// Measures every policy on every load, repeat by repeat, and prints a line for each.
///
/// # Errors
/// When a load does not fit, the acceptance of a shape is unknown, or the device fails; the lines
/// of what has run by then are printed.
pub fn run(
    engine: &mut Engine,
    arguments: &Arguments,
    drafts: &Drafts,
    policies: &[NamedTable],
    loads: &[Load],
) -> anyhow::Result<Exit> {
    if !arguments.json {
        terminal::print(HEADER)?;
    }
    // Loads of a policy follow each other, since a change of the policy may capture graphs.
    let each = policies
        .iter()
        .flat_map(|policy| loads.iter().map(move |load| PlayedRepeats { policy, load, runs: Vec::new() }))
        .collect();
    let mut measured = PlayedLoads { engine, arguments, drafts, each, current: None };
    let exit = turns::take(&mut measured, arguments.repeats())?;
    if measured.engine.gpu_state().and_then(|state| state.energy_j).is_none() {
        terminal::note("energy: this device does not tell how much it uses");
    }
    Ok(exit)
}

/// Policies that are measured on loads.
struct PlayedLoads<'a> {
    engine: &'a mut Engine,
    arguments: &'a Arguments,
    drafts: &'a Drafts,
    each: Vec<PlayedRepeats<'a>>,
    /// The policy that the engine follows, and what its rounds accept.
    current: Option<(&'a NamedTable, Option<Arc<PlayedAcceptance>>)>,
}

/// The repeats of a policy on a load so far.
struct PlayedRepeats<'a> {
    policy: &'a NamedTable,
    load: &'a Load,
    runs: Vec<Figures>,
}

impl Turned for PlayedLoads<'_> {
    fn count(&self) -> usize {
        self.each.len()
    }

    fn ran(&self, at: usize) -> usize {
        self.each[at].runs.len()
    }

    fn run(&mut self, at: usize, turn: &BenchTurn) -> anyhow::Result<()> {
        let PlayedRepeats { policy, load, runs } = &mut self.each[at];
        let played = match self.current.take().filter(|(of, _)| std::ptr::eq(*of, *policy)) {
            Some((_, played)) => played,
            None => {
                let table = played_load::policy(&policy.rows)?;
                let played = played_load::prepare(self.engine, self.drafts, &table)?;
                engine_setup::set_policy(self.engine, table)?;
                played
            }
        };
        let draw = self.arguments.draw.unwrap_or_default();
        let jobs = load.requests.draw(self.drafts, draw);
        let arrivals = load.sent.arrivals(jobs.len(), draw);
        let what = PlayedLoad { jobs: &jobs, arrivals: &arrivals, until: load.until(), seed: self.arguments.seed };
        progress::waiting(&format!("measuring {} on {load}{}", policy.name, turn.words), |_| {
            played_load::warm_up(self.engine, &what, played.as_deref())?;
            (0..turn.repeats).try_for_each(|_| {
                runs.push(played_load::run(self.engine, &what, played.as_deref())?);
                Ok::<(), TunerError>(())
            })
        })?;
        self.current = Some((policy, played));
        Ok(())
    }

    /// Prints the repeat of median time.
    fn print(&mut self, at: usize) -> anyhow::Result<()> {
        let PlayedRepeats { policy, load, runs } = &self.each[at];
        let mut runs: Vec<&Figures> = runs.iter().collect();
        runs.sort_by(|a, b| a.elapsed_s.total_cmp(&b.elapsed_s));
        // One run as a whole, so that its figures belong together.
        let Some(figures) = runs.get(runs.len().saturating_sub(1) / 2) else { return Ok(()) };
        let run = MeasuredRun {
            format: FORMAT,
            simulated_acceptance: true,
            device: self.engine.device().name,
            policy: (*policy).clone(),
            load: (*load).clone(),
            draw: self.arguments.draw.unwrap_or_default(),
            setup: played_load::setup(self.engine),
            figures: (*figures).clone(),
        };
        let line = if self.arguments.json { serde_json::to_string(&run)? } else { row(&run) };
        terminal::print(&(line + "\n"))
    }
}

fn row(run: &MeasuredRun) -> String {
    let MeasuredRun { policy, load, figures, .. } = run;
    let seconds = load.done_s(&figures.ends_s).unwrap_or(figures.elapsed_s);
    let accept = figures.accept_length.map_or_else(|| "-".to_owned(), |length| format!("{length:.3}*"));
    let rounds: u64 = figures.rounds.iter().map(|group| group.rounds).sum();
    let (timed, ms) = figures
        .rounds
        .iter()
        .fold((0, 0.0), |(timed, ms), group| (timed + group.timed, ms + group.ms * group.timed as f64));
    let largest = figures.rounds.iter().map(|group| group.batch).max().unwrap_or_default();
    let energy = figures
        .energy_j
        .map_or_else(String::new, |energy| format!("  {:.2} tok/J", figures.output_tokens as f64 / energy));
    format!(
        "{:<16} {:<36} {seconds:>8.3} {:>7.0} {accept:>7} {:>10.3} {largest:>12} {rounds:>7} {:>9.3}{energy}",
        policy.name,
        load.to_string(),
        figures.output_tokens_per_s,
        figures.prefill_s,
        ms / timed.max(1) as f64
    )
}

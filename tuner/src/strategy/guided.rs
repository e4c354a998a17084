//! Guided search: the whole space is predicted, and only what the predictions leave open is
//! measured. No speculation, the engine's default, tables, and the best predicted configurations of
//! each load are always measured. Then follow the ones that could still win, given the observed
//! error of the predictions, and further repeats of contenders that are not yet significantly
//! different.

use schemas::sweep::{Metric, Search};

use super::{Experiment, SearchStop, StopReason, TrialRunner, listed::interleaved};
use crate::{
    prediction::guide::Prediction,
    results::selection::{INDIFFERENT, LoadRanking, Ranked, SpeculationVerdict},
    space::Candidate,
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{CandidateRole, Record, Trial},
    },
};

/// A candidate whose first repeat is slower than the best by more than this, in logarithms, is not
/// repeated: on a machine that is fit for measuring, noise cannot explain it.
const HOPELESS: f64 = 0.10;
/// Maximum number of extra repeats of contenders.
const MORE_REPEATS: usize = 4;
/// Maximum number of configurations with extra repeats: the best, two contenders, the best that
/// speculates, the chosen one, and no speculation.
const MOST_REPEATED: usize = 6;
/// Maximum number of extra configurations per load that are measured because they may still win.
const MORE_CANDIDATES: usize = 6;

/// Runs the search to its end.
pub fn run(
    search: &Search,
    experiment: &Experiment,
    predictions: &[Prediction],
    bench: &mut dyn TrialRunner,
) -> Result<StopReason, SearchStop> {
    let mut tied = false;
    // One load after the other: its shapes are captured together, and the engine keeps the graphs.
    for load in &experiment.loads {
        let mut field = field(search, experiment, predictions, *load);
        first_repeat(experiment, *load, predictions, &mut field, bench)?;
        // One repeat shows who is far behind; the other repeats are for those who may win.
        let contenders = hopeful(experiment, *load, &field, bench.history());
        for trial in interleaved(&contenders, &[*load], 1..experiment.repeats) {
            bench.measure(&trial)?;
        }
        settings(experiment, *load, bench)?;
        tied |= !tell_apart(experiment, *load, bench)?;
    }
    Ok(if tied { StopReason::StillTied } else { StopReason::Settled })
}

/// Maximum number of trials, over all loads.
pub fn most_trials(search: &Search, experiment: &Experiment) -> usize {
    // Of several drafts, those that look texts up are measured with all their shapes.
    let several = experiment.entrants.iter().any(|one| !one.configuration.draft.is_empty());
    let most = if several { usize::MAX } else { 4 + search.candidates + MORE_CANDIDATES };
    let each = experiment.entrants.len().min(most);
    experiment.loads.len() * (each * experiment.repeats + each.min(MOST_REPEATED) * MORE_REPEATS)
}

/// The configurations that are always measured: baselines, tables and the best predicted ones.
fn field(search: &Search, experiment: &Experiment, predictions: &[Prediction], load: TrialLoad) -> Vec<Candidate> {
    let best = by_prediction(experiment, predictions, load);
    let best: Vec<&Configuration> =
        best.iter().take(search.candidates).map(|(prediction, _)| &prediction.configuration).collect();
    let chosen = |one: &&Candidate| {
        one.role != CandidateRole::Candidate
            || (!one.configuration.table.is_empty() && one.configuration.knobs.are_default())
            || best.contains(&&one.configuration)
            // What cannot be predicted is measured, or a sweep could never choose it.
            || is_unpredictable(&one.configuration, predictions, load)
    };
    experiment.entrants.iter().filter(chosen).cloned().collect()
}

/// Whether nothing is predicted of its draft: in a sweep of several drafts, that of a text source,
/// whose few shapes are all measured.
fn is_unpredictable(configuration: &Configuration, predictions: &[Prediction], load: TrialLoad) -> bool {
    let draft = &configuration.draft;
    let known = |one: &Prediction| one.load == load && one.configuration.draft == *draft;
    !draft.is_empty() && configuration.knobs.are_default() && !predictions.iter().any(known)
}

/// The predictions of a load's candidates with their scores, best first.
fn by_prediction<'a>(
    experiment: &Experiment,
    predictions: &'a [Prediction],
    load: TrialLoad,
) -> Vec<(&'a Prediction, f64)> {
    let candidates = || experiment.entrants.iter().filter(|one| one.role == CandidateRole::Candidate);
    let enters = |configuration: &Configuration| candidates().any(|one| one.configuration == *configuration);
    let mut scored: Vec<(&Prediction, f64)> = predictions
        .iter()
        .filter(|one| one.load == load && enters(&one.configuration))
        .map(|one| (one, score(one, experiment.metric)))
        .collect();
    scored.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.configuration.cmp(&b.0.configuration)));
    scored
}

/// The predicted score, higher is better. Goodput is not predicted per request; throughput is used
/// instead.
fn score(prediction: &Prediction, metric: Metric) -> f64 {
    match metric {
        Metric::Throughput | Metric::Pareto | Metric::Goodput => prediction.output_tokens_per_s,
        Metric::Latency => 1e3 / prediction.latency_ms,
    }
}

/// Measures the field once, and any configuration whose prediction is so close that the errors seen
/// so far could make it the best.
fn first_repeat(
    experiment: &Experiment,
    load: TrialLoad,
    predictions: &[Prediction],
    field: &mut Vec<Candidate>,
    bench: &mut dyn TrialRunner,
) -> Result<(), SearchStop> {
    for trial in interleaved(field, &[load], 0..1) {
        bench.measure(&trial)?;
    }
    for _ in 0..MORE_CANDIDATES {
        let Some(next) = within_reach(experiment, load, predictions, field, bench.history()) else { break };
        bench.measure(&Trial { configuration: next.configuration.clone(), load, repeat: 0 })?;
        field.push(next);
    }
    Ok(())
}

/// The best predicted unmeasured configuration that could still win: its prediction, raised by the
/// largest error seen among similar configurations (around their median error), beats the best
/// measured one.
fn within_reach(
    experiment: &Experiment,
    load: TrialLoad,
    predictions: &[Prediction],
    field: &[Candidate],
    history: &[Record],
) -> Option<Candidate> {
    let mut errors = Vec::new();
    let mut best = f64::NEG_INFINITY;
    for entrant in field {
        let Some(measured) = first_score(experiment, load, &entrant.configuration, history) else { continue };
        best = best.max(measured.ln());
        let predicted = predictions.iter().find(|one| one.load == load && one.configuration == entrant.configuration);
        if let Some(predicted) = predicted.filter(|_| !entrant.configuration.is_off()) {
            errors.push(measured.ln() - score(predicted, experiment.metric).ln());
        }
    }
    // The largest error upwards: another configuration may be underestimated as much.
    let raise = errors.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !raise.is_finite() {
        return None;
    }
    let unmeasured = |one: &&(&Prediction, f64)| !field.iter().any(|known| known.configuration == one.0.configuration);
    let (next, predicted) = *by_prediction(experiment, predictions, load).iter().find(unmeasured)?;
    let hopeful = predicted.ln() + raise > best + INDIFFERENT;
    hopeful.then(|| experiment.entrants.iter().find(|one| one.configuration == next.configuration).cloned()).flatten()
}

/// The score of a configuration in its first repeat.
fn first_score(
    experiment: &Experiment,
    load: TrialLoad,
    configuration: &Configuration,
    history: &[Record],
) -> Option<f64> {
    let of = |record: &&Record| {
        record.trial.load == load && record.trial.repeat == 0 && record.trial.configuration == *configuration
    };
    history.iter().find(of)?.measurement()?.score(experiment.metric)
}

/// The baselines, and the configurations that are not hopelessly slower after the first repeat.
fn hopeful(experiment: &Experiment, load: TrialLoad, field: &[Candidate], history: &[Record]) -> Vec<Candidate> {
    let score = |one: &Candidate| first_score(experiment, load, &one.configuration, history).map(f64::ln);
    let best = field.iter().filter_map(score).fold(f64::NEG_INFINITY, f64::max);
    let keep = |one: &&Candidate| {
        one.role != CandidateRole::Candidate || score(one).is_some_and(|score| score >= best - HOPELESS)
    };
    field.iter().filter(keep).cloned().collect()
}

/// Tries the other settings with the best shape so far; each costs a restart.
fn settings(experiment: &Experiment, load: TrialLoad, bench: &mut dyn TrialRunner) -> Result<(), SearchStop> {
    let Some(chosen) = experiment.standing(bench.history(), load).and_then(|ranking| ranking.chosen) else {
        return Ok(());
    };
    let others = experiment.with_other_settings(chosen.shape, &chosen.draft);
    for trial in interleaved(&others, &[load], 0..1) {
        bench.measure(&trial)?;
    }
    let contenders = hopeful(experiment, load, &others, bench.history());
    for trial in interleaved(&contenders, &[load], 1..experiment.repeats) {
        bench.measure(&trial)?;
    }
    Ok(())
}

/// Repeats the contenders that tie with the best for lack of data. Results are looked at once
/// before and once after, whose intervals hold together
/// ([`Looks::Twice`](crate::results::selection::Looks)): a look after each repeat would need wider
/// ones. Returns whether the choice is clear.
fn tell_apart(experiment: &Experiment, load: TrialLoad, bench: &mut dyn TrialRunner) -> Result<bool, SearchStop> {
    // Without the further repeats of an interrupted run.
    let first = bench.history().iter().filter(|record| record.trial.repeat < experiment.repeats).cloned();
    let first: Vec<Record> = first.collect();
    let open_first = experiment.standing(&first, load).as_ref().map(open).unwrap_or_default();
    if open_first.len() < 2 {
        return Ok(true);
    }
    let repeated =
        |one: &&Candidate| one.role == CandidateRole::NoSpeculation || open_first.contains(&one.configuration);
    let repeated: Vec<Candidate> = experiment.entrants.iter().filter(repeated).cloned().collect();
    for trial in interleaved(&repeated, &[load], experiment.repeats..experiment.repeats + MORE_REPEATS) {
        bench.measure(&trial)?;
    }
    Ok(experiment.standing(bench.history(), load).is_none_or(|ranking| open(&ranking).len() < 2))
}

/// The best and the contenders that tie with it for lack of data (not because the difference is
/// negligible). If it is undecided whether speculation pays, also the best speculating
/// configuration and the current choice.
fn open(ranking: &LoadRanking) -> Vec<Configuration> {
    let Some(best) = ranking.entries.first().filter(|entry| entry.repeats > 0) else { return Vec::new() };
    let contends = |entry: &&Ranked| {
        // Equally fast ones stay tied however often they are repeated.
        let behind = entry.against_best.is_some_and(|ratio| -ratio.median.ln() > INDIFFERENT);
        (entry.tied_with_best || entry.too_noisy) && behind
    };
    let mut open: Vec<Configuration> =
        ranking.entries.iter().filter(contends).map(|entry| entry.configuration.clone()).take(2).collect();
    if matches!(ranking.verdict, SpeculationVerdict::CannotTell(_)) {
        let speculating = ranking.entries.iter().find(|entry| entry.repeats > 0 && !entry.configuration.is_off());
        open.extend(speculating.map(|entry| entry.configuration.clone()));
        open.extend(ranking.chosen.clone());
    }
    if !open.is_empty() {
        open.insert(0, best.configuration.clone());
    }
    let mut known = Vec::new();
    open.retain(|one| {
        !known.contains(one) && {
            known.push(one.clone());
            true
        }
    });
    open
}

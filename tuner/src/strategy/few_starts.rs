//! Guided search on a system where every configuration costs a start.
//!
//! Acceptance of the whole space is known from replay, or estimated from the servers' counters
//! ([`counters`]), which takes more starts. Measured first are no speculation, the engine's default
//! and what says most about costs: a tree, or several chains in one start if the engine can run a
//! different one at each batch size ([`rotations`]). A sum of costs fitted to these predicts the
//! rest ([`AdditiveModel`]). Then the best predicted configurations are measured, each in a
//! separate start, until no unmeasured one is predicted to beat the measured ones. Last, the
//! sweep's other settings are tried with the fastest shape of each load: predictions do not know
//! what a setting costs.

mod counters;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod regret;
mod rotations;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use schemas::{sweep::Search, tree::TreeShape};

use self::rotations::is_chain;
pub use self::rotations::rotations;
use super::{Experiment, SearchStop, StopReason, TrialRunner, listed};
use crate::{
    prediction::{
        guide::{AcceptanceTable, Prediction},
        latency::additive::{AdditiveModel, Observation, TERMS, terms},
    },
    space::Candidate,
    statistics::median,
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{CandidateRole, Record},
    },
};

/// Maximum number of starts, unless the sweep's `candidates` needs more.
const STARTS: usize = 4;
/// Further starts where acceptance is estimated from the counters of the starts so far.
const UNREPLAYED: usize = 3;
/// A candidate is worth a start only if it may be faster than the best measured one by more than
/// this share.
const WORTH: f64 = 0.01;
/// Cap of the prediction error: beyond it nothing is known, which does not mean that anything may
/// be the best.
const MOST_ERROR: f64 = 0.3;
/// If predictions are off by more than this share, one more start is used to learn costs.
const MISSED: f64 = 0.05;

/// Results of a guided search on servers in addition to its trials.
#[derive(Clone, Debug, Default)]
pub struct SearchFindings {
    /// Predictions of every configuration with known acceptance under every closed loop, each made
    /// before that configuration was measured.
    pub predictions: Vec<Prediction>,
    /// The costs that the last predictions are based on.
    pub model: Option<AdditiveModel>,
    /// The points that they were fitted to.
    pub points: Vec<Observation>,
}

/// Maximum number of trials.
pub fn most_trials(search: &Search, experiment: &Experiment) -> usize {
    most_starts(search, experiment, false) * experiment.loads.len() * experiment.repeats
}

/// Maximum number of starts, without those that confirm a verdict.
pub fn most_starts(search: &Search, experiment: &Experiment, is_replayed: bool) -> usize {
    let most = starts(search) + if is_replayed { 0 } else { UNREPLAYED };
    let is_plain = |one: &&Candidate| one.configuration.knobs.are_default();
    let plain = experiment.entrants.iter().filter(is_plain).count();
    // Each load may have another fastest shape.
    let settings = experiment.other_settings().len() * experiment.loads.len();
    most.min(plain + experiment.loads.len()) + settings
}

fn starts(search: &Search) -> usize {
    STARTS.max(3 + search.candidates)
}

/// Runs the search of the shapes, then tries the other settings with the fastest ones. `tables` are
/// starts that serve several chains, in the order in which they are used; empty if the engine runs
/// one chain per start. Without `acceptance` it is estimated from counters. `found` is filled even
/// if the search is stopped early.
///
/// # Errors
/// As [`TrialRunner::measure`].
pub fn run(
    search: &Search,
    experiment: &Experiment,
    acceptance: Option<&AcceptanceTable>,
    tables: &[Configuration],
    found: &mut SearchFindings,
    bench: &mut dyn TrialRunner,
) -> Result<StopReason, SearchStop> {
    let reason = shapes_first(search, experiment, acceptance, tables, found, bench)?;
    settings(experiment, bench)?;
    Ok(reason)
}

/// Searches the shapes with the sweep's own settings.
fn shapes_first(
    search: &Search,
    experiment: &Experiment,
    acceptance: Option<&AcceptanceTable>,
    tables: &[Configuration],
    found: &mut SearchFindings,
    bench: &mut dyn TrialRunner,
) -> Result<StopReason, SearchStop> {
    let most = starts(search) + if acceptance.is_none() { UNREPLAYED } else { 0 };
    let mut begun = Begun::new(experiment, tables);
    for trial in listed::grouped(&begun.measured, &experiment.loads, experiment.repeats) {
        bench.measure(&trial)?;
    }
    // Starts of an interrupted run count, and are completed first.
    for start in begun.left_open(experiment, bench.history()) {
        begun.measure(&start, experiment, bench)?;
    }
    while begun.starts < most {
        let points = points(bench.history());
        let counted = acceptance.is_none().then(|| counters::acceptance(experiment, bench.history()));
        let Some(acceptance) = acceptance.or(counted.as_ref()) else { break };
        // Without replay, a shape's acceptance is known only as far as measured trees contain it.
        let open: Vec<&Candidate> = experiment
            .entrants
            .iter()
            .filter(|one| !begun.measured.contains(one) && acceptance.length(one.configuration.shape).is_some())
            .collect();
        let model = AdditiveModel::fit(&points).filter(|_| shapes(&points) >= 3);
        let next = match model {
            Some(model) => {
                predict(experiment, acceptance, &model, &points, &begun.measured, bench.history(), found);
                // Replayed acceptance is exact; an estimate is off too, which shows in the
                // throughput.
                let missed = if counted.is_some() { missed(found, bench.history()) } else { Vec::new() };
                // A candidate is worth a start if it could be best within the error of past
                // predictions.
                let within = reach(&AdditiveModel::errors(&points)).max(reach(&missed));
                let Some(best) = best_open(&open, found, bench.history(), within) else {
                    return Ok(StopReason::Settled);
                };
                // The last start is reserved for the best candidate.
                let is_last = begun.starts + 1 >= most;
                let table = begun.tables.first().filter(|_| !is_last && begun.wants_table(found, bench.history()));
                table.map_or_else(|| best.clone(), probe)
            }
            // Too little is measured to predict anything: the start that says most about costs
            // comes first.
            None => match most_telling(experiment, &open, acceptance, &points) {
                Some(one) if is_chain(one.configuration.shape) => begun.tables.first().map_or(one.clone(), probe),
                Some(one) => one.clone(),
                None => return Ok(StopReason::SpaceExhausted),
            },
        };
        begun.measure(&next, experiment, bench)?;
    }
    let points = points(bench.history());
    let counted = acceptance.is_none().then(|| counters::acceptance(experiment, bench.history()));
    if let Some((model, acceptance)) = AdditiveModel::fit(&points).zip(acceptance.or(counted.as_ref())) {
        predict(experiment, acceptance, &model, &points, &begun.measured, bench.history(), found);
    }
    Ok(StopReason::StartBudget)
}

/// Measures the other settings with the shape that is chosen, or fastest, under each load; each is
/// one more start.
fn settings(experiment: &Experiment, bench: &mut dyn TrialRunner) -> Result<(), SearchStop> {
    if experiment.other_settings().is_empty() {
        return Ok(());
    }
    let fastest = |load: &TrialLoad| {
        let ranking = experiment.standing(bench.history(), *load)?;
        let first = || ranking.entries.iter().find(|entry| entry.repeats > 0).map(|entry| &entry.configuration);
        ranking.chosen.as_ref().or_else(first).map(|configuration| configuration.shape)
    };
    let shapes: BTreeSet<TreeShape> = experiment.loads.iter().filter_map(fastest).collect();
    for shape in shapes {
        let others = experiment.with_other_settings(shape, "");
        for trial in listed::grouped(&others, &experiment.loads, experiment.repeats) {
            bench.measure(&trial)?;
        }
    }
    Ok(())
}

fn probe(table: &Configuration) -> Candidate {
    Candidate { configuration: table.clone(), role: CandidateRole::Probe }
}

/// The starts of a search so far.
struct Begun {
    /// Configurations measured in separate starts.
    measured: Vec<Candidate>,
    /// Tables that can still be started.
    tables: Vec<Configuration>,
    /// Whether a table has been measured.
    probed: bool,
    /// Number of starts.
    starts: usize,
}

impl Begun {
    /// Starts with the baselines.
    fn new(experiment: &Experiment, tables: &[Configuration]) -> Self {
        let measured: Vec<Candidate> = experiment.baselines().cloned().collect();
        Self { starts: measured.len(), measured, tables: tables.to_vec(), probed: false }
    }

    /// Tables and candidates that an interrupted run started: the journal contains trials of them.
    fn left_open(&self, experiment: &Experiment, history: &[Record]) -> Vec<Candidate> {
        let is_there = |one: &Candidate| history.iter().any(|record| record.trial.configuration == one.configuration);
        let tables = self.tables.iter().map(probe);
        let shapes = experiment.entrants.iter().filter(|one| one.configuration.knobs.are_default());
        let all = tables.chain(shapes.filter(|one| !self.measured.contains(one)).cloned());
        all.filter(is_there).collect()
    }

    /// Measures a start under every load; a table only under closed loops, where the batch
    /// determines the chain. If an engine does not run a table as requested, no further tables are
    /// tried, and the search continues with starts of single chains.
    fn measure(
        &mut self,
        start: &Candidate,
        experiment: &Experiment,
        bench: &mut dyn TrialRunner,
    ) -> Result<(), SearchStop> {
        let one = std::slice::from_ref(start);
        if start.role != CandidateRole::Probe {
            for trial in listed::grouped(one, &experiment.loads, experiment.repeats) {
                bench.measure(&trial)?;
            }
            self.measured.push(start.clone());
            self.starts += 1;
            return Ok(());
        }
        let loads: Vec<TrialLoad> =
            experiment.loads.iter().copied().filter(|load| load.batch_size().is_some()).collect();
        for trial in listed::grouped(one, &loads, experiment.repeats) {
            // The engine does not run tables as requested; its other tables would fail in the same
            // way.
            if bench.measure(&trial)?.failure().is_some() {
                self.tables.clear();
                return Ok(());
            }
        }
        self.tables.retain(|table| *table != start.configuration);
        self.probed = true;
        self.starts += 1;
        Ok(())
    }

    /// Whether a start of several chains comes before the next finalist: always for the first one,
    /// then only if predictions were off.
    fn wants_table(&self, found: &SearchFindings, history: &[Record]) -> bool {
        let last = self.measured.last().map(|one| &one.configuration);
        let of_last = found.predictions.iter().filter(|one| Some(&one.configuration) == last);
        !self.probed || of_last.filter_map(|one| error(one, history)).any(|error| error > MISSED)
    }
}

fn shapes(points: &[Observation]) -> usize {
    let mut shapes: Vec<TreeShape> = points.iter().map(|point| point.shape).collect();
    shapes.sort_unstable();
    shapes.dedup();
    shapes.len()
}

/// The measured points of closed loops: the median of each configuration and load. The last
/// requests of a table's trial run in a smaller batch and so with another row; over whole requests
/// that is a small share, and it affects speed and accept length alike.
fn points(history: &[Record]) -> Vec<Observation> {
    let mut rates: BTreeMap<(&Configuration, usize), Vec<(f64, f64)>> = BTreeMap::new();
    let own_settings = |record: &&Record| record.trial.configuration.knobs.are_default();
    for record in history.iter().filter(own_settings) {
        let (Some(batch), Some(figures)) = (record.trial.load.batch_size(), record.measurement()) else { continue };
        let of = rates.entry((&record.trial.configuration, batch)).or_default();
        of.push((figures.output_tokens_per_s, figures.accept_length));
    }
    let point = |((configuration, batch), mut rates): ((&Configuration, usize), Vec<(f64, f64)>)| {
        // Rate and accept length of one trial stay together: medians of each could be of different
        // trials.
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (rate, accept_length) = *rates.get(rates.len() / 2)?;
        let round_ms = 1e3 * batch as f64 * accept_length / rate;
        Some(Observation { shape: configuration.shape_at(batch), batch, accept_length, round_ms })
    };
    rates.into_iter().filter_map(point).collect()
}

/// Predicts unmeasured configurations with the current costs.
fn predict(
    experiment: &Experiment,
    acceptance: &AcceptanceTable,
    model: &AdditiveModel,
    points: &[Observation],
    measured: &[Candidate],
    history: &[Record],
    found: &mut SearchFindings,
) {
    found.model = Some(*model);
    found.points = points.to_vec();
    let is_measured = |one: &Configuration| measured.iter().any(|entrant| entrant.configuration == *one);
    // A prediction is made before its measurement, and is not changed afterwards.
    found.predictions.retain(|one| is_measured(&one.configuration));
    for load in &experiment.loads {
        let Some(batch) = load.batch_size() else { continue };
        // Prefill does not depend on the tree.
        let of_load = || history.iter().filter(|record| record.trial.load == *load).filter_map(Record::measurement);
        let first_token_ms =
            median(of_load().map(|figures| figures.time_to_first_token_ms.median).collect()).unwrap_or_default();
        let tokens =
            median(of_load().map(|figures| figures.output_tokens as f64 / figures.requests.max(1) as f64).collect());
        let tokens = tokens.unwrap_or(1.0);
        for entrant in
            experiment.entrants.iter().filter(|one| one.configuration.is_plain() && !is_measured(&one.configuration))
        {
            let shape = entrant.configuration.shape;
            let Some(accept_length) = acceptance.length(shape) else { continue };
            let round_ms = model.round_ms(shape, batch, accept_length);
            if round_ms <= 0.0 {
                continue;
            }
            let output_tokens_per_s = 1e3 * batch as f64 * accept_length / round_ms;
            found.predictions.push(Prediction {
                configuration: entrant.configuration.clone(),
                load: *load,
                accept_length,
                round_ms,
                output_tokens_per_s,
                tokens_per_s_per_user: output_tokens_per_s / batch as f64,
                latency_ms: first_token_ms + 1e3 * (tokens - 1.0).max(0.0) / (output_tokens_per_s / batch as f64),
                time_to_first_token_ms: first_token_ms,
                extrapolated: None,
            });
        }
    }
}

/// The relative errors of predicted throughput, of predictions made before their configurations
/// were measured; ascending.
fn missed(found: &SearchFindings, history: &[Record]) -> Vec<f64> {
    let mut errors: Vec<f64> = found.predictions.iter().filter_map(|one| error(one, history)).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

/// The relative error of a prediction; `None` before its configuration is measured.
fn error(prediction: &Prediction, history: &[Record]) -> Option<f64> {
    let Prediction { load, configuration, .. } = prediction;
    let is_of = |record: &&Record| record.trial.load == *load && record.trial.configuration == *configuration;
    let measured = history.iter().filter(is_of).filter_map(Record::measurement);
    let measured = median(measured.map(|figures| figures.output_tokens_per_s).collect())?;
    Some((prediction.output_tokens_per_s / measured - 1.0).abs())
}

/// Factor by which a candidate may be faster than predicted: the median of ascending errors.
fn reach(errors: &[f64]) -> f64 {
    1.0 + errors.get(errors.len() / 2).copied().unwrap_or_default().min(MOST_ERROR)
}

/// The candidate with the largest predicted lead, under any load, over the best measured one;
/// `None` if none comes within reach of it, given the error of predictions.
fn best_open<'a>(
    open: &[&'a Candidate],
    found: &SearchFindings,
    history: &[Record],
    within: f64,
) -> Option<&'a Candidate> {
    let best = |load: TrialLoad| {
        let of_load = history.iter().filter(|record| record.trial.load == load && record.role != CandidateRole::Probe);
        let of_load = of_load.filter_map(Record::measurement);
        of_load.map(|figures| figures.output_tokens_per_s).fold(0.0, f64::max)
    };
    let lead = |entrant: &Candidate| {
        let leads = found.predictions.iter().filter(|one| one.configuration == entrant.configuration);
        leads.map(|one| one.output_tokens_per_s / best(one.load).max(f64::MIN_POSITIVE)).fold(0.0, f64::max)
    };
    let leads = open.iter().map(|one| (*one, lead(one)));
    leads.filter(|(_, lead)| *lead * within > 1.0 + WORTH).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(one, _)| one)
}

/// The candidate whose costs are least determined by the measurements: the largest share of its
/// terms is outside the span of the points.
fn most_telling<'a>(
    experiment: &Experiment,
    open: &[&'a Candidate],
    acceptance: &AcceptanceTable,
    points: &[Observation],
) -> Option<&'a Candidate> {
    let batches: Vec<usize> = experiment.loads.iter().filter_map(|load| load.batch_size()).collect();
    let of = |entrant: &Candidate| -> Vec<_> {
        let shape = entrant.configuration.shape;
        let length = acceptance.length(shape).unwrap_or(1.0);
        batches.iter().map(|batch| terms(shape, *batch, length)).collect()
    };
    let spanned: Vec<_> = points.iter().map(|point| terms(point.shape, point.batch, point.accept_length)).collect();
    let candidates = open.iter().filter(|one| one.role == CandidateRole::Candidate && one.configuration.is_plain());
    let candidates: Vec<_> = candidates.map(|one| (*one, of(one))).collect();
    // Terms are scaled by their maximum, so that hundreds of rows weigh no more than one branching
    // tree.
    let all = || spanned.iter().chain(candidates.iter().flat_map(|(_, rows)| rows));
    let largest =
        all().fold(terms(TreeShape::OFF, 0, 0.0), |most, row| std::array::from_fn(|at| most[at].max(row[at])));
    let scaled = |row: &[f64; TERMS]| std::array::from_fn(|at| row[at] / largest[at].max(f64::MIN_POSITIVE));
    let spanned: Vec<[f64; TERMS]> = spanned.iter().map(scaled).collect();
    let novelty = |rows: &[[f64; TERMS]]| rows.iter().map(|row| outside(&spanned, scaled(row))).sum::<f64>();
    let reported = candidates.iter().map(|(one, rows)| (*one, novelty(rows)));
    reported.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(one, _)| one)
}

/// Distance of a row from the span of others, as a share of its length (Gram–Schmidt).
fn outside<const N: usize>(rows: &[[f64; N]], row: [f64; N]) -> f64 {
    let length = |row: &[f64; N]| row.iter().map(|value| value * value).sum::<f64>().sqrt();
    let without = |row: [f64; N], basis: &[[f64; N]]| {
        basis.iter().fold(row, |row, unit| {
            let along: f64 = row.iter().zip(unit).map(|(a, b)| a * b).sum();
            std::array::from_fn(|at| row[at] - along * unit[at])
        })
    };
    let mut basis: Vec<[f64; N]> = Vec::new();
    for one in rows {
        let rest = without(*one, &basis);
        let norm = length(&rest);
        if norm > 1e-6 * length(one).max(f64::MIN_POSITIVE) {
            basis.push(rest.map(|value| value / norm));
        }
    }
    length(&without(row, &basis)) / length(&row).max(f64::MIN_POSITIVE)
}

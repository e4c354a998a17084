//! Guided search on a system where every configuration costs a start.
//!
//! Acceptance of the whole space is known by replay. No speculation, the engine's default and the tree that tells most about costs are
//! measured; a sum of costs fitted to them predicts all others ([`AdditiveModel`]); and then what is predicted to be the best is
//! measured, until nothing that is not measured is predicted to beat what is.

use schemas::{sweep::Search, tree::TreeShape};

use super::{Experiment, SearchStop, StopReason, TrialRunner, listed};
use crate::{
    configuration::{Configuration, Load},
    guide::{AcceptanceTable, Prediction},
    latency::additive::{AdditiveModel, Observation, terms},
    record::{Record, Role},
    space::Candidate,
    statistics::median,
};

/// Starts in all, unless the sweep's `candidates` ask for more.
const STARTS: usize = 4;
/// A candidate that is predicted to be ahead of the best measured by less than this share is not worth a start.
const WORTH: f64 = 0.01;

/// What a guided search on servers has found besides its trials.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Of every configuration that acceptance is known of under every closed loop, made with what was measured before it was.
    pub predictions: Vec<Prediction>,
    /// The costs that the last predictions rest on.
    pub model: Option<AdditiveModel>,
    /// The points that they were fitted to.
    pub points: Vec<Observation>,
}

/// Trials at most.
pub fn most_trials(search: &Search, experiment: &Experiment) -> usize {
    starts(search).min(experiment.entrants.len()) * experiment.loads.len() * experiment.repeats
}

fn starts(search: &Search) -> usize {
    STARTS.max(3 + search.candidates)
}

/// Runs the search to its end. `found` keeps what is known also where the search is stopped early.
///
/// # Errors
/// As [`TrialRunner::measure`].
pub fn run(
    search: &Search,
    experiment: &Experiment,
    acceptance: &AcceptanceTable,
    found: &mut Found,
    bench: &mut dyn TrialRunner,
) -> Result<StopReason, SearchStop> {
    let mut measured: Vec<Candidate> = experiment.baselines().cloned().collect();
    for trial in listed::grouped(&measured, &experiment.loads, experiment.repeats) {
        bench.measure(&trial)?;
    }
    while measured.len() < starts(search) {
        let points = points(experiment, bench.history());
        let open: Vec<&Candidate> = experiment
            .entrants
            .iter()
            .filter(|one| !measured.contains(one) && acceptance.length(one.configuration.shape).is_some())
            .collect();
        let next = match (shapes(&points) < 3, AdditiveModel::fit(&points)) {
            (false, Some(model)) => {
                predict(experiment, acceptance, &model, &points, &measured, bench.history(), found);
                let Some(best) = best_open(&open, found, bench.history()) else { return Ok(StopReason::Settled) };
                best.clone()
            }
            _ => match most_telling(experiment, &open, acceptance, &points) {
                Some(one) => one.clone(),
                None => return Ok(StopReason::SpaceExhausted),
            },
        };
        for trial in listed::grouped(std::slice::from_ref(&next), &experiment.loads, experiment.repeats) {
            bench.measure(&trial)?;
        }
        measured.push(next);
    }
    let points = points(experiment, bench.history());
    if let Some(model) = AdditiveModel::fit(&points) {
        predict(experiment, acceptance, &model, &points, &measured, bench.history(), found);
    }
    Ok(StopReason::TrialBudget)
}

fn shapes(points: &[Observation]) -> usize {
    let mut shapes: Vec<TreeShape> = points.iter().map(|point| point.shape).collect();
    shapes.sort_unstable();
    shapes.dedup();
    shapes.len()
}

/// What was measured of closed loops, the median of each configuration and load.
fn points(experiment: &Experiment, history: &[Record]) -> Vec<Observation> {
    let mut points = Vec::new();
    for (load, batch) in experiment.loads.iter().filter_map(|load| Some((*load, load.batch_size()?))) {
        for entrant in experiment.entrants.iter().filter(|one| one.configuration.is_plain()) {
            let figures = history
                .iter()
                .filter(|record| record.trial.load == load && record.trial.configuration == entrant.configuration)
                .filter_map(Record::measurement);
            let mut rates: Vec<(f64, f64)> =
                figures.map(|figures| (figures.output_tokens_per_s, figures.accept_length)).collect();
            rates.sort_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((rate, accept_length)) = rates.get(rates.len() / 2) {
                let round_ms = 1e3 * batch as f64 * accept_length / rate;
                points.push(Observation {
                    shape: entrant.configuration.shape,
                    batch,
                    accept_length: *accept_length,
                    round_ms,
                });
            }
        }
    }
    points
}

/// Predicts what was not measured, with the costs that are known now.
fn predict(
    experiment: &Experiment,
    acceptance: &AcceptanceTable,
    model: &AdditiveModel,
    points: &[Observation],
    measured: &[Candidate],
    history: &[Record],
    found: &mut Found,
) {
    found.model = Some(*model);
    found.points = points.to_vec();
    let is_measured = |one: &Configuration| measured.iter().any(|entrant| entrant.configuration == *one);
    // A prediction is made before its measurement, and stays what it was.
    found.predictions.retain(|one| is_measured(&one.configuration));
    for load in &experiment.loads {
        let Some(batch) = load.batch_size() else { continue };
        // Prompts take no longer with another tree.
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

/// The candidate with the largest predicted lead, under any load, over the best that is measured; `None` where none has one.
fn best_open<'a>(open: &[&'a Candidate], found: &Found, history: &[Record]) -> Option<&'a Candidate> {
    let best = |load: Load| {
        let of_load = history.iter().filter(|record| record.trial.load == load).filter_map(Record::measurement);
        of_load.map(|figures| figures.output_tokens_per_s).fold(0.0, f64::max)
    };
    let lead = |entrant: &Candidate| {
        let leads = found.predictions.iter().filter(|one| one.configuration == entrant.configuration);
        leads.map(|one| one.output_tokens_per_s / best(one.load).max(f64::MIN_POSITIVE)).fold(0.0, f64::max)
    };
    let leads = open.iter().map(|one| (*one, lead(one)));
    leads.filter(|(_, lead)| *lead > 1.0 + WORTH).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(one, _)| one)
}

/// The candidate whose costs are least told by what is measured: the one with the largest share of its terms that lies outside of
/// what the points span.
fn most_telling<'a>(
    experiment: &Experiment,
    open: &[&'a Candidate],
    acceptance: &AcceptanceTable,
    points: &[Observation],
) -> Option<&'a Candidate> {
    let spanned: Vec<_> = points.iter().map(|point| terms(point.shape, point.batch, point.accept_length)).collect();
    let batches: Vec<usize> = experiment.loads.iter().filter_map(|load| load.batch_size()).collect();
    let novelty = |entrant: &Candidate| {
        let shape = entrant.configuration.shape;
        let length = acceptance.length(shape).unwrap_or(1.0);
        batches.iter().map(|batch| outside(&spanned, terms(shape, *batch, length))).sum::<f64>()
    };
    let candidates = open.iter().filter(|one| one.role == Role::Candidate && one.configuration.is_plain());
    candidates.map(|one| (*one, novelty(one))).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(one, _)| one)
}

/// How far a row lies outside of the span of others, as a share of its length: Gram–Schmidt.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spanned_tells_nothing_new() {
        let rows = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]];
        assert!(outside(&rows, [3.0, 2.0, 0.0]) < 1e-9);
        assert!((outside(&rows, [0.0, 0.0, 5.0]) - 1.0).abs() < 1e-9);
        assert!((outside(&rows, [3.0, 0.0, 4.0]) - 0.8).abs() < 1e-9);
        assert!((outside::<3>(&[], [1.0, 2.0, 3.0]) - 1.0).abs() < 1e-9);
    }
}

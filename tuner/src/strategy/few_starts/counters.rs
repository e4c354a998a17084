//! Acceptance from the counters of servers, where no replay knows it.
//!
//! A measured tree's accept length gives the rate at which each of its steps is accepted, taken as
//! the same for all of them. Its log-odds are a line in the logarithms of the branches and of the
//! tokens for each step. Until trees with other branches are measured, the slopes are those of
//! published heads; each measurement moves them.

use std::collections::BTreeMap;

use schemas::tree::TreeShape;

use super::super::Experiment;
use crate::{
    prediction::guide::{AcceptanceRow, AcceptanceSource, AcceptanceTable},
    statistics::median,
    trials::record::Record,
};

/// Intercept and slopes before anything is measured: an EAGLE-3 head accepts 60% of a chain's
/// tokens, 70% with four branches (SGLang 0.5.16, `docs/notes/servers.md`).
const BEFORE: [f64; 3] = [0.4, 0.2, 0.1];
/// Weights of these before measurements, in measurements: the intercept is known from the first one
/// on.
const WEIGHT: [f64; 3] = [0.01, 0.3, 0.3];

/// The accept lengths of an experiment's shapes: measured ones as measured, others as the measured
/// ones imply. Empty before any speculation was measured.
pub fn acceptance(experiment: &Experiment, history: &[Record]) -> AcceptanceTable {
    let mut lengths: BTreeMap<TreeShape, Vec<f64>> = BTreeMap::new();
    for record in history.iter().filter(|record| record.trial.configuration.table.is_empty()) {
        let Some(figures) = record.measurement().filter(|figures| figures.accept_length > 0.0) else { continue };
        lengths.entry(record.trial.configuration.shape).or_default().push(figures.accept_length);
    }
    let measured: BTreeMap<TreeShape, f64> =
        lengths.into_iter().filter_map(|(shape, all)| Some((shape, median(all)?))).collect();
    let rates: Vec<([f64; 3], f64)> = measured
        .iter()
        .filter(|(shape, _)| !shape.is_off())
        .map(|(shape, length)| (features(*shape), log_odds(rate(shape.num_steps, *length))))
        .collect();
    let source = AcceptanceSource::Imported { source: "the servers' counters".into() };
    if rates.is_empty() {
        return AcceptanceTable { source, rows: Vec::new(), text_drafts: Vec::new() };
    }
    let line = fit(&rates);
    let length = |shape: TreeShape| {
        let guessed = || {
            let odds: f64 = features(shape).iter().zip(line).map(|(one, slope)| one * slope).sum();
            expected(shape.num_steps, 1.0 / (1.0 + (-odds).exp()))
        };
        if shape.is_off() { 1.0 } else { measured.get(&shape).copied().unwrap_or_else(guessed) }
    };
    let mut shapes: Vec<TreeShape> = experiment.entrants.iter().map(|one| one.configuration.shape).collect();
    shapes.sort_unstable();
    shapes.dedup();
    let row =
        |shape: TreeShape| AcceptanceRow { shape, accept_length: length(shape), interval: None, histogram: Vec::new() };
    AcceptanceTable { source, rows: shapes.into_iter().map(row).collect(), text_drafts: Vec::new() }
}

fn features(shape: TreeShape) -> [f64; 3] {
    let spare = (shape.num_draft_tokens as f64 / shape.longest_path() as f64).max(1.0);
    [1.0, (shape.topk.max(1) as f64).ln(), spare.ln()]
}

/// Tokens per round if each of the steps is accepted at this rate after the one before it.
fn expected(steps: usize, rate: f64) -> f64 {
    (0..=steps).map(|step| rate.powi(step as i32)).sum()
}

/// The rate of each step that gives an accept length.
fn rate(steps: usize, length: f64) -> f64 {
    let (mut low, mut high) = (0.01, 0.99);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if expected(steps, middle) < length { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

fn log_odds(rate: f64) -> f64 {
    (rate / (1.0 - rate)).ln()
}

/// Least squares around the line before, each coefficient with its weight.
fn fit(rates: &[([f64; 3], f64)]) -> [f64; 3] {
    let mut line = BEFORE;
    // Coordinate descent: three coefficients, convex, so it converges.
    for _ in 0..200 {
        for at in 0..line.len() {
            let rest =
                |row: &[f64; 3]| (0..3).filter(|other| *other != at).map(|one| row[one] * line[one]).sum::<f64>();
            let pull: f64 = rates.iter().map(|(row, odds)| row[at] * (odds - rest(row))).sum();
            let weight: f64 = rates.iter().map(|(row, _)| row[at] * row[at]).sum();
            line[at] = (pull + WEIGHT[at] * BEFORE[at]) / (weight + WEIGHT[at]);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_gives_the_length_that_it_came_from() {
        for (steps, length) in [(1, 1.5), (3, 2.2), (7, 3.0)] {
            assert!((expected(steps, rate(steps, length)) - length).abs() < 1e-6, "{steps} {length}");
        }
    }

    #[test]
    fn measured_trees_move_the_line() {
        let odds = |shape: &str, rate: f64| (features(shape.parse().expect("a shape")), log_odds(rate));
        let chain = fit(&[odds("3,1,4", 0.5)]);
        assert!((chain[0] - log_odds(0.5)).abs() < 0.02, "{chain:?}");
        let steep = fit(&[odds("3,1,4", 0.5), odds("3,8,4", 0.8)]);
        assert!(steep[1] > 2.0 * chain[1], "{steep:?}");
    }
}

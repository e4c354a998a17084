//! Compares two runs on every configuration and load that both measured.
//!
//! Runs of different fingerprints are never ranked together; here each configuration is compared
//! only with itself.

use std::collections::BTreeSet;

use schemas::sweep::Metric;
use tuner::{
    results::selection::{self, Across, Change, Interval},
    trials::{
        configuration::{Configuration, TrialLoad},
        record::Fingerprint,
    },
};

use crate::{input::Sweep, statistics};

/// Two runs, of which the first is the baseline.
pub struct RunComparison<'a> {
    /// Names of the runs as given by the user.
    pub names: [&'a str; 2],
    /// Differences between their fingerprints: name, first and second value.
    pub differing: Vec<(&'static str, String, String)>,
    /// The metric of the comparison: that of the first run.
    pub metric: Metric,
    /// What both runs measured, by load.
    pub rows: Vec<ComparisonRow>,
    /// Number of configurations and loads that only one of them measured.
    pub unmatched: usize,
}

/// One configuration under one load.
pub struct ComparisonRow {
    /// How requests arrived.
    pub load: TrialLoad,
    /// The configuration.
    pub configuration: Configuration,
    /// Output tokens per second in each run.
    pub throughput: [Option<Interval>; 2],
    /// The objective in the second run relative to the first, higher is better. Unpaired, since the
    /// runs happened at different times.
    pub ratio: Interval,
    /// Number of repeats in the run with fewer.
    pub repeats: usize,
    /// The conclusion.
    pub change: Change,
}

/// The comparison of a load.
pub struct ComparisonSummary {
    /// How requests arrived.
    pub load: TrialLoad,
    /// Median of the ratios.
    pub ratio: f64,
    /// Number of configurations that are better in the second run, worse, not significantly
    /// different, and too noisy.
    pub counts: [usize; 4],
}

/// Compares two sweeps if requested, or if they differ in exactly one respect. `None` unless there
/// are exactly two sweeps with trials.
pub fn compute(sweeps: &[Sweep], requested: bool) -> Option<RunComparison<'_>> {
    let [first, second] = sweeps else { return None };
    let differing = print(first)?.differences(print(second)?);
    // With several differences it would be open which of them is the cause.
    if !requested && differing.len() != 1 {
        return None;
    }
    let metric = first.metric();
    let keys = |sweep: &Sweep| -> BTreeSet<(TrialLoad, Configuration)> {
        sweep.records.iter().map(|record| (record.trial.load, record.trial.configuration.clone())).collect()
    };
    let (left, right) = (keys(first), keys(second));
    let unmatched = left.symmetric_difference(&right).count();
    let across = selection::across(&first.records, &second.records, metric);
    let rows = across.into_iter().map(|(key, across)| row(first, second, key, across)).collect();
    Some(RunComparison { names: [&first.name, &second.name], differing, metric, rows, unmatched })
}

/// Selection has made the comparison.
fn row(
    first: &Sweep,
    second: &Sweep,
    (load, configuration): (TrialLoad, Configuration),
    across: Across,
) -> ComparisonRow {
    let trials = |sweep: &Sweep| -> Vec<f64> {
        let own = sweep.records.iter().filter(|one| one.trial.load == load && one.trial.configuration == configuration);
        own.filter_map(|record| record.measurement()).map(|one| one.compared().output_tokens_per_s).collect()
    };
    let (before, after) = (trials(first), trials(second));
    ComparisonRow {
        load,
        configuration,
        throughput: [statistics::interval(&before), statistics::interval(&after)],
        ratio: across.ratio,
        repeats: before.len().min(after.len()),
        change: across.change,
    }
}

impl RunComparison<'_> {
    /// The summary of each load, in the order of the rows.
    pub fn summaries(&self) -> Vec<ComparisonSummary> {
        let of_load = |rows: &[ComparisonRow]| {
            let count = |wanted: fn(&ComparisonRow) -> bool| rows.iter().filter(|row| wanted(row)).count();
            Some(ComparisonSummary {
                load: rows.first()?.load,
                ratio: statistics::median(rows.iter().map(|row| row.ratio.median).collect())?,
                counts: [
                    count(|row| row.change == Change::Better),
                    count(|row| row.change == Change::Worse),
                    count(|row| row.change == Change::None),
                    count(|row| matches!(row.change, Change::TooNoisy | Change::NoiseUnknown)),
                ],
            })
        };
        self.rows.chunk_by(|a, b| a.load == b.load).filter_map(of_load).collect()
    }
}

impl ComparisonRow {
    /// The conclusion in words.
    pub fn verdict(&self) -> &'static str {
        self.change.words()
    }
}

fn print(sweep: &Sweep) -> Option<&Fingerprint> {
    sweep.records.first().map(|record| &record.fingerprint)
}

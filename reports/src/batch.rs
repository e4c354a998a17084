//! One batch size: its ranking, and beside each entry what its repeats say.

use schemas::{sweep::Metric, tree::TreeShape};
use tuner::{
    record::{Measurement, Outcome, Record, Role, Spread},
    selection::{self, BatchRanking, Interval, Ranked, Verdict},
};

use crate::comparison;

/// Everything about one batch size.
pub struct Batch {
    /// Requests kept running together.
    pub batch_size: usize,
    /// Best first, failed ones last.
    pub entries: Vec<Entry>,
    /// The chosen shape.
    pub chosen: Option<TreeShape>,
    /// What selection says of speculation.
    pub verdict: Verdict,
    /// How much faster the chosen shape is than the engine's default, in terms of the objective and paired by repeat;
    /// nothing if they are the same or one is missing.
    pub over_default: Option<Interval>,
}

/// One configuration at one batch size.
pub struct Entry {
    /// Its place, from one; none for a configuration that failed.
    pub rank: Option<usize>,
    /// What selection says of it.
    pub ranked: Ranked,
    /// Whether it is the chosen one.
    pub chosen: bool,
    /// Parts of a round in ms, where they were measured.
    pub split: Option<Split>,
    /// Entry k − 1 is the share of rounds in which at least k drafts were accepted.
    pub positions: Vec<f64>,
    /// What the repeats say of the noise.
    pub noise: Option<Noise>,
    /// Why single repeats failed, where others were measured.
    pub failures: Vec<String>,
}

/// Parts of a round in ms: medians over repeats of each repeat's median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Drafting.
    pub draft: f64,
    /// The target's pass over the tree.
    pub verify: f64,
    /// Extending the draft's cache.
    pub extend: f64,
}

/// How far the repeats of a configuration lie apart, in output tokens a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Noise {
    /// One figure a repeat, in the order of the repeats.
    pub repeats: Vec<f64>,
    /// (largest − smallest) / median; nothing with a single repeat.
    pub spread: Option<f64>,
}

impl Batch {
    /// A ranking with what the trials of its batch size add to it.
    pub fn new(ranking: BatchRanking, records: &[Record], metric: Metric) -> Self {
        let verdict = ranking.verdict();
        let default = ranking.entries.iter().find(|entry| entry.role == Role::EngineDefault).map(|entry| entry.shape);
        let over_default =
            ranking.chosen.zip(default).filter(|(chosen, default)| chosen != default).and_then(|(chosen, default)| {
                selection::relative(records, ranking.batch_size, chosen, default, metric)
            });
        let BatchRanking { batch_size, entries, chosen } = ranking;
        let mut place = 0;
        let entries = entries.into_iter().map(|ranked| {
            let measured = ranked.output_tokens_per_s.is_some();
            place += usize::from(measured);
            Entry::new(ranked, measured.then_some(place), batch_size, chosen, records)
        });
        Self { batch_size, entries: entries.collect(), chosen, verdict, over_default }
    }

    /// The entry of the chosen shape.
    pub fn winner(&self) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.chosen)
    }

    /// No speculation, if it was measured.
    pub fn baseline(&self) -> Option<&Entry> {
        self.measured().find(|entry| entry.ranked.configuration.shape.is_off())
    }

    /// What the engine would choose by itself, if it was measured.
    pub fn engine_default(&self) -> Option<&Entry> {
        self.measured().find(|entry| entry.ranked.role == Role::EngineDefault)
    }

    /// Entries with figures, best first.
    pub fn measured(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.rank.is_some())
    }

    /// The best that speculates: the winner, unless that is no speculation.
    pub fn best_speculating(&self) -> Option<&Entry> {
        let winner = self.winner().filter(|entry| !entry.ranked.configuration.shape.is_off());
        winner.or_else(|| self.measured().find(|entry| !entry.ranked.configuration.shape.is_off()))
    }
}

impl Entry {
    fn new(
        ranked: Ranked,
        rank: Option<usize>,
        batch_size: usize,
        chosen: Option<TreeShape>,
        records: &[Record],
    ) -> Self {
        let mut trials: Vec<&Record> = records
            .iter()
            .filter(|record| {
                record.trial.batch_size == batch_size && record.trial.configuration.shape == ranked.configuration.shape
            })
            .collect();
        trials.sort_by_key(|record| record.trial.repeat);
        let measurements: Vec<&Measurement> = trials
            .iter()
            .filter_map(|record| match &record.outcome {
                Outcome::Measured(measurement) => Some(&**measurement),
                Outcome::Failed { .. } => None,
            })
            .collect();
        let failures = trials
            .iter()
            .filter_map(|record| match &record.outcome {
                Outcome::Failed { reason } => Some(format!("repeat {}: {reason}", record.trial.repeat + 1)),
                Outcome::Measured(_) => None,
            })
            .collect();
        Self {
            rank,
            chosen: chosen == Some(ranked.configuration.shape) && rank.is_some(),
            split: split(&measurements),
            positions: positions(&ranked.accept_histogram),
            noise: noise(&measurements),
            failures,
            ranked,
        }
    }
}

fn split(measurements: &[&Measurement]) -> Option<Split> {
    let part = |of: fn(&Measurement) -> Option<Spread>| {
        let medians = measurements.iter().filter_map(|measurement| Some(of(measurement)?.median));
        comparison::median(medians.collect())
    };
    Some(Split {
        draft: part(|measurement| measurement.draft_ms)?,
        verify: part(|measurement| measurement.verify_ms)?,
        extend: part(|measurement| measurement.extend_ms)?,
    })
}

fn positions(histogram: &[u64]) -> Vec<f64> {
    let rounds: u64 = histogram.iter().sum();
    if rounds == 0 {
        return Vec::new();
    }
    (1..histogram.len()).map(|place| histogram[place..].iter().sum::<u64>() as f64 / rounds as f64).collect()
}

fn noise(measurements: &[&Measurement]) -> Option<Noise> {
    let repeats: Vec<f64> = measurements.iter().map(|measurement| measurement.output_tokens_per_s).collect();
    let median = comparison::median(repeats.clone())?;
    let smallest = repeats.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = repeats.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let spread = (repeats.len() > 1 && median > 0.0).then(|| (largest - smallest) / median);
    Some(Noise { repeats, spread })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_by_position_counts_rounds_that_reached_it() {
        assert_eq!(positions(&[50, 30, 20]), [0.5, 0.2]);
        assert_eq!(positions(&[7]), [0.0; 0]);
        assert_eq!(positions(&[0, 0, 0]), [0.0; 0]);
    }
}

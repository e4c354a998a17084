//! Counts of the experts that rounds read.
//!
//! Rows of a request choose similar experts, and those of random weights nearly the same ones, so
//! how many a round reads does not follow from its number of rows.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The experts that rounds have read, summed over rounds and layers. Experts that every row passes
/// do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertReads {
    /// Number of rounds.
    pub rounds: usize,
    /// Of the target: an expert counts once per layer and round.
    pub target: LayerReads,
    /// Of the draft: an expert counts once per pass.
    pub draft: LayerReads,
}

/// Experts read, summed over readings of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerReads {
    /// Distinct experts, summed over readings.
    pub read: usize,
    /// All experts of the layers, summed over readings.
    pub of: usize,
    /// Number of readings.
    pub readings: usize,
}

impl LayerReads {
    /// The share of a layer's experts that a reading reads on average; `None` if no layer of
    /// experts was read.
    pub fn share(&self) -> Option<f64> {
        (self.of > 0).then(|| self.read as f64 / self.of as f64)
    }

    /// The mean number of distinct experts of a reading; `None` if no layer of experts was read.
    pub fn mean(&self) -> Option<f64> {
        (self.readings > 0).then(|| self.read as f64 / self.readings as f64)
    }
}

impl std::ops::AddAssign for LayerReads {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.of += other.of;
        self.readings += other.readings;
    }
}

/// The experts of one layer that its rows have chosen, while counting is on.
#[derive(Debug, Default)]
pub(crate) struct ExpertTally(Mutex<Option<Chosen>>);

/// What rows have chosen since the last round.
#[derive(Debug, Default)]
struct Chosen {
    of_round: BTreeSet<u32>,
    of_passes: LayerReads,
}

/// How readings of a layer count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// All passes of a round are one.
    Round,
    /// Each pass is one.
    Pass,
}

impl ExpertTally {
    /// Starts to count from nothing, or stops.
    pub fn set(&self, on: bool) {
        *self.chosen() = on.then(Chosen::default);
    }

    /// Whether it counts.
    pub fn is_on(&self) -> bool {
        self.chosen().is_some()
    }

    /// Adds the experts that the rows of a pass have chosen, of `experts` routed ones; others are
    /// shared ones.
    pub fn add(&self, chosen: impl IntoIterator<Item = u32>, experts: usize) {
        if let Some(counted) = &mut *self.chosen() {
            let of_pass: BTreeSet<u32> = chosen.into_iter().filter(|expert| (*expert as usize) < experts).collect();
            counted.of_passes += LayerReads { read: of_pass.len(), of: experts, readings: 1 };
            counted.of_round.extend(of_pass);
        }
    }

    /// The readings since the last call, which begin a new round.
    pub fn take(&self, reading: Reading) -> LayerReads {
        let Some(Chosen { of_round, of_passes }) = self.chosen().as_mut().map(std::mem::take) else {
            return LayerReads::default();
        };
        let LayerReads { of, readings, .. } = of_passes;
        match (reading, of.checked_div(readings)) {
            (Reading::Round, Some(experts)) => LayerReads { read: of_round.len(), of: experts, readings: 1 },
            _ => of_passes,
        }
    }

    fn chosen(&self) -> MutexGuard<'_, Option<Chosen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counting of a backend's rounds.
#[derive(Debug, Default)]
pub(crate) struct ExpertCount(Option<ExpertReads>);

impl ExpertCount {
    /// Turns counting on or off. Returns what was counted until now.
    pub fn set<'t>(&mut self, on: bool, tallies: impl Iterator<Item = &'t ExpertTally>) -> Option<ExpertReads> {
        tallies.for_each(|tally| tally.set(on));
        std::mem::replace(&mut self.0, on.then(ExpertReads::default))
    }

    /// Whether rounds are counted.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Forgets what passes have read outside of rounds.
    pub fn begin_round<'t>(&self, tallies: impl Iterator<Item = &'t ExpertTally>) {
        if self.is_on() {
            tallies.for_each(|tally| {
                // Reads of prefills since the last round are dropped.
                let _ = tally.take(Reading::Pass);
            });
        }
    }

    /// Adds a round that has run.
    pub fn end_round<'t>(
        &mut self,
        target: impl Iterator<Item = &'t ExpertTally>,
        draft: impl Iterator<Item = &'t ExpertTally>,
    ) {
        if let Some(reads) = &mut self.0 {
            reads.rounds += 1;
            // The target verifies in one or two passes, but a round reads an expert's weights once.
            // The draft's passes follow each other, and each reads its experts again.
            target.for_each(|tally| reads.target += tally.take(Reading::Round));
            draft.for_each(|tally| reads.draft += tally.take(Reading::Pass));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expert_of_the_target_counts_once_per_round_and_of_the_draft_once_per_pass() {
        let (target, draft) = (ExpertTally::default(), ExpertTally::default());
        let mut count = ExpertCount::default();
        let both = || [&target, &draft].into_iter();
        assert_eq!(count.set(true, both()), None);
        // A prompt.
        target.add([1, 2, 3], 8);
        for (rows, other) in [([0, 1, 1], [2, 9, 0]), ([7, 7, 7], [7, 7, 6])] {
            count.begin_round(both());
            for rows in [rows, other] {
                target.add(rows, 8);
                draft.add(rows, 8);
            }
            count.end_round([&target].into_iter(), [&draft].into_iter());
        }
        let reads = count.set(false, both()).expect("it has counted");
        // {0, 1, 2}, then {6, 7}: expert 9 is a shared one.
        assert_eq!(reads.target, LayerReads { read: 5, of: 16, readings: 2 });
        // {0, 1} and {0, 2}, then {7} and {6, 7}.
        assert_eq!(reads.draft, LayerReads { read: 7, of: 32, readings: 4 });
        assert_eq!((reads.rounds, reads.target.mean(), reads.draft.share()), (2, Some(2.5), Some(7.0 / 32.0)));
        target.add([1], 8);
        assert_eq!((target.is_on(), target.take(Reading::Round)), (false, LayerReads::default()));
    }

    #[test]
    fn models_without_experts_have_no_share() {
        let mut count = ExpertCount::default();
        count.set(true, std::iter::empty());
        count.end_round(std::iter::empty(), std::iter::empty());
        let reads = count.set(false, std::iter::empty()).expect("it has counted");
        assert_eq!((reads.rounds, reads.target.share(), reads.draft.mean()), (1, None, None));
    }
}

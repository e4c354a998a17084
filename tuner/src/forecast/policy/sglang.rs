//! SGLang's adaptive tiers (`--speculative-adaptive`), as described for 0.5.23.
//!
//! A slot of candidate steps belongs to a range of padded batch sizes. Each slot keeps a moving
//! average of the accepted drafts of a round (mean over the batch, without bonus token), which
//! starts at its steps − 1 and does not change while the slot runs 0 steps. After the warm-up, at
//! every update, the slot moves down while the average is at most the previous candidate − 0.5 +
//! `down_hysteresis`; if it has not moved down, it moves up while the average is above the current
//! candidate − 0.5 + `up_hysteresis`. From 0 steps it probes the next candidate at every update.
//!
//! The start of a slot that does not have the launch's number of steps, and `ceiling_coeff`, are
//! not part of that description: such a slot starts at its largest candidate below (else its
//! smallest), and no ceiling is simulated.

use schemas::tree::TreeShape;

use super::{Policy, RoundChoice, View};

/// The version whose rule is simulated.
pub const VERSION: &str = "0.5.23";

/// The settings of the rule.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveSettings {
    /// (smallest padded batch, candidate steps), ascending.
    pub slots: Vec<(usize, Vec<usize>)>,
    /// Weight of the newest round in the average.
    pub ema_alpha: f64,
    /// Rounds of a slot before its first interval.
    pub warmup_batches: usize,
    /// Rounds of a slot between updates.
    pub update_interval: usize,
    /// Added to the bound below which a slot moves down.
    pub down_hysteresis: f64,
    /// Added to the bound above which a slot moves up.
    pub up_hysteresis: f64,
}

impl Default for AdaptiveSettings {
    /// The default slots of 0.5.23.
    fn default() -> Self {
        Self {
            slots: vec![(1, vec![1, 3, 5, 7]), (8, vec![0, 1, 3]), (32, vec![0, 1]), (64, vec![0])],
            ema_alpha: 0.2,
            warmup_batches: 10,
            update_interval: 5,
            down_hysteresis: -0.25,
            up_hysteresis: 0.0,
        }
    }
}

/// The state of the rule.
#[derive(Clone, Debug)]
pub struct Adaptive {
    settings: AdaptiveSettings,
    slots: Vec<AdaptiveSlot>,
}

#[derive(Clone, Copy, Debug)]
struct AdaptiveSlot {
    /// Index of the current candidate.
    at: usize,
    average: f64,
    rounds: usize,
}

impl Adaptive {
    /// A server that was launched with this number of steps. Candidates must be ascending; `None`
    /// without slots or with a slot without candidates.
    pub fn new(settings: AdaptiveSettings, start: usize) -> Option<Self> {
        let sound = settings.slots.iter().all(|(_, steps)| !steps.is_empty() && steps.is_sorted());
        if settings.slots.is_empty() || !sound || !settings.slots.is_sorted_by_key(|(batch, _)| *batch) {
            return None;
        }
        let slot = |(_, candidates): &(usize, Vec<usize>)| {
            let at = candidates.iter().rposition(|steps| *steps <= start).unwrap_or(0);
            AdaptiveSlot { at, average: candidates[at] as f64 - 1.0, rounds: 0 }
        };
        Some(Self { slots: settings.slots.iter().map(slot).collect(), settings })
    }

    /// All candidates, ascending.
    pub fn candidates(settings: &AdaptiveSettings) -> Vec<usize> {
        let mut all: Vec<usize> = settings.slots.iter().flat_map(|(_, steps)| steps.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The steps with which a server starts by default: the middle of all candidates.
    pub fn default_start(settings: &AdaptiveSettings) -> usize {
        let all = Self::candidates(settings);
        all.get(all.len() / 2).copied().unwrap_or_default()
    }

    /// The slot with the largest key that is not above a padded batch.
    fn slot(&self, padded: usize) -> usize {
        // A batch below all keys runs in the first slot.
        self.settings.slots.partition_point(|(batch, _)| *batch <= padded).saturating_sub(1)
    }

    /// The steps at a padded batch.
    pub fn steps(&self, padded: usize) -> usize {
        let slot = self.slot(padded);
        self.settings.slots[slot].1[self.slots[slot].at]
    }

    /// Counts a round at a padded batch, with the mean number of accepted drafts.
    pub fn update(&mut self, padded: usize, mean: f64) {
        let number = self.slot(padded);
        let AdaptiveSettings { ema_alpha, warmup_batches, update_interval, .. } = self.settings;
        let (candidates, slot) = (&self.settings.slots[number].1, &mut self.slots[number]);
        if candidates[slot.at] > 0 {
            slot.average += ema_alpha * (mean - slot.average);
        }
        slot.rounds += 1;
        let after = slot.rounds.saturating_sub(warmup_batches);
        if after == 0 || after % update_interval.max(1) != 0 {
            return;
        }
        let last = candidates.len() - 1;
        if candidates[slot.at] == 0 {
            slot.at = (slot.at + 1).min(last);
            return;
        }
        let before = slot.at;
        let bound = |steps: usize, hysteresis: f64| steps as f64 - 0.5 + hysteresis;
        while slot.at > 0 && slot.average <= bound(candidates[slot.at - 1], self.settings.down_hysteresis) {
            slot.at -= 1;
        }
        if slot.at != before {
            return;
        }
        while slot.at < last && slot.average > bound(candidates[slot.at], self.settings.up_hysteresis) {
            slot.at += 1;
        }
    }
}

impl Policy for Adaptive {
    fn choose(&mut self, view: &View<'_>) -> RoundChoice {
        RoundChoice::Shape(TreeShape::chain(self.steps(view.padded)))
    }

    fn learn(&mut self, view: &View<'_>, accepted: &[usize]) {
        let mean = accepted.iter().sum::<usize>() as f64 / accepted.len().max(1) as f64;
        self.update(view.padded, mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps after each of some rounds with the same mean.
    fn after(rule: &mut Adaptive, batch: usize, mean: f64, rounds: usize) -> Vec<usize> {
        let mut steps = Vec::new();
        for _ in 0..rounds {
            rule.update(batch, mean);
            steps.push(rule.steps(batch));
        }
        steps
    }

    #[test]
    fn decisions_follow_the_average_by_hand() {
        let mut rule = Adaptive::new(AdaptiveSettings::default(), 3).expect("slots");
        assert_eq!((Adaptive::candidates(&AdaptiveSettings::default()), rule.steps(1)), (vec![0, 1, 3, 5, 7], 3));
        // The average starts at 2 and after n rounds of mean 3 is 3 − 0.8^n: above 2.5 from the
        // fourth round on. The first update comes after 10 + 5 rounds: 2.965 is above 3 − 0.5, and
        // not above 5 − 0.5.
        assert_eq!(after(&mut rule, 1, 3.0, 15), [[3; 14].as_slice(), &[5]].concat());
        // Five rounds of 5: 5 − 2.035·0.8^5 = 4.333, not above 4.5. Ten: 4.781, up to 7.
        assert_eq!(after(&mut rule, 2, 5.0, 10), [[5; 9].as_slice(), &[7]].concat());
        // Without accepted drafts: 4.781·0.8^5 = 1.567, below 5 − 0.75 and 3 − 0.75, but not 1 −
        // 0.75: down two at once.
        assert_eq!(after(&mut rule, 7, 0.0, 5), [7, 7, 7, 7, 3]);
        // 1.567·0.8^10 = 0.168 is at most 0.25.
        assert_eq!(after(&mut rule, 7, 0.0, 10), [[3; 9].as_slice(), &[1]].concat());
    }

    #[test]
    fn slots_are_apart_and_no_speculation_probes_upward() {
        let mut rule = Adaptive::new(AdaptiveSettings::default(), 3).expect("slots");
        assert_eq!([rule.steps(1), rule.steps(8), rule.steps(31), rule.steps(32), rule.steps(64)], [3, 3, 3, 1, 0]);
        // One candidate: nothing to probe.
        assert_eq!(after(&mut rule, 64, 0.0, 20), [0; 20]);
        assert_eq!(rule.steps(8), 3, "another slot has not moved");
        // With a slot that starts at 0, each update probes the next candidate, whose average has
        // not changed: −1.
        let settings = AdaptiveSettings { down_hysteresis: 0.0, ..AdaptiveSettings::default() };
        let mut rule = Adaptive::new(settings, 0).expect("slots");
        assert_eq!(after(&mut rule, 8, 0.0, 15)[13..], [0, 1]);
        // −1·0.8^5 = −0.328 is above 0 − 0.5, and not above 1 − 0.5.
        assert_eq!(after(&mut rule, 8, 0.0, 5), [1; 5]);
        assert!(
            Adaptive::new(AdaptiveSettings { slots: vec![(1, vec![])], ..AdaptiveSettings::default() }, 3).is_none()
        );
        assert_eq!(Adaptive::default_start(&AdaptiveSettings::default()), 3);
    }
}

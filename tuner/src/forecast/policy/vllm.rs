//! vLLM's schedule of drafts by batch (`num_speculative_tokens_per_batch_size`).
//!
//! The number of drafts follows from the number of scheduled requests, those in prefill included.
//! Ranges may leave gaps, in which the previous range's number is used; the last one's is used
//! beyond it. A step verifies the drafts that the step before has proposed, so their number is that
//! of its requests. The rule is that of 0.33, which is the same since 0.24; `decisions.rs` compares
//! it with the engine's own function.

use schemas::tree::TreeShape;

use super::{Policy, RoundChoice, View};

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// (first batch, last batch, drafts), ascending.
    ranges: Vec<(usize, usize, usize)>,
    /// Drafts that the last step has proposed.
    proposed: Option<usize>,
}

impl Schedule {
    /// A schedule; `None` if vLLM refuses it: without ranges, if they overlap, or if the first one
    /// does not start at 1.
    pub fn new(mut ranges: Vec<(usize, usize, usize)>) -> Option<Self> {
        ranges.sort_unstable();
        let apart = ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
        let ordered = ranges.iter().all(|(first, last, _)| first <= last);
        let starts = ranges.first().is_some_and(|(first, ..)| *first == 1);
        (starts && apart && ordered).then_some(Self { ranges, proposed: None })
    }

    /// The number of drafts for this many scheduled requests.
    pub fn drafts(&self, scheduled: usize) -> usize {
        let at = self.ranges.partition_point(|(first, ..)| *first <= scheduled);
        self.ranges[at.saturating_sub(1)].2
    }
}

impl Policy for Schedule {
    fn choose(&mut self, view: &View<'_>) -> RoundChoice {
        let proposes = self.drafts(view.batch + view.prefilling);
        let verified = self.proposed.replace(proposes).unwrap_or(proposes);
        RoundChoice::Shape(TreeShape::chain(verified))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_carry_the_previous_number_and_prefills_count_for_the_next_step() {
        let mut schedule = Schedule::new(vec![(17, 32, 1), (1, 8, 5), (64, 128, 0)]).expect("ranges");
        let drafts = [1, 2, 8, 9, 16, 17, 32, 40, 63, 64, 128, 500].map(|batch| schedule.drafts(batch));
        assert_eq!(drafts, [5, 5, 5, 5, 5, 1, 1, 1, 1, 0, 0, 0]);
        let view =
            View { requests: &[], batch: 16, padded: 16, context: 0.0, prefilling: 0, completing: 0, prefilled: 0 };
        let mut chosen = |view: View<'_>| schedule.choose(&view);
        let chain = |steps| RoundChoice::Shape(TreeShape::chain(steps));
        assert_eq!(chosen(view), chain(5));
        assert_eq!(chosen(View { prefilling: 1, ..view }), chain(5), "proposed for 16 requests");
        assert_eq!(chosen(view), chain(1), "proposed for 17");
        assert_eq!(chosen(view), chain(5));
        for refused in [vec![(1, 8, 3), (8, 9, 1)], vec![(2, 8, 5)], vec![]] {
            assert_eq!(Schedule::new(refused), None);
        }
    }
}

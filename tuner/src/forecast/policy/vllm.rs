//! vLLM's schedule of drafts by batch (`num_speculative_tokens_per_batch_size`), as described for
//! 0.33.0.
//!
//! The number of drafts follows from the number of scheduled requests, those in prefill included.
//! Ranges may leave gaps, in which the previous range's number is used; below the first range it is
//! the first one's.

use schemas::tree::TreeShape;

use super::{Policy, RoundChoice, View};

/// The version whose rules are simulated.
pub const VERSION: &str = "0.33.0";

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// (first batch, last batch, drafts), ascending.
    ranges: Vec<(usize, usize, usize)>,
}

impl Schedule {
    /// A schedule; `None` without ranges, or if they overlap.
    pub fn new(mut ranges: Vec<(usize, usize, usize)>) -> Option<Self> {
        ranges.sort_unstable();
        let apart = ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
        let ordered = ranges.iter().all(|(first, last, _)| first <= last);
        (!ranges.is_empty() && apart && ordered).then_some(Self { ranges })
    }

    /// The number of drafts for this many scheduled requests.
    pub fn drafts(&self, scheduled: usize) -> usize {
        let at = self.ranges.partition_point(|(first, ..)| *first <= scheduled);
        self.ranges[at.saturating_sub(1)].2
    }
}

impl Policy for Schedule {
    fn choose(&mut self, view: &View<'_>) -> RoundChoice {
        RoundChoice::Shape(TreeShape::chain(self.drafts(view.batch + view.prefilling)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_carry_the_previous_number_and_prefills_count() {
        let mut schedule = Schedule::new(vec![(17, 32, 1), (2, 8, 5), (64, 128, 0)]).expect("ranges");
        let drafts = [1, 2, 8, 9, 16, 17, 32, 40, 63, 64, 128, 500].map(|batch| schedule.drafts(batch));
        assert_eq!(drafts, [5, 5, 5, 5, 5, 1, 1, 1, 1, 0, 0, 0]);
        let view = View { requests: &[], batch: 16, padded: 16, context: 0.0, prefilling: 0, prefilled: 0 };
        assert_eq!(schedule.choose(&view), RoundChoice::Shape(TreeShape::chain(5)));
        let with_prompt = View { prefilling: 1, ..view };
        assert_eq!(schedule.choose(&with_prompt), RoundChoice::Shape(TreeShape::chain(1)));
        assert_eq!(Schedule::new(vec![(1, 8, 3), (8, 9, 1)]), None);
    }
}

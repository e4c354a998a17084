//! The candidates of a shard.

use crate::{
    space::Candidate,
    trials::{record::CandidateRole, shard::Shard},
};

impl Shard {
    /// Keeps every `count`-th candidate. Baselines stay in every shard: comparisons are paired on
    /// one machine.
    pub fn select(self, entrants: &[Candidate]) -> Vec<Candidate> {
        let mut candidates = 0;
        let mut keep = |one: &Candidate| {
            candidates += usize::from(one.role == CandidateRole::Candidate);
            one.role != CandidateRole::Candidate || candidates % self.count == self.index % self.count
        };
        entrants.iter().filter(|one| keep(one)).cloned().collect()
    }
}

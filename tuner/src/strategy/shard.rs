//! The candidates of a shard.

use crate::{
    space::Candidate,
    trials::{record::Role, shard::Shard},
};

impl Shard {
    /// Keeps every `count`-th candidate. Baselines stay in every shard: comparisons are paired on
    /// one machine.
    pub fn of(self, entrants: &[Candidate]) -> Vec<Candidate> {
        let mut candidates = 0;
        let mut keep = |one: &Candidate| {
            candidates += usize::from(one.role == Role::Candidate);
            one.role != Role::Candidate || candidates % self.count == self.index % self.count
        };
        entrants.iter().filter(|one| keep(one)).cloned().collect()
    }
}

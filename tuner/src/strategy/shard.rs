//! The candidates of a shard.

use crate::{record::Role, shard::Shard, space::Entrant};

impl Shard {
    /// Keeps every `count`-th candidate. Baselines stay in every shard: comparisons are paired on one machine.
    pub fn of(self, entrants: &[Entrant]) -> Vec<Entrant> {
        let mut candidates = 0;
        let mut keep = |one: &Entrant| {
            candidates += usize::from(one.role == Role::Candidate);
            one.role != Role::Candidate || candidates % self.count == self.index % self.count
        };
        entrants.iter().filter(|one| keep(one)).cloned().collect()
    }
}

//! What a draft proposes after a root: the pool from which the tree of every shape of one `topk` is chosen.
//!
//! The pool after some steps is a prefix of the pool after more steps, and does not depend on how many of its proposals a
//! tree keeps. So one expansion yields every smaller tree.

/// A token that a beam proposes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// The token.
    pub token: u32,
    /// The sum of log-probabilities from the root: at most that of the parent, never NaN.
    pub score: f32,
    /// The place in the pool of the proposal that it continues; `None` after the root.
    pub parent: Option<usize>,
}

/// Proposals in the order of their steps, within a step beam by beam.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    proposals: Vec<Proposal>,
    /// How many there are up to the end of each step.
    ends: Vec<usize>,
}

impl Pool {
    /// Ends a step with what its beams propose.
    pub fn push_step(&mut self, proposals: impl IntoIterator<Item = Proposal>) {
        self.proposals.extend(proposals);
        self.ends.push(self.proposals.len());
    }

    /// All proposals.
    pub fn all(&self) -> &[Proposal] {
        &self.proposals
    }

    /// Steps that were run.
    pub fn steps(&self) -> usize {
        self.ends.len()
    }

    /// The pool of at most this many steps.
    pub fn within(&self, steps: usize) -> &[Proposal] {
        let last = steps.min(self.ends.len());
        let end = last.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or_default();
        &self.proposals[..end]
    }
}

/// Places of the best proposals, best first, ties by place.
pub fn best(pool: &[Proposal], count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..pool.len()).collect();
    // Scores are never NaN; a stable sort keeps ties in place.
    places.sort_by(|a, b| pool[*b].score.total_cmp(&pool[*a].score));
    places.truncate(count);
    places
}

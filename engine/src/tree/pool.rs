//! The draft's proposals after a root: the pool from which the tree of every shape with the same `topk` is chosen.
//!
//! The pool after some steps is a prefix of the pool after more steps, and does not depend on how many of its proposals
//! a tree keeps. So one expansion yields every smaller tree.

/// A token that a beam proposes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// The token.
    pub token: u32,
    /// The sum of log-probabilities from the root: at most that of the parent, never NaN.
    pub score: f32,
    /// The place in the pool of the proposal that it continues; `None` for a child of the root.
    pub parent: Option<usize>,
}

/// Proposals ordered by step, and within a step by beam.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    proposals: Vec<Proposal>,
    /// Number of proposals up to the end of each step.
    ends: Vec<usize>,
}

impl Pool {
    /// Adds a step with the proposals of its beams.
    pub fn push_step(&mut self, proposals: impl IntoIterator<Item = Proposal>) {
        self.proposals.extend(proposals);
        self.ends.push(self.proposals.len());
    }

    /// All proposals.
    pub fn all(&self) -> &[Proposal] {
        &self.proposals
    }

    /// Number of steps that were run.
    pub fn steps(&self) -> usize {
        self.ends.len()
    }

    /// The pool after at most this many steps.
    pub fn within(&self, steps: usize) -> &[Proposal] {
        let last = steps.min(self.ends.len());
        let end = last.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or_default();
        &self.proposals[..end]
    }
}

/// Places of the best proposals, best first; ties are ordered by place.
pub fn best(pool: &[Proposal], count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..pool.len()).collect();
    // Scores are never NaN; a stable sort keeps ties in the order of their places.
    places.sort_by(|a, b| pool[*b].score.total_cmp(&pool[*a].score));
    places.truncate(count);
    places
}

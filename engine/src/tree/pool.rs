//! The draft's proposals after a root: the pool from which trees are chosen, whatever filled it.
//!
//! What a shape's expansion proposes is a part of the pool of a deeper or wider shape of the same
//! family ([`NodeSource::family`](schemas::tree::NodeSource::family)), and does not depend on how
//! many proposals a tree keeps. So one expansion yields every smaller tree.

use schemas::tree::TreeShape;

use super::draft_tree::DraftTree;

/// A token that a draft proposes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// The token.
    pub token: u32,
    /// The sum of log-probabilities from the root: at most that of the parent, never NaN.
    pub score: f32,
    /// The place in the pool of the proposal that it continues; `None` for a child of the root.
    pub parent: Option<usize>,
    /// Number of better proposals of the same parent.
    pub rank: usize,
}

/// Proposals ordered by step, and within a step by parent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    proposals: Vec<Proposal>,
    /// Number of proposals up to the end of each step.
    ends: Vec<usize>,
    /// A confidence head's log-odds for the proposals of [`best_chain`](Self::best_chain); empty if
    /// there is no such head, or no trace wants them.
    confidence: Vec<f32>,
}

impl Proposal {
    /// The `topk` best tokens after a proposal, or after the root, from their log-probabilities,
    /// best first.
    pub fn children(parent: Option<(usize, f32)>, topk: usize, best: &[(u32, f32)]) -> impl Iterator<Item = Self> {
        let (place, above) = parent.map_or((None, 0.0), |(place, score)| (Some(place), score));
        best.iter().take(topk).enumerate().map(move |(rank, (token, score))| Self {
            token: *token,
            score: above + sane(*score),
            parent: place,
            rank,
        })
    }
}

/// Log-probabilities are at most 0; NaN counts as impossible. Adding 0 turns −0 into +0:
/// `total_cmp` distinguishes them, and a certain child (+0) would rank above its certain parent
/// (−0).
fn sane(score: f32) -> f32 {
    if score.is_nan() { f32::NEG_INFINITY } else { score.min(0.0) + 0.0 }
}

impl Pool {
    /// Adds a step with the proposals of its parents.
    pub fn push_step(&mut self, proposals: impl IntoIterator<Item = Proposal>) {
        self.proposals.extend(proposals);
        self.ends.push(self.proposals.len());
    }

    /// All proposals.
    pub fn all(&self) -> &[Proposal] {
        &self.proposals
    }

    /// Places of the best proposal after the root, of the best one after that, and so on.
    pub fn best_chain(&self) -> Vec<usize> {
        let mut chain: Vec<usize> = Vec::new();
        for (at, Proposal { parent, rank, .. }) in self.proposals.iter().enumerate() {
            if *rank == 0 && *parent == chain.last().copied() {
                chain.push(at);
            }
        }
        chain
    }

    /// The log-odds of a confidence head that the target takes each proposal of the best chain,
    /// given that it takes those before; empty if they are not known.
    pub fn confidence(&self) -> &[f32] {
        &self.confidence
    }

    /// Adds what a confidence head says of the best chain.
    pub fn set_confidence(&mut self, log_odds: Vec<f32>) {
        self.confidence = log_odds;
    }

    /// Number of steps that were run.
    pub fn steps(&self) -> usize {
        self.ends.len()
    }

    /// Places of the proposals of the last step.
    pub fn last_step(&self) -> std::ops::Range<usize> {
        let before = self.ends.len().checked_sub(2).map_or(0, |at| self.ends[at]);
        before..self.proposals.len()
    }

    /// Places of the proposals that a shape's own expansion makes, ascending.
    pub fn places_for(&self, shape: TreeShape) -> Vec<usize> {
        let last = shape.num_steps.min(self.ends.len());
        let end = last.checked_sub(1).map_or(0, |last| self.ends[last]);
        let mut within = vec![false; end];
        for at in 0..end {
            let Proposal { parent, rank, .. } = self.proposals[at];
            // Parents come before their children, so one pass in order suffices.
            within[at] = rank < shape.topk && parent.is_none_or(|parent| within[parent]);
        }
        (0..end).filter(|at| within[*at]).collect()
    }

    /// Places of the drafts of a shape's tree, ascending. Since a proposal scores at most as high
    /// as its parent and comes after it, its parent is always kept with it.
    pub fn kept(&self, shape: TreeShape) -> Vec<usize> {
        let mut kept = best(&self.proposals, self.places_for(shape), shape.drafts());
        kept.sort_unstable();
        kept
    }

    /// A shape's tree below `root`, of all its nodes. It has fewer than the shape only if the
    /// draft's vocabulary is smaller than `topk`.
    pub fn tree(&self, shape: TreeShape, root: u32) -> DraftTree {
        self.tree_of(&self.kept(shape), root)
    }

    /// The tree of these places, which are ascending and contain their parents, below `root`.
    pub fn tree_of(&self, places: &[usize], root: u32) -> DraftTree {
        let mut tree = DraftTree::root(root);
        let mut nodes = vec![None; self.proposals.len()];
        for at in places.iter().copied() {
            let Proposal { token, parent, .. } = self.proposals[at];
            let Some(parent) = parent.map_or(Some(0), |parent| nodes[parent]) else { continue };
            nodes[at] = Some(tree.add(parent, token));
        }
        tree
    }
}

/// The best of some places of a pool, best first; ties are ordered by place.
pub fn best(pool: &[Proposal], mut places: Vec<usize>, count: usize) -> Vec<usize> {
    // Scores are never NaN; a stable sort keeps ties in the order of their places.
    places.sort_by(|a, b| pool[*b].score.total_cmp(&pool[*a].score));
    places.truncate(count);
    places
}

//! How large passes and rounds are.

use kernels::launch::{Kernels, most_parents};
use schemas::tree::{NodeSource, TreeShape};

use crate::backend::{MAX_PENDING_DRAFT, inner_rows};

/// Maximum sizes of a pass and its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceShape {
    /// Rows of a pass: a piece of a prompt, the nodes of a verified batch, its beams, or its draft
    /// extension.
    pub rows: usize,
    /// Requests of a round.
    pub batch: usize,
    /// Number of draft steps.
    pub steps: usize,
    /// Pool entries per request.
    pub pool: usize,
    /// Draft cache rows per request for beams or a block.
    pub scratch: usize,
    /// Proposals per ranked row.
    pub topk: usize,
    /// Rows per request that are ranked at once: beams, or of a block all rows, or the nodes of a
    /// level.
    pub ranked: usize,
    /// Rows of a block; 0 for beams.
    pub block: usize,
    /// Pairs of words per request for drafts that are looked up: the nodes of a tree, or one
    /// more than the tokens of a chain.
    pub given: usize,
    /// Rows of all trees of a round.
    pub verified: usize,
    /// Rows of a budget; 0 without one.
    pub budget: usize,
    /// Rows per request that attend to more than a range of positions: the nodes of a tree, or the
    /// beams of a step.
    pub branches: usize,
}

impl WorkspaceShape {
    /// The sizes for rounds of a shape at a batch size.
    pub fn of_round(source: NodeSource, shape: TreeShape, batch: usize) -> Self {
        let TreeShape { num_steps: steps, topk, num_draft_tokens: nodes, .. } = shape;
        let drafted = source.passes(shape).1;
        // The extension after a round has a row for each accepted token and one for the bonus
        // token.
        let widest = nodes.max(steps + 1).max(drafted);
        let levels = (0..steps).map(|depth| most_parents(depth, topk, nodes));
        let (pool, ranked, block, branches) = match source {
            NodeSource::Beams => (shape.pool_size(), topk, 0, nodes.max(topk)),
            NodeSource::Block(_) => (1, levels.max().unwrap_or(1).max(steps), drafted, nodes),
            NodeSource::Text(_) => (0, 0, 0, nodes),
        };
        Self {
            rows: batch * widest,
            verified: batch * nodes,
            budget: if shape.row_budget.is_some() { shape.verified_rows(batch) } else { 0 },
            batch,
            steps,
            pool: pool.max(1),
            scratch: source.scratch_rows(shape),
            topk,
            ranked,
            block,
            given: if matches!(source, NodeSource::Text(_)) { nodes } else { steps + 1 },
            branches: if shape.is_off() { 0 } else { branches },
        }
    }

    /// The sizes for rounds of several shapes at a batch size.
    pub fn of_rounds(source: NodeSource, shapes: &[TreeShape], batch: usize) -> Self {
        let rounds = shapes.iter().map(|shape| Self::of_round(source, *shape, batch));
        let rounds = rounds.fold(Self::default(), Self::and);
        // The draft processes the tokens of rounds without speculation in separate passes.
        let speculates = |shape: &TreeShape| !shape.is_off();
        let leaves = shapes.iter().any(speculates) && !shapes.iter().all(speculates);
        Self { rows: rounds.rows.max(if leaves { MAX_PENDING_DRAFT } else { 0 }), ..rounds }
    }

    /// The sizes for pieces of prompts.
    pub fn of_prefill(rows: usize) -> Self {
        Self { rows, batch: 1, topk: 1, ranked: 1, pool: 1, ..Self::default() }
    }

    /// The sizes that cover both.
    pub fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows.max(other.rows),
            verified: self.verified.max(other.verified),
            budget: self.budget.max(other.budget),
            batch: self.batch.max(other.batch),
            steps: self.steps.max(other.steps),
            pool: self.pool.max(other.pool),
            scratch: self.scratch.max(other.scratch),
            topk: self.topk.max(other.topk),
            ranked: self.ranked.max(other.ranked),
            block: self.block.max(other.block),
            given: self.given.max(other.given),
            branches: self.branches.max(other.branches),
        }
    }

    /// Maximum number of rows of a pass over some nodes of the trees: inner ones, or a budget's.
    pub fn picked_rows(self) -> usize {
        inner_rows(self.rows).max(self.budget)
    }

    /// Whether these sizes cover the other ones.
    pub fn holds(self, other: Self) -> bool {
        // Compared part by part: a shape that is larger in one size and smaller in another does not
        // fit.
        self.and(other) == self
    }

    /// Maximum number of tokens that a round or the ends of prompts produce.
    pub fn described_rows(self) -> usize {
        self.rows.max(self.batch * (self.steps + 1))
    }

    pub(super) fn own_stride(self) -> usize {
        self.steps + 1
    }

    /// Words of the mask over the own rows of a request.
    pub(super) fn own_mask_words(self) -> usize {
        Kernels::own_mask_words(self.branches, self.own_stride()).max(1)
    }
}

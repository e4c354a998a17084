//! What a round runs: policies of this engine and of others.
//!
//! A policy sees the batch, the contexts and past acceptance, never how long a request will be.

pub mod budget;
pub mod calibration;
#[cfg(test)]
mod decisions;
pub mod likeliest;
pub mod sglang;
pub mod verification;
pub mod vllm;

use engine::replay::trace::Nodes;
use schemas::tree::TreeShape;

use crate::prediction::latency::filling::Filling;

/// What a policy sees before a round.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Running requests whose prompts are prefilled.
    pub requests: &'a [usize],
    /// Slots that run in the round, those of ended requests included.
    pub batch: usize,
    /// `batch`, padded to the next capture size.
    pub padded: usize,
    /// Mean length of their sequences in tokens, by the engine's own rule
    /// ([`engine::options::mean_context`]): whole tokens, as far as the host knows the outputs.
    pub context: f64,
    /// Requests whose prompts are prefilled in the same step.
    pub prefilling: usize,
    /// Those of them whose prompts end in this step.
    pub completing: usize,
    /// Tokens of these prompts.
    pub prefilled: usize,
}

impl View<'_> {
    /// Its slots in their graph.
    pub fn filling(&self) -> Filling {
        Filling { places: self.padded, requests: self.batch as f64, context: self.context }
    }
}

/// What a round runs.
#[derive(Clone, Debug, PartialEq)]
pub enum RoundChoice {
    /// The same tree for every request, or its budget of rows for all.
    Shape(TreeShape),
    /// Draft trees up to a limit, and verify this many drafts of all requests together:
    /// [`Policy::allocate`] says which.
    Rows {
        /// The limit of each tree.
        limit: TreeShape,
        /// Number of verified drafts, without the roots.
        drafts: usize,
    },
}

/// Decides what rounds run.
pub trait Policy {
    /// Decides before the draft runs.
    fn choose(&mut self, view: &View<'_>) -> RoundChoice;

    /// Chooses which drafts of each request are verified: `drafts` nodes of all together, each with
    /// its parents. Called after a choice of [`RoundChoice::Rows`], with the nodes of each request
    /// of the view.
    fn allocate(&mut self, view: &View<'_>, nodes: &[&Nodes], drafts: usize) -> Vec<Vec<usize>> {
        let (_, _) = (view, drafts);
        vec![Vec::new(); nodes.len()]
    }

    /// Whether any round may speculate, so that the draft reads prompts too.
    fn speculates(&self) -> bool {
        true
    }

    /// What runs instead of a tree for a request that limits its drafts.
    fn within(&self, shape: TreeShape, most_drafts: Option<usize>) -> TreeShape {
        let is_within = most_drafts.is_none_or(|most| shape.num_draft_tokens <= most.saturating_add(1));
        if is_within { shape } else { TreeShape::OFF }
    }

    /// Learns what a round accepted: drafts of each request of the view, without bonus tokens.
    fn learn(&mut self, view: &View<'_>, accepted: &[usize]) {
        let (_, _) = (view, accepted);
    }
}

/// A table by batch and context. One tree for all rounds is a table of one row.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyTable {
    /// Ascending by batch, then by context.
    rows: Vec<PolicyTableRow>,
}

/// A row of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyTableRow {
    /// The largest batch for which it holds.
    pub batch: usize,
    /// The largest mean context for which it holds, in tokens.
    pub context: f64,
    /// What runs there.
    pub shape: TreeShape,
}

impl PolicyTable {
    /// The same tree for all rounds.
    pub fn fixed(shape: TreeShape) -> Self {
        Self { rows: vec![PolicyTableRow { batch: usize::MAX, context: f64::INFINITY, shape }] }
    }

    /// A table; `None` without rows.
    pub fn new(mut rows: Vec<PolicyTableRow>) -> Option<Self> {
        rows.sort_by(|a, b| a.batch.cmp(&b.batch).then(a.context.total_cmp(&b.context)));
        (!rows.is_empty()).then_some(Self { rows })
    }

    /// The rows, ascending by batch, then by context.
    pub fn rows(&self) -> &[PolicyTableRow] {
        &self.rows
    }

    /// What runs at a batch and a mean context: the first row for that batch (else for the largest)
    /// that holds the context, else the last one for that batch.
    pub fn shape(&self, batch: usize, context: f64) -> TreeShape {
        let last = self.rows[self.rows.len() - 1];
        let bound = self.rows.iter().find(|row| row.batch >= batch).map_or(last.batch, |row| row.batch);
        let mut of_batch = self.rows.iter().filter(|row| row.batch == bound);
        let fallback = of_batch.clone().next_back().map_or(last.shape, |row| row.shape);
        of_batch.find(|row| row.context >= context).map_or(fallback, |row| row.shape)
    }
}

impl Policy for PolicyTable {
    fn choose(&mut self, view: &View<'_>) -> RoundChoice {
        RoundChoice::Shape(self.shape(view.batch, view.context))
    }

    /// The largest tree of the table within both, as in the engine
    /// ([`engine::ShapePolicy::within`]).
    fn within(&self, shape: TreeShape, most_drafts: Option<usize>) -> TreeShape {
        let drafts = |shape: &TreeShape| shape.drafts();
        let Some(most) = most_drafts.filter(|most| *most < drafts(&shape)) else { return shape };
        let fitting = self.rows.iter().map(|row| row.shape).filter(|shape| drafts(shape) <= most);
        fitting.max_by_key(|shape| (shape.num_draft_tokens, shape.num_steps)).unwrap_or(TreeShape::OFF)
    }

    fn speculates(&self) -> bool {
        self.rows.iter().any(|row| !row.shape.is_off())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_by_batch_and_then_by_context() {
        let row = |batch, context, steps| PolicyTableRow { batch, context, shape: TreeShape::chain(steps) };
        let table =
            PolicyTable::new(vec![row(8, f64::INFINITY, 2), row(2, 1000.0, 0), row(2, 9000.0, 5), row(8, 500.0, 1)]);
        let table = table.expect("rows");
        let steps = |batch, context| table.shape(batch, context).num_steps;
        assert_eq!([steps(1, 10.0), steps(2, 1000.0), steps(2, 1001.0), steps(2, 99_999.0)], [0, 0, 5, 5]);
        assert_eq!([steps(3, 500.0), steps(8, 501.0), steps(99, 1.0), steps(99, 1e9)], [1, 2, 1, 2]);
        assert_eq!(PolicyTable::new(Vec::new()), None);
    }
}

//! What fills the pools of draft trees. A round, a prefill and a replay know a draft only by this.

use std::fmt::Debug;

use schemas::tree::{NodeSource, TreeShape};

use super::{attention::Cache, passes::PassInput, target::PassOutput};
use crate::{
    backend::{Pool, RequiredTree, expert_reads::ExpertTally},
    spec::DraftSpec,
};

/// A loaded draft.
pub trait CpuDraft: Debug + Send + Sync {
    /// The description that it was built from.
    fn spec(&self) -> DraftSpec;

    /// What it makes of a shape.
    fn nodes(&self) -> NodeSource;

    /// The target's layers before which it reads the residual stream; see
    /// [`forward`](super::target::Target::forward).
    fn captured(&self) -> &[usize];

    /// Empty caches, one per layer.
    fn caches(&self, rows: usize) -> Vec<Cache>;

    /// Counts of its layers of experts.
    fn tallies(&self) -> Vec<&ExpertTally> {
        Vec::new()
    }

    /// Number of values that it keeps of a sequence in addition to its caches: its state after the
    /// last position.
    fn state_width(&self) -> usize;

    /// Number of positions by which its cache is ahead of a head's: see [`DraftSpec::ahead`].
    fn ahead(&self) -> usize {
        self.spec().ahead()
    }

    /// Processes positions of sequences: the target's output at them, and in `stack` the token
    /// after each, at the position of its cache row. Returns the state after each of them,
    /// `[rows, state width]`.
    fn read(&self, pass: &PassOutput, stack: &PassInput<'_>, caches: &mut [Cache]) -> Vec<f32>;

    /// The pool after each root, from which the trees of all of these shapes can be chosen; they
    /// are of one family ([`NodeSource::family`]). Rows of a round are written to the caches from
    /// `scratch` on.
    fn pools(&self, caches: &mut [Cache], scratch: usize, shapes: &[TreeShape], roots: &[Root<'_>]) -> Vec<Pool>;
}

/// The start of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Root<'a> {
    /// The last token, which the target has not processed.
    pub token: u32,
    /// The draft's cache rows of all tokens that it has processed: as many as there are positions
    /// before the root, and the root's own for a draft whose cache is ahead.
    pub prefix: &'a [u32],
    /// The draft's state after the last of them.
    pub state: &'a [f32],
    /// The text after the root, if it is known, and what the pool must answer about it.
    pub followed: Option<(&'a [u32], RequiredTree)>,
}

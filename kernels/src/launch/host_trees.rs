//! The rows of the verify pass of trees that the host has drafted, or that are played: `host_trees`
//! and `play_trees` of `cuda/tree.cu`.

use super::{
    Kernels, MOST_NODES, OwnRows, PassRows, Sequences, TreeNodes, VerifyRows, address, check_ints, grid, int,
    tree::FILE,
};
use crate::device::{DeviceError, Slice};

/// Trees that the host has drafted for a batch, or that are played.
#[derive(Clone, Copy, Debug)]
pub struct HostTrees<'a> {
    /// Requests, padding included.
    pub batch: usize,
    /// Maximum depth of a node, at least 1.
    pub steps: usize,
    /// int32 `[batch]`.
    pub batch_slot: Slice<'a>,
    /// The nodes' tokens, int32 `[batch, nodes]`. The token of the root, node 0, is not used.
    pub token: Slice<'a>,
    /// The nodes' parents, int32 `[batch, nodes]`. A node whose parent does not come before it does
    /// not exist.
    pub parent: Slice<'a>,
    /// The log-probabilities of the paths to the nodes, float32 `[batch, nodes]`; `None` for minus
    /// their depths.
    pub score: Option<Slice<'a>>,
    /// Output: the own rows of the verify pass, listed once per request, as [`Kernels::gather_own`]
    /// does.
    pub own: Option<OwnRows<'a>>,
}

/// Trees in the form that texts have in a trace, for all positions of all texts.
#[derive(Clone, Copy, Debug)]
pub struct PlayedTrees<'a> {
    /// Parents, int32 `[positions, nodes]`; −1 for roots and nodes that do not exist.
    pub parent: Slice<'a>,
    /// Log-probabilities of the paths, float32 `[positions, nodes]`.
    pub score: Slice<'a>,
    /// Where each slot is in them, as in [`Played`](super::Played); trusted to be within.
    pub places: Slice<'a>,
}

/// The output of [`Kernels::play_trees`], `[batch, nodes]` each, for [`HostTrees`].
#[derive(Clone, Copy, Debug)]
pub struct GivenTrees<'a> {
    /// int32.
    pub token: Slice<'a>,
    /// int32.
    pub parent: Slice<'a>,
    /// float32.
    pub score: Slice<'a>,
}

impl Kernels {
    /// Gives the trees of a batch the form of the texts that are played, as far as requests have
    /// one. Slots of the batch are trusted to exist.
    ///
    /// # Errors
    /// When a buffer is too short, the trees are too large, or the device fails.
    pub fn play_trees(
        &self,
        to: GivenTrees<'_>,
        played: PlayedTrees<'_>,
        (batch, batch_slot): (usize, Slice<'_>),
        tree: TreeNodes<'_>,
        sequences: Sequences<'_>,
    ) -> Result<(), DeviceError> {
        sequences.check()?;
        tree.check(batch)?;
        check_ints(batch_slot, batch)?;
        check_ints(played.places, sequences.slots * 4)?;
        for values in [to.token, to.parent, to.score, tree.score] {
            check_ints(values, batch * tree.nodes)?;
        }
        [played.parent, played.score].into_iter().try_for_each(|values| check_ints(values, tree.nodes))?;
        let kernel = self.device.kernel(FILE, &[], "play_trees")?;
        let mut arguments = [to.token, to.parent, to.score, tree.token, tree.parent, tree.score].map(address).to_vec();
        arguments.extend([played.parent, played.score, played.places, sequences.length, batch_slot].map(address));
        arguments.extend([tree.nodes, sequences.dummy()].map(int));
        // SAFETY: lengths are checked above; slots of the batch, and that their places are within
        // the texts, are the caller's promise.
        unsafe { self.device.launch(&kernel, grid([batch, 1, 1], MOST_NODES as u32, 0), &arguments) }
    }

    /// Writes the trees of a batch, and lays out the verify pass, of `batch · nodes` rows. Slots of
    /// the batch are trusted to exist, and tokens to be in the vocabulary.
    ///
    /// # Errors
    /// When a buffer is too short, the shape is too large, or the device fails.
    pub fn host_trees(
        &self,
        trees: HostTrees<'_>,
        sequences: Sequences<'_>,
        tree: TreeNodes<'_>,
        rows: PassRows<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        let HostTrees { batch, steps, batch_slot, token, parent, score, own } = trees;
        let nodes = tree.nodes;
        if batch == 0 || steps == 0 || nodes < 2 {
            return Err(DeviceError::Shape(format!("{batch} trees of {nodes} nodes and depth {steps} have no drafts")));
        }
        sequences.check()?;
        check_ints(batch_slot, batch)?;
        check_ints(token, batch * nodes)?;
        check_ints(parent, batch * nodes)?;
        score.map_or(Ok(()), |score| check_ints(score, batch * nodes))?;
        let score = score.unwrap_or(Slice::NONE);
        let outputs = self.tree_arguments(batch, steps, tree, rows, own, verify)?;
        let kernel = self.device.kernel(FILE, &[], "host_trees")?;
        let mut arguments = [token, parent, score, batch_slot, sequences.length, sequences.root, sequences.page_table]
            .map(address)
            .to_vec();
        arguments.extend([sequences.table_width, sequences.page_size, steps, nodes, sequences.dummy()].map(int));
        arguments.extend(outputs);
        // SAFETY: lengths are checked above; slots of the batch are the caller's promise.
        unsafe { self.device.launch(&kernel, grid([batch, 1, 1], MOST_NODES as u32, 0), &arguments) }
    }
}

//! The rows of the verify pass of trees that the host has drafted: `host_trees` of `cuda/tree.cu`.

use super::{
    Kernels, MOST_NODES, OwnRows, PassRows, Sequences, TreeNodes, VerifyRows, address, check_ints, grid, int,
    tree::FILE,
};
use crate::device::{DeviceError, Slice};

/// Trees that the host has drafted for a batch.
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
    /// Output: the own rows of the verify pass, listed once per request, as [`Kernels::gather_own`]
    /// does.
    pub own: Option<OwnRows<'a>>,
}

impl Kernels {
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
        let HostTrees { batch, steps, batch_slot, token, parent, own } = trees;
        let nodes = tree.nodes;
        if batch == 0 || steps == 0 || nodes < 2 {
            return Err(DeviceError::Shape(format!("{batch} trees of {nodes} nodes and depth {steps} have no drafts")));
        }
        sequences.check()?;
        check_ints(batch_slot, batch)?;
        check_ints(token, batch * nodes)?;
        check_ints(parent, batch * nodes)?;
        let outputs = self.tree_arguments(batch, steps, tree, rows, own, verify)?;
        let kernel = self.device.kernel(FILE, &[], "host_trees")?;
        let mut arguments =
            [token, parent, batch_slot, sequences.length, sequences.root, sequences.page_table].map(address).to_vec();
        arguments.extend([sequences.table_width, sequences.page_size, steps, nodes, sequences.dummy()].map(int));
        arguments.extend(outputs);
        // SAFETY: lengths are checked above; slots of the batch are the caller's promise.
        unsafe { self.device.launch(&kernel, grid([batch, 1, 1], MOST_NODES as u32, 0), &arguments) }
    }
}

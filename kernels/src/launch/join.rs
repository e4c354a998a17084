//! Chains that the host has looked up, joined with the trees of a draft: `cuda/join.cu`.

use super::{Kernels, MOST_NODES, OwnRows, PassRows, Sequences, TreeNodes, VerifyRows, address, check_ints, grid, int};
use crate::device::{DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "join.cu", text: include_str!("../../cuda/join.cu"), split: Split::Shared };

/// Threads of a block, one for each candidate.
const THREADS: usize = 256;

/// Chains that the host has looked up for a batch.
#[derive(Clone, Copy, Debug)]
pub struct LookedUpChains<'a> {
    /// Requests, padding included.
    pub batch: usize,
    /// Maximum number of tokens of a chain, at least 1: the depth of the trees.
    pub steps: usize,
    /// int32 `[batch]`.
    pub batch_slot: Slice<'a>,
    /// Number of tokens of each chain, int32 `[batch]`.
    pub length: Slice<'a>,
    /// Their tokens, int32 `[batch, steps]`.
    pub token: Slice<'a>,
    /// The log-probability of each token after those before it, float32 `[batch, steps]`.
    pub chance: Slice<'a>,
    /// Output: the own rows of the verify pass, listed once per request, as [`Kernels::gather_own`]
    /// does.
    pub own: Option<OwnRows<'a>>,
}

impl Kernels {
    /// Joins the trees of a batch with chains, and lays out the verify pass again, of
    /// `batch · nodes` rows. `tree` is as a draft has left it, and `verify` advances no output.
    /// Slots of the batch are trusted to exist, and tokens to be in the vocabulary.
    ///
    /// # Errors
    /// When a buffer is too short, the shape is too large, or the device fails.
    pub fn join_chains(
        &self,
        chains: LookedUpChains<'_>,
        sequences: Sequences<'_>,
        tree: TreeNodes<'_>,
        rows: PassRows<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        let LookedUpChains { batch, steps, batch_slot, length, token, chance, own } = chains;
        let nodes = tree.nodes;
        if batch == 0 || steps == 0 || steps >= MOST_NODES || nodes < 2 {
            return Err(DeviceError::Shape(format!("{batch} trees of {nodes} nodes and depth {steps} join no chains")));
        }
        sequences.check()?;
        check_ints(batch_slot, batch)?;
        check_ints(length, batch)?;
        check_ints(token, batch * steps)?;
        check_ints(chance, batch * steps)?;
        let outputs = self.tree_arguments(batch, steps, tree, rows, own, verify)?;
        let kernel = self.device.kernel(FILE, &[], "join_chains")?;
        let mut arguments = [length, token, chance, batch_slot].map(address).to_vec();
        arguments.extend([sequences.length, sequences.root, sequences.page_table].map(address));
        arguments.extend([sequences.table_width, sequences.page_size, steps, nodes, sequences.dummy()].map(int));
        arguments.extend(outputs);
        // SAFETY: lengths are checked above; slots of the batch are the caller's promise.
        unsafe { self.device.launch(&kernel, grid([batch, 1, 1], THREADS as u32, 0), &arguments) }
    }
}

//! Trees in the form that texts have in a trace, in place of the one that a draft of random weights
//! gives them.

use kernels::{
    device::DeviceError,
    launch::{GivenTrees, TreeNodes, VerifyRows},
};
use schemas::tree::TreeShape;

use super::{machine::Machine, round::RoundMemory};

impl Machine {
    /// Gives the drafted trees the form of the texts that are played, if that of the shape is
    /// known, and lays out the rows of the verify pass again.
    pub(super) fn play_trees(
        &self,
        memory: RoundMemory<'_>,
        shape: TreeShape,
        batch: usize,
        tree: TreeNodes<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        let RoundMemory { round, .. } = memory;
        let played = self.played.as_ref().and_then(|played| played.trees(shape, self.slots.played.slice()));
        let Some(played) = played else { return Ok(()) };
        let bytes = batch * tree.nodes * 4;
        let [token, parent, score] = [0, 1, 2].map(|at| round.played.range(at * bytes..(at + 1) * bytes));
        let sequences = self.slots.sequences(&self.capacity);
        let given = GivenTrees { token, parent, score };
        self.kernels.play_trees(given, played, (batch, round.slot.slice()), tree, sequences)?;
        // The kernel that has grown the trees has advanced the output.
        let verify = VerifyRows { outputs: None, ..verify };
        self.lay_out_trees(memory, shape, batch, (token, parent, Some(score)), tree, verify)
    }
}

//! Trees in the form that texts have in a trace, in place of the one that a draft of random weights
//! gives them.

use kernels::{
    device::DeviceError,
    launch::{GivenTrees, HostTrees, TreeNodes, VerifyRows},
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
        let RoundMemory { arrays, round, .. } = memory;
        let played = self.played.as_ref().and_then(|played| played.trees(shape, self.slots.played.slice()));
        let Some(played) = played else { return Ok(()) };
        let bytes = batch * tree.nodes * 4;
        let [token, given_parent, given_score] = [0, 1, 2].map(|at| round.played.range(at * bytes..(at + 1) * bytes));
        let (batch_slot, sequences) = (round.slot.slice(), self.slots.sequences(&self.capacity));
        let given = GivenTrees { token, parent: given_parent, score: given_score };
        self.kernels.play_trees(given, played, (batch, batch_slot), tree, sequences)?;
        let trees = HostTrees {
            batch,
            steps: shape.num_steps,
            batch_slot,
            token,
            parent: given_parent,
            score: Some(given_score),
            own: self.listed_own(arrays),
        };
        // The kernel that has grown the trees has advanced the output.
        let verify = VerifyRows { outputs: None, ..verify };
        self.kernels.host_trees(trees, sequences, tree, arrays.pass(), verify)
    }
}

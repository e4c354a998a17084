//! The draft part of a round with a block head: one pass over the blocks of all requests, and trees
//! that grow from the rankings of their rows.

use kernels::{
    device::DeviceError,
    launch::{BlockGrowth, Proposals, RankedLevels, TreeNodes, VerifyRows, most_parents},
};
use schemas::tree::TreeShape;

use super::{
    machine::Machine,
    pass::{BlockBatch, MarkovLevel},
    round::RoundMemory,
    weights::BlockWeights,
};

impl Machine {
    /// Grows the trees of a batch and lays out the rows of the verify pass.
    pub(super) fn draft_blocks(
        &self,
        memory: RoundMemory<'_>,
        draft: &BlockWeights,
        shape: TreeShape,
        batch: usize,
        tree: TreeNodes<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        let RoundMemory { work, arrays, round } = memory;
        let Some(block) = &round.block else { return Err(DeviceError::Shape("no room for a block".into())) };
        let TreeShape { num_steps: steps, topk, num_draft_tokens: nodes, .. } = shape;
        let (rows, batch_slot) = (draft.spec.block.rows_of(shape), round.slot.slice());
        let hidden =
            self.block_pass(draft, work, block, BlockBatch { batch, rows, steps, batch_slot, places: None })?;
        let proposals = Proposals { ids: round.ids.slice(), logprobs: round.logprobs.slice() };
        let grow = |levels: RankedLevels<'_>| {
            let growth = BlockGrowth {
                batch,
                steps,
                topk,
                vocabulary: draft.spec.vocabulary,
                batch_slot,
                proposals,
                levels,
                own: self.listed_own(arrays),
            };
            self.kernels.block_grow(growth, self.slots.sequences(&self.capacity), tree, arrays.pass(), verify)
        };
        // Ranks of all depths are independent then: one product serves them, and one kernel grows
        // the tree.
        let Some(markov) = &draft.markov else {
            self.propose(draft.proposal_head(&self.target), work, hidden, batch * steps, topk, proposals)?;
            return grow(RankedLevels::All);
        };
        // With corrections a depth is ranked after its parents are chosen, so depths follow one
        // another.
        self.write_base(draft, work, hidden, batch * steps)?;
        for depth in 0..steps {
            let rankings = most_parents(depth, topk, nodes);
            let level = MarkovLevel { depth, rows: batch * rankings, nodes: block.level(rankings), hidden };
            self.rank_level(draft, markov, work, level, topk, proposals)?;
            let next = (depth + 1 < steps).then(|| block.level(most_parents(depth + 1, topk, nodes)));
            grow(RankedLevels::One { level: depth, rankings, next })?;
        }
        Ok(())
    }
}

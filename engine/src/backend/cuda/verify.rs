//! Verification of the trees of a batch by the target, and acceptance.

use kernels::{
    device::{DeviceError, Slice},
    launch::{AcceptInputs, AcceptOutputs, AcceptWalk, Groups, ListedNodes, Picked, Rows, Sees, VerifiedNodes},
};

use super::{
    device_texts::DeviceTexts,
    machine::{Machine, Pass},
    round::{RoundMemory, Verifying},
    workspace::Sampled,
};
use crate::backend::{VerifyPlan, inner_rows};

impl Machine {
    /// Runs the target over the trees according to the plan, and accepts along its tokens.
    pub(super) fn verify(&self, verifying: Verifying<'_>) -> Result<(), DeviceError> {
        let Verifying { memory, shape, batch, tree, .. } = verifying;
        let own = VerifyPlan::for_batch(shape, batch, &self.cost);
        let plan = self.verify_plan.filter(|_| own != VerifyPlan::LikeliestNodes).unwrap_or(own);
        // A second pass would have to continue from states of nodes, which are not kept.
        let plan = match plan {
            VerifyPlan::InnerNodesFirst if self.states.is_some() => VerifyPlan::AllNodes,
            plan => plan,
        };
        let ways = self.accept_inputs(verifying);
        let verified = match plan {
            VerifyPlan::AllNodes => {
                self.choose_everywhere(verifying)?;
                VerifiedNodes::All
            }
            VerifyPlan::AcceptedPathOnly => {
                self.target_pass(self.all_nodes(verifying))?;
                self.choose_on_the_way(memory, ways)?;
                VerifiedNodes::All
            }
            VerifyPlan::InnerNodesFirst => {
                let inner = memory.round.listed(inner_rows(batch * tree.nodes));
                self.inner_first(memory, ways, inner)?;
                VerifiedNodes::ListedFirst(inner)
            }
            VerifyPlan::LikeliestNodes => {
                let likeliest = memory.round.listed(shape.verified_rows(batch));
                self.likeliest_only(memory, ways, likeliest)?;
                VerifiedNodes::ListedOnly(likeliest)
            }
        };
        self.accept(verifying, verified)
    }

    /// Runs the target over all nodes, and chooses its token after each.
    pub(super) fn choose_everywhere(&self, verifying: Verifying<'_>) -> Result<(), DeviceError> {
        let RoundMemory { work, arrays, round } = verifying.memory;
        let nodes = self.all_nodes(verifying);
        self.target_pass(nodes)?;
        self.choose(work, self.final_states(nodes), nodes.rows, round.chosen.slice(), arrays.sampled(), None)
    }

    /// Accepts along the target's tokens after the nodes over which it ran.
    pub(super) fn accept(&self, verifying: Verifying<'_>, verified: VerifiedNodes<'_>) -> Result<(), DeviceError> {
        let Verifying { memory: RoundMemory { work, arrays, round }, shape, batch, options, .. } = verifying;
        let (hidden, most) = (self.target.spec.hidden, shape.longest_path());
        self.kernels.accept(
            self.accept_inputs(verifying),
            AcceptOutputs {
                node: round.accepted_node.slice(),
                outputs: round.outputs(),
                moves: round.moves(),
                rows: arrays.pass(),
                row_source: arrays.source.slice(),
                last_row: round.last_row.slice(),
                group_prefix: Some(round.group_prefix.slice()),
                group_rows: Some(round.group_rows.slice()),
                texts: self.texts.as_ref().map(DeviceTexts::texts),
                verified,
            },
            self.slots.sequences(&self.capacity),
        )?;
        // States cannot be taken back, so they advance only along the path that was accepted.
        self.commit_states(verifying)?;
        if options.describe {
            let (rows, groups, sees) = (batch * most, Groups::Even(most), Sees::Positions);
            let pass = Pass::new(rows, groups, sees, arrays, work);
            let (to, from) =
                (Rows { at: work.added.slice(), stride: hidden }, Rows { at: work.normed.slice(), stride: hidden });
            self.kernels.gather_rows(to, None, from, Some(arrays.source.slice()), pass.rows, hidden)?;
            self.describe(pass, to, arrays.token.slice(), round)?;
        }
        Ok(())
    }

    /// All nodes of the trees.
    fn all_nodes<'a>(&self, verifying: Verifying<'a>) -> Pass<'a> {
        let Verifying { memory: RoundMemory { work, arrays, .. }, shape, batch, .. } = verifying;
        let sees = if shape.is_off() { Sees::Positions } else { arrays.branches() };
        let nodes = shape.num_draft_tokens;
        let order = self.order_of_nodes(verifying);
        Pass { order, ..Pass::new(batch * nodes, Groups::Even(nodes), sees, arrays, work) }
    }

    fn accept_inputs<'a>(&'a self, verifying: Verifying<'a>) -> AcceptInputs<'a> {
        let Verifying { memory: RoundMemory { round, .. }, shape, batch, tree, options } = verifying;
        AcceptInputs {
            batch,
            most: shape.longest_path(),
            batch_slot: round.slot.slice(),
            chosen: round.chosen.slice(),
            tree,
            simulate: options.simulate,
            seed: self.slots.seed.slice(),
            played: self.played.as_ref().and_then(|played| played.for_shape(shape, self.slots.played.slice())),
        }
    }

    /// Walks down the trees and computes the target's token after each visited node. The tokens
    /// after other nodes stay undefined; acceptance does not use them. Steps without an active walk
    /// are skipped on the device, if the kernel supports it.
    fn choose_on_the_way(&self, memory: RoundMemory<'_>, ways: AcceptInputs<'_>) -> Result<(), DeviceError> {
        let (RoundMemory { work, round, .. }, AcceptInputs { batch, most, .. }) = (memory, ways);
        let walk = walk(memory, None);
        let sequences = self.slots.sequences(&self.capacity);
        let hidden = self.target.spec.hidden;
        let (all, here) = (self.rows(&work.normed, hidden), self.rows(&work.added, hidden));
        let stand = walk.stand;
        let sampled = Sampled { slot: stand.slot, position: stand.sample_position };
        for step in 0..most {
            self.kernels.advance_accept(ways, walk, step, sequences)?;
            self.kernels.gather_rows(here, None, all, Some(stand.row), batch, hidden)?;
            let at = step % 2 * 4;
            self.choose(work, here, batch, stand.choice, sampled, Some(round.needed.range(at..at + 4)))?;
        }
        self.kernels.advance_accept(ways, walk, most, sequences)
    }

    /// Runs the target over the inner nodes of the trees, walks down along its tokens, and then
    /// runs it over one more node per request: the one where the walk stopped. That is a leaf, or
    /// an inner node that did not fit in the first pass, where the walk then ends. Outputs of the
    /// first pass are stored after those of the second.
    fn inner_first(
        &self,
        memory: RoundMemory<'_>,
        ways: AcceptInputs<'_>,
        inner: ListedNodes<'_>,
    ) -> Result<(), DeviceError> {
        let AcceptInputs { batch, tree, .. } = ways;
        let sequences = self.slots.sequences(&self.capacity);
        let walk = walk(memory, Some(inner));
        self.kernels.list_nodes(ways, inner, false, sequences)?;
        let groups = inner.groups(batch, tree.nodes);
        self.choose_after(
            memory,
            ways,
            Picked { row: inner.row, count: inner.capacity, known: None },
            groups,
            batch,
            inner.choice,
        )?;
        self.kernels.advance_accept(ways, walk, 0, sequences)?;
        let ends = Picked { row: walk.stand.row, count: batch, known: Some(ways.chosen) };
        self.choose_after(memory, ways, ends, Groups::Even(1), 0, walk.stand.choice)?;
        self.kernels.advance_accept(ways, walk, 1, sequences)
    }

    /// Runs the target over the likeliest nodes of all trees together, and over no others. Walks
    /// end where a node was left out.
    fn likeliest_only(
        &self,
        memory: RoundMemory<'_>,
        ways: AcceptInputs<'_>,
        likeliest: ListedNodes<'_>,
    ) -> Result<(), DeviceError> {
        self.kernels.list_nodes(ways, likeliest, true, self.slots.sequences(&self.capacity))?;
        let listed = Picked { row: likeliest.row, count: likeliest.capacity, known: None };
        self.choose_after(memory, ways, listed, likeliest.groups(ways.batch, ways.tree.nodes), 0, likeliest.choice)
    }

    /// Runs the target over some nodes, in groups of a request each, and chooses its token after
    /// each. Its outputs are stored from row `leaves_at` on.
    fn choose_after(
        &self,
        memory: RoundMemory<'_>,
        ways: AcceptInputs<'_>,
        nodes: Picked<'_>,
        groups: Groups<'_>,
        leaves_at: usize,
        choice: Slice<'_>,
    ) -> Result<(), DeviceError> {
        let RoundMemory { work, arrays, round } = memory;
        let (picked, sequences) = (&round.picked, self.slots.sequences(&self.capacity));
        let all = ways.batch * ways.tree.nodes;
        self.kernels.pick_rows(picked.chosen(), arrays.chosen(), all, nodes, sequences)?;
        let pass = Pass { leaves_at, ..Pass::new(nodes.count, groups, picked.branches(), picked, work) };
        self.gather_own(pass)?;
        self.target_pass(pass)?;
        self.choose(work, self.final_states(pass), nodes.count, choice, picked.sampled(), None)
    }
}

/// The state of the walks down the trees of a round.
fn walk<'a>(memory: RoundMemory<'a>, ahead: Option<ListedNodes<'a>>) -> AcceptWalk<'a> {
    let RoundMemory { arrays, round, .. } = memory;
    AcceptWalk {
        row_slot: arrays.slot.slice(),
        row_sample_position: arrays.sample_position.slice(),
        stand: round.stand(),
        ahead,
        needed: round.needed.slice(),
    }
}

//! Verification of the trees of a batch by the target, and acceptance.

use kernels::{
    device::DeviceError,
    launch::{AcceptInputs, AcceptWalk, Acceptance, Groups, InnerNodes, Picked, Rows, Sees, TreeNodes},
};
use schemas::tree::TreeShape;

use super::{
    machine::{Machine, Pass},
    round::{RoundMemory, RoundOptions},
    workspace::Sampled,
};
use crate::backend::VerifyPlan;

impl Machine {
    /// Runs the target over the trees, as far as it takes, and accepts of them what it says.
    pub(super) fn verify(
        &self,
        memory: RoundMemory<'_>,
        shape: TreeShape,
        batch: usize,
        tree: TreeNodes<'_>,
        options: RoundOptions,
    ) -> Result<(), DeviceError> {
        let RoundMemory { work, arrays, round } = memory;
        let RoundOptions { describe, simulate, .. } = options;
        let (hidden, most) = (self.target.spec.hidden, shape.num_steps + 1);
        let ways = AcceptInputs {
            batch,
            most,
            batch_slot: round.slot.slice(),
            chosen: round.chosen.slice(),
            tree,
            simulate,
            seed: self.slots.seed.slice(),
        };
        let plan = self.verify_plan.unwrap_or_else(|| VerifyPlan::of(shape, batch, &self.cost));
        let ahead = (plan == VerifyPlan::InnerNodesFirst).then(|| round.inner(batch * tree.nodes));
        match ahead {
            Some(inner) => self.inner_first(memory, ways, inner)?,
            None => {
                let nodes = shape.num_draft_tokens;
                let sees = if shape.is_off() { Sees::Positions } else { arrays.branches() };
                let (rows, groups) = (batch * nodes, Groups::Even(nodes));
                let nodes = Pass { rows, groups, sees, arrays, work, leaves_at: 0 };
                self.target_pass(nodes)?;
                if plan == VerifyPlan::AcceptedPathOnly {
                    self.choose_on_the_way(memory, ways)?;
                } else {
                    self.choose(work, self.final_states(nodes), rows, round.chosen.slice(), arrays.sampled(), None)?;
                }
            }
        }
        self.kernels.accept(
            ways,
            Acceptance {
                node: round.accepted_node.slice(),
                outputs: round.outputs(),
                moves: round.moves(),
                rows: arrays.pass(),
                row_source: arrays.source.slice(),
                last_row: round.last_row.slice(),
                group_prefix: Some(round.group_prefix.slice()),
                group_rows: Some(round.group_rows.slice()),
                ahead,
            },
            self.slots.sequences(&self.capacity),
        )?;
        if describe {
            let (rows, groups, sees) = (batch * most, Groups::Even(most), Sees::Positions);
            let pass = Pass { rows, groups, sees, arrays, work, leaves_at: 0 };
            let (to, from) =
                (Rows { at: work.added.slice(), stride: hidden }, Rows { at: work.normed.slice(), stride: hidden });
            self.kernels.gather_rows(to, None, from, Some(arrays.source.slice()), pass.rows, hidden)?;
            self.describe(pass, to, arrays.token.slice(), round)?;
        }
        Ok(())
    }

    /// Walks down the trees and computes the target's token after each visited node. The tokens after other nodes stay
    /// undefined; acceptance does not use them. Steps without an active walk are skipped on the device, if the kernel
    /// supports it.
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

    /// Runs the target over the inner nodes of the trees, walks down by what it says, and runs it over the node of each request where
    /// its walk stands then: a leaf, or an inner node for which there was no room, where the walk ends too. The rows of the former are
    /// left behind those of the latter.
    fn inner_first(
        &self,
        memory: RoundMemory<'_>,
        ways: AcceptInputs<'_>,
        inner: InnerNodes<'_>,
    ) -> Result<(), DeviceError> {
        let (RoundMemory { work, arrays, round }, AcceptInputs { batch, tree, .. }) = (memory, ways);
        let sequences = self.slots.sequences(&self.capacity);
        let walk = walk(memory, Some(inner));
        let picked = &round.picked;
        let sees = picked.branches();
        let run = |nodes: Picked<'_>, groups: Groups<'_>, leaves_at: usize, choice| {
            self.kernels.pick_rows(picked.chosen(), arrays.chosen(), batch * tree.nodes, nodes, sequences)?;
            let pass = Pass { rows: nodes.count, groups, sees, arrays: picked, work, leaves_at };
            self.gather_own(pass)?;
            self.target_pass(pass)?;
            self.choose(work, self.final_states(pass), nodes.count, choice, picked.sampled(), None)
        };
        self.kernels.inner_rows(ways, inner, sequences)?;
        let listed = Picked { row: inner.row, count: inner.capacity, known: None };
        run(listed, inner.groups(batch, tree.nodes), batch, inner.choice)?;
        self.kernels.advance_accept(ways, walk, 0, sequences)?;
        let ends = Picked { row: walk.stand.row, count: batch, known: Some(ways.chosen) };
        run(ends, Groups::Even(1), 0, walk.stand.choice)?;
        self.kernels.advance_accept(ways, walk, 1, sequences)
    }
}

/// Walks down the trees of a round.
fn walk<'a>(memory: RoundMemory<'a>, ahead: Option<InnerNodes<'a>>) -> AcceptWalk<'a> {
    let RoundMemory { arrays, round, .. } = memory;
    AcceptWalk {
        row_slot: arrays.slot.slice(),
        row_sample_position: arrays.sample_position.slice(),
        stand: round.stand(),
        ahead,
        needed: round.needed.slice(),
    }
}

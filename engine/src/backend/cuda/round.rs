//! A round as it is recorded: draft → verify → accept → compact → extend, all of it on the device.
//!
//! It is recorded whole, or in its parts where their times are wanted.

use kernels::{
    device::{DeviceError, Slice},
    launch::{
        Acceptance, CachePlanes, Drafting, Groups, InnerNodes, Proposals, Rows, Sees, Stand, TreeNodes, VerifyRows,
        Walk, Ways,
    },
};
use schemas::tree::TreeShape;

use super::{
    layout::{Activations, RoundArrays, RowArrays},
    passes::{Asking, AttentionKernels, Machine, Pass, Sampled},
    weights::HeadWeights,
};

/// What a round writes to, beside the state of its slots.
#[derive(Clone, Copy)]
pub struct RoundMemory<'a> {
    pub work: &'a Activations,
    pub arrays: &'a RowArrays,
    pub round: &'a RoundArrays,
}

/// What a round does beside drafting, verifying and accepting.
#[derive(Clone, Copy, Debug)]
pub struct RoundOptions {
    /// Keeps what was accepted for the draft to read later. Where something was drafted it reads at once.
    pub keep_unread: bool,
    /// Writes log-probabilities for the slots that want them.
    pub describe: bool,
    /// Accepts this many tokens on average, whatever the target says.
    pub simulate: Option<f32>,
}

/// A part of a round, as [`RoundTiming`](crate::backend::RoundTiming) divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Grows the trees and lays out the rows that verify them; nothing where nothing is drafted.
    Draft,
    /// The target's pass, and what it accepts.
    Verify,
    /// Compacts the target's cache and extends the draft's.
    Extend,
}

impl Part {
    /// All of them, in their order: a whole round.
    pub const ALL: [Self; 3] = [Self::Draft, Self::Verify, Self::Extend];

    /// Those in which a round does something.
    pub fn of(shape: TreeShape, keep_unread: bool) -> &'static [Self] {
        match (shape.is_off(), keep_unread) {
            (false, _) => &Self::ALL,
            (true, true) => &[Self::Verify, Self::Extend],
            (true, false) => &[Self::Verify],
        }
    }
}

/// Rows with which it takes as long to multiply 16-bit weights as to read them: about 0.66 PFLOP/s against 4.2 TB/s on an H200, and
/// not far from that on others of its time.
const ROWS_A_READING: usize = 160;

/// What a product that is left out takes beside one that reads the vocabulary: its launches, about 15 µs of 260.
const LEFT_OUT: f64 = 0.06;

/// Where the target is asked for tokens: where that takes the least time, counted in readings of its vocabulary. Ahead of walks it
/// is only asked where products that nobody awaits can be left out: of the steps behind, one is then needed as a rule.
fn asking(shape: TreeShape, batch: usize, can_leave_out: bool) -> Asking {
    let readings = |rows: usize| rows.max(ROWS_A_READING) as f64 / ROWS_A_READING as f64;
    let (rows, steps) = (batch * shape.num_draft_tokens, shape.num_steps as f64);
    let mut ways = vec![(readings(rows), Asking::All), ((steps + 1.0) * readings(batch), Asking::OnTheWay)];
    if can_leave_out {
        ways.push((readings(rows_ahead(rows)) + readings(batch) + LEFT_OUT * steps, Asking::Ahead));
    }
    // Among equals the first.
    ways.into_iter().min_by(|one, other| one.0.total_cmp(&other.0)).map_or(Asking::All, |least| least.1)
}

/// How many inner nodes of so many are asked for ahead of walks, at most: of trees by trained heads two in five have children.
fn rows_ahead(nodes: usize) -> usize {
    nodes.div_ceil(2)
}

impl Machine {
    /// Launches parts of a round of `batch` requests, whose slots stand in [`RoundArrays::slot`]. A part works on what
    /// the parts before it have left.
    pub fn round(
        &self,
        parts: &[Part],
        memory: RoundMemory<'_>,
        shape: TreeShape,
        batch: usize,
        options: RoundOptions,
    ) -> Result<(), DeviceError> {
        let RoundMemory { arrays, round, .. } = memory;
        let tree = TreeNodes {
            nodes: shape.num_draft_tokens,
            token: round.node_token.slice(),
            parent: round.node_parent.slice(),
            depth: round.node_depth.slice(),
        };
        let verify = VerifyRows {
            sample_position: arrays.sample_position.slice(),
            group_prefix: Some(round.group_prefix.slice()),
            outputs: round.outputs(),
        };
        let sequences = self.slots.sequences(&self.capacity);
        let drafting = self.head.as_ref().filter(|_| !shape.is_off());
        for part in parts {
            match (part, drafting) {
                (Part::Draft, Some(head)) => self.draft(memory, head, shape, batch, tree, verify)?,
                (Part::Draft, None) => {}
                (Part::Verify, Some(_)) => self.verify(memory, shape, batch, tree, options)?,
                (Part::Verify, None) => {
                    self.kernels.decode_begin(batch, round.slot.slice(), sequences, tree, arrays.pass(), verify)?;
                    self.verify(memory, shape, batch, tree, options)?;
                }
                (Part::Extend, _) => self.settle(memory, shape, batch, options.keep_unread)?,
            }
        }
        Ok(())
    }

    /// One pass of the target over all trees, and what it accepts of them.
    fn verify(
        &self,
        memory: RoundMemory<'_>,
        shape: TreeShape,
        batch: usize,
        tree: TreeNodes<'_>,
        options: RoundOptions,
    ) -> Result<(), DeviceError> {
        let RoundMemory { work, arrays, round } = memory;
        let RoundOptions { describe, simulate, .. } = options;
        let nodes = shape.num_draft_tokens;
        let sees = if shape.is_off() { Sees::Positions } else { arrays.branches() };
        let nodes = Pass { rows: batch * nodes, groups: Groups::Even(nodes), sees, arrays, work };
        self.target_pass(nodes)?;
        let (hidden, most) = (self.target.facts.layer.hidden, shape.num_steps + 1);
        let ways = Ways {
            batch,
            most,
            batch_slot: round.slot.slice(),
            chosen: round.chosen.slice(),
            tree,
            simulate,
            seed: self.slots.seed.slice(),
        };
        let can_leave_out = || self.leaves_out(work, self.target_vocabulary(), batch);
        match self.asking.unwrap_or_else(|| asking(shape, batch, can_leave_out())) {
            Asking::All => {
                let states = self.rows(&work.normed, hidden);
                self.choose(work, states, nodes.rows, round.chosen.slice(), arrays.sampled(), None)?;
            }
            Asking::OnTheWay => self.choose_on_the_way(memory, ways, false)?,
            Asking::Ahead => self.choose_on_the_way(memory, ways, true)?,
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
            },
            self.slots.sequences(&self.capacity),
        )?;
        if describe {
            let pass = Pass { rows: batch * most, groups: Groups::Even(most), sees: Sees::Positions, arrays, work };
            let (to, from) =
                (Rows { at: work.added.slice(), stride: hidden }, Rows { at: work.normed.slice(), stride: hidden });
            self.kernels.gather_rows(to, None, from, Some(arrays.source.slice()), pass.rows, hidden)?;
            self.describe(pass, to, arrays.token.slice(), round)?;
        }
        Ok(())
    }

    /// Walks down the trees, and asks for the target's token behind each node that it comes by. What is behind the others stays
    /// open: acceptance does not use it. If the inner nodes are asked for ahead, or as many as there is room for, the walks come by
    /// few others. Steps for which no walk waits any more are left out on the device, where its kernel can.
    fn choose_on_the_way(&self, memory: RoundMemory<'_>, ways: Ways<'_>, ahead: bool) -> Result<(), DeviceError> {
        let (RoundMemory { work, arrays, round }, Ways { batch, most, tree, .. }) = (memory, ways);
        let stand = round.stand();
        let ahead = ahead.then(|| round.inner(rows_ahead(batch * tree.nodes)));
        let walk = Walk {
            row_slot: arrays.slot.slice(),
            row_sample_position: arrays.sample_position.slice(),
            stand,
            ahead,
            awaited: round.awaited.slice(),
        };
        let sequences = self.slots.sequences(&self.capacity);
        let hidden = self.target.facts.layer.hidden;
        let (all, here) = (self.rows(&work.normed, hidden), self.rows(&work.added, hidden));
        let ask = |nodes: Stand<'_>, count: usize, awaited: Option<Slice<'_>>| {
            self.kernels.gather_rows(here, None, all, Some(nodes.row), count, hidden)?;
            let sampled = Sampled { slot: nodes.slot, position: nodes.sample_position };
            self.choose(work, here, count, nodes.choice, sampled, awaited)
        };
        if let Some(InnerNodes { list, capacity, .. }) = ahead {
            self.kernels.inner_rows(ways, walk, sequences)?;
            ask(list, capacity, None)?;
        }
        for step in 0..most {
            self.kernels.walk_on(ways, walk, step, sequences)?;
            let at = step % 2 * 4;
            ask(stand, batch, Some(round.awaited.range(at..at + 4)))?;
        }
        self.kernels.walk_on(ways, walk, most, sequences)
    }

    /// Puts what was accepted where its positions belong, and runs the draft over it or keeps it for later.
    fn settle(
        &self,
        memory: RoundMemory<'_>,
        shape: TreeShape,
        batch: usize,
        keep_unread: bool,
    ) -> Result<(), DeviceError> {
        let most = shape.num_steps + 1;
        // In a chain every node already stands where its position belongs, unless acceptance is simulated: still so.
        if shape.topk > 1 && shape.num_steps > 0 {
            let attention = self.target.facts.layer.attention;
            self.kernels.compact_cache(
                CachePlanes {
                    at: self.target_cache.slice(),
                    planes: 2 * self.target.facts.layers,
                    rows: self.cache_rows,
                    width: attention.key_value_heads * attention.head_dim,
                },
                memory.round.moves(),
                batch,
                most,
            )?;
        }
        match &self.head {
            Some(head) if !shape.is_off() => {
                self.extend(memory, head, self.feature_rows(head, memory.work), batch, most)
            }
            Some(head) if keep_unread => self.keep_unread(memory, head, batch),
            _ => Ok(()),
        }
    }

    /// Grows the trees, and lays out the rows that verify them.
    fn draft(
        &self,
        memory: RoundMemory<'_>,
        head: &HeadWeights,
        shape: TreeShape,
        batch: usize,
        tree: TreeNodes<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        let RoundMemory { work, arrays, round } = memory;
        let TreeShape { num_steps: steps, topk, .. } = shape;
        let facts = &head.facts;
        let hidden = facts.layer.hidden;
        let sequences = self.slots.sequences(&self.capacity);
        let drafting = Drafting {
            batch,
            steps,
            topk,
            vocabulary: facts.vocabulary,
            scratch_base: self.cache_rows,
            batch_slot: round.slot.slice(),
            pool_token: round.pool_token.slice(),
            pool_score: round.pool_score.slice(),
            pool_parent: round.pool_parent.slice(),
            beam_place: round.beam_place.slice(),
            own: (self.attention == AttentionKernels::Tiles).then(|| arrays.own_rows()),
        };
        let proposals = Proposals { ids: round.ids.slice(), logprobs: round.logprobs.slice() };
        let propose = |x: Rows<'_>, rows: usize| self.propose(head, work, x, rows, topk, proposals);
        let kept = (Rows { at: self.slots.recurrent.slice(), stride: hidden }, round.slot.slice());
        propose(self.proposing(head, work, Some(kept), batch)?, batch)?;
        if steps > 1 {
            self.kernels.draft_begin(drafting, proposals, sequences, arrays.pass(), arrays.source.slice())?;
        }
        for step in 1..steps {
            let (from, to) = ((step - 1) % 2, step % 2);
            let sees = arrays.branches();
            let beams = Pass { rows: batch * topk, groups: Groups::Even(topk), sees, arrays, work };
            let x = self.head_pass(head, beams, &work.states[from], Some(arrays.source.slice()), to, None)?;
            propose(x, beams.rows)?;
            if step + 1 < steps {
                let source = arrays.source.slice();
                self.kernels.draft_expand(drafting, step, proposals, sequences, arrays.pass(), source)?;
            }
        }
        self.kernels.draft_finish(drafting, proposals, sequences, tree, arrays.pass(), verify)
    }

    /// Runs the draft over rows that are laid out, `most` a request, and keeps its state behind the last of each. Their
    /// features are made of rows of `from`.
    pub fn extend(
        &self,
        memory: RoundMemory<'_>,
        head: &HeadWeights,
        from: Rows<'_>,
        batch: usize,
        most: usize,
    ) -> Result<(), DeviceError> {
        let RoundMemory { work, arrays, round } = memory;
        let pass = Pass { rows: batch * most, groups: Groups::Even(most), sees: Sees::Positions, arrays, work };
        self.features(head, work, from, Some(arrays.source.slice()), pass.rows)?;
        let lasts = self.read(head, pass, round.last_row.slice(), batch, false)?;
        self.keep_state(head, work, Some(round.slot.slice()), lasts, batch)
    }

    /// Keeps the first rows of the draft's state, or these, as that of slots.
    pub fn keep_state(
        &self,
        head: &HeadWeights,
        work: &Activations,
        slots: Option<Slice<'_>>,
        rows: Option<Slice<'_>>,
        count: usize,
    ) -> Result<(), DeviceError> {
        let hidden = head.facts.layer.hidden;
        let to = Rows { at: self.slots.recurrent.slice(), stride: hidden };
        let from = Rows { at: work.states[0].slice(), stride: hidden };
        self.kernels.gather_rows(to, slots, from, rows, count, hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_trees_of_many_requests_are_asked_ahead_or_on_the_way() {
        let asked = |shape: &str, batch, can_leave_out| asking(shape.parse().expect("a shape"), batch, can_leave_out);
        for (shape, batch) in [("0,1,1", 64), ("3,1,4", 64), ("5,8,32", 8), ("8,10,60", 16)] {
            assert_eq!(asked(shape, batch, false), Asking::All, "{shape} at {batch}");
        }
        for (shape, batch) in [("5,8,32", 32), ("5,8,32", 64), ("8,10,60", 32), ("5,8,64", 256)] {
            assert_eq!(asked(shape, batch, false), Asking::OnTheWay, "{shape} at {batch}");
        }
        for (shape, batch, expected) in [
            ("0,1,1", 64, Asking::All),
            ("3,1,4", 64, Asking::All),
            ("5,8,32", 8, Asking::All),
            ("5,8,32", 16, Asking::Ahead),
            ("5,8,32", 32, Asking::Ahead),
            ("5,8,32", 64, Asking::OnTheWay),
            ("8,10,60", 32, Asking::Ahead),
            ("8,10,60", 64, Asking::OnTheWay),
        ] {
            assert_eq!(asked(shape, batch, true), expected, "{shape} at {batch}");
        }
    }
}

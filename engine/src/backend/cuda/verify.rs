//! What the target says of the trees of a batch, and what is accepted of them.
//!
//! Which drafts are accepted is told by the tokens behind their parents, so leaves matter only where a walk ends. Where a batch has
//! more rows than the target multiplies in the time in which it reads its weights, it runs over less than all: see [`Asking`].

use kernels::{
    device::DeviceError,
    launch::{Acceptance, Groups, InnerNodes, Picked, Rows, Sees, TreeNodes, Walk, Ways},
};
use schemas::tree::TreeShape;

use super::{
    layout::inner_rows,
    passes::{Asking, Machine, Pass, Sampled},
    round::{RoundMemory, RoundOptions},
    weights::LayerWeights,
};

/// Rows with which it takes as long to multiply 16-bit weights as to read them: about 0.66 PFLOP/s against 4.2 TB/s on an H200, and
/// not far from that on others of its time.
const ROWS_A_READING: usize = 160;

/// What a second pass takes in each layer beside reading its weights, in bytes that are read meanwhile: the small kernels and the ends
/// of large ones, about 25 µs, and a context of some hundred positions for each request.
const SECOND_PASS: usize = 100 << 20;

/// Trees of fewer nodes, or of fewer branches a node, have children behind more than half of their nodes.
const LEAFY: (usize, usize) = (16, 4);

/// What a pass of the target reads of its weights.
#[derive(Clone, Copy, Debug)]
struct WeightBytes {
    layers: usize,
    /// Bytes of all layers together.
    weights: usize,
    /// Bytes of what final states are multiplied with.
    vocabulary: usize,
}

/// Where the target is asked for tokens: where that takes the least time, counted in readings of its weights.
fn asking(shape: TreeShape, batch: usize, read: WeightBytes, batch_invariant: bool) -> Asking {
    let all = (read.weights + read.vocabulary).max(1) as f64;
    let vocabulary = read.vocabulary as f64 / all;
    let second_pass = (read.layers * SECOND_PASS) as f64 / all;
    let readings = |rows: usize| rows.max(ROWS_A_READING) as f64 / ROWS_A_READING as f64;
    let (rows, steps) = (batch * shape.num_draft_tokens, shape.num_steps as f64);
    let on_the_way = (1.0 - vocabulary) * readings(rows) + vocabulary * (steps + 1.0) * readings(batch);
    let mut ways = vec![(readings(rows), Asking::All), (on_the_way, Asking::OnTheWay)];
    // Of more inner nodes than there is room for the least likely count as leaves, which the batch decides.
    if shape.num_draft_tokens >= LEAFY.0 && shape.topk >= LEAFY.1 && !batch_invariant {
        ways.push((readings(inner_rows(rows)) + readings(batch) + second_pass, Asking::InnerFirst));
    }
    // Among equals the first.
    ways.into_iter().min_by(|one, other| one.0.total_cmp(&other.0)).map_or(Asking::All, |least| least.1)
}

impl Machine {
    fn weight_bytes(&self) -> WeightBytes {
        let target = &self.target;
        let weights = target.layers.iter().map(LayerWeights::bytes).sum();
        WeightBytes { layers: target.layers.len(), weights, vocabulary: target.head().bytes() }
    }

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
        let asking = self.asking.unwrap_or_else(|| asking(shape, batch, self.weight_bytes(), self.batch_invariant));
        let ahead = (asking == Asking::InnerFirst).then(|| round.inner(batch * tree.nodes));
        match ahead {
            Some(inner) => self.inner_first(memory, ways, inner)?,
            None => {
                let nodes = shape.num_draft_tokens;
                let sees = if shape.is_off() { Sees::Positions } else { arrays.branches() };
                let (rows, groups) = (batch * nodes, Groups::Even(nodes));
                let nodes = Pass { rows, groups, sees, arrays, work, leaves_at: 0 };
                self.target_pass(nodes)?;
                if asking == Asking::OnTheWay {
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

    /// Walks down the trees, and asks for the target's token behind each node that it comes by. What is behind the others stays
    /// open: acceptance does not use it. Steps for which no walk waits any more are left out on the device, where its kernel can.
    fn choose_on_the_way(&self, memory: RoundMemory<'_>, ways: Ways<'_>) -> Result<(), DeviceError> {
        let (RoundMemory { work, round, .. }, Ways { batch, most, .. }) = (memory, ways);
        let walk = walk(memory, None);
        let sequences = self.slots.sequences(&self.capacity);
        let hidden = self.target.facts.layer.hidden;
        let (all, here) = (self.rows(&work.normed, hidden), self.rows(&work.added, hidden));
        let stand = walk.stand;
        let sampled = Sampled { slot: stand.slot, position: stand.sample_position };
        for step in 0..most {
            self.kernels.walk_on(ways, walk, step, sequences)?;
            self.kernels.gather_rows(here, None, all, Some(stand.row), batch, hidden)?;
            let at = step % 2 * 4;
            self.choose(work, here, batch, stand.choice, sampled, Some(round.awaited.range(at..at + 4)))?;
        }
        self.kernels.walk_on(ways, walk, most, sequences)
    }

    /// Runs the target over the inner nodes of the trees, walks down by what it says, and runs it over the node of each request where
    /// its walk stands then: a leaf, or an inner node for which there was no room, where the walk ends too. The rows of the former are
    /// left behind those of the latter.
    fn inner_first(&self, memory: RoundMemory<'_>, ways: Ways<'_>, inner: InnerNodes<'_>) -> Result<(), DeviceError> {
        let (RoundMemory { work, arrays, round }, Ways { batch, tree, .. }) = (memory, ways);
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
        self.kernels.walk_on(ways, walk, 0, sequences)?;
        let ends = Picked { row: walk.stand.row, count: batch, known: Some(ways.chosen) };
        run(ends, Groups::Even(1), 0, walk.stand.choice)?;
        self.kernels.walk_on(ways, walk, 1, sequences)
    }
}

/// Walks down the trees of a round.
fn walk<'a>(memory: RoundMemory<'a>, ahead: Option<InnerNodes<'a>>) -> Walk<'a> {
    let RoundMemory { arrays, round, .. } = memory;
    Walk {
        row_slot: arrays.slot.slice(),
        row_sample_position: arrays.sample_position.slice(),
        stand: round.stand(),
        ahead,
        awaited: round.awaited.slice(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Llama-3.1-8B, Llama-3.2-1B and a model of 30 million weights, in 16 bits.
    const EIGHT_BILLION: WeightBytes = WeightBytes { layers: 32, weights: 13_958_643_712, vocabulary: 1_050_673_152 };
    const ONE_BILLION: WeightBytes = WeightBytes { layers: 16, weights: 1_946_157_056, vocabulary: 525_336_576 };
    const SMALL: WeightBytes = WeightBytes { layers: 6, weights: 46_000_000, vocabulary: 8_000_000 };

    #[test]
    fn the_target_runs_over_less_than_all_nodes_where_these_are_many() {
        let check = |read, batch_invariant, shape: &str, batch, expected| {
            let found = asking(shape.parse().expect("a shape"), batch, read, batch_invariant);
            assert_eq!(found, expected, "{shape} at {batch}");
        };
        for (shape, batch) in [("0,1,1", 256), ("3,1,4", 64), ("5,8,32", 8), ("8,10,60", 4), ("3,4,8", 64)] {
            check(EIGHT_BILLION, false, shape, batch, Asking::All);
        }
        for (shape, batch) in [("5,8,32", 16), ("5,8,32", 64), ("8,10,60", 8), ("5,8,64", 256), ("3,4,16", 64)] {
            check(EIGHT_BILLION, false, shape, batch, Asking::InnerFirst);
        }
        for (shape, batch) in [("5,8,32", 64), ("8,10,60", 32)] {
            check(EIGHT_BILLION, true, shape, batch, Asking::OnTheWay);
        }
        check(EIGHT_BILLION, false, "5,3,32", 64, Asking::OnTheWay);
        // Where weights are few a pass is mostly small kernels.
        check(ONE_BILLION, false, "5,8,32", 16, Asking::All);
        check(ONE_BILLION, false, "5,8,32", 64, Asking::InnerFirst);
        check(SMALL, false, "8,10,60", 64, Asking::OnTheWay);
    }
}

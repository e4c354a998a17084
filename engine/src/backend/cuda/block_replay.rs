//! Replay with a block head: what it would have proposed at positions of known texts. The host
//! grows the pools with [`Levels`], whose rule is that of the device's kernels.

use std::collections::HashMap;

use kernels::launch::{Proposals, Rows};
use schemas::tree::TreeShape;

use super::{
    CudaBackend,
    pass::{BlockBatch, MarkovLevel},
    replay::{Best, no_draft, not_kept},
    weights::{BlockWeights, DraftWeights, MarkovWeights},
    workspace::BlockArrays,
};
use crate::{
    backend::{Pool, ReplayPlace},
    error::EngineError,
    spec::MarkovKind,
    tree::Levels,
};

/// States of a recurrent Markov head after nodes, by the index of the replayed place and the place
/// in its pool.
type NodeStates = HashMap<(usize, Option<usize>), Vec<u8>>;

impl CudaBackend {
    /// Grows the pools of places; all shapes have the same block.
    pub(super) fn grow_blocks(
        &self,
        places: &[ReplayPlace<'_>],
        shapes: &[TreeShape],
    ) -> Result<Vec<Pool>, EngineError> {
        let (Some(DraftWeights::Block(draft)), Some(block)) = (&self.machine.draft, &self.round.block) else {
            return Err(no_draft());
        };
        let Some(shape) = shapes.first() else { return Ok(Vec::new()) };
        for place in places {
            if self.trace_of(place.slot).is_none() || !self.holds(place.slot, place.position) {
                return Err(not_kept(place.slot, place.position));
            }
        }
        let steps = shapes.iter().map(|shape| shape.num_steps).max().unwrap_or_default();
        let topk = shapes.iter().map(|shape| shape.topk).max().unwrap_or_default();
        let column = |of: fn(&ReplayPlace<'_>) -> i32| places.iter().map(of).collect::<Vec<i32>>();
        // The kernels of a round read neither before a pass has ended.
        let (starts, roots) = (self.round.stand[0].slice(), self.round.stand[1].slice());
        for (to, values) in [
            (self.round.slot.slice(), column(|place| place.slot.0 as i32)),
            (starts, column(|place| place.position as i32)),
            (roots, column(|place| place.root as i32)),
        ] {
            self.device.write(to, &values)?;
        }
        let blocks = BlockBatch {
            batch: places.len(),
            rows: draft.spec.block.rows_of(*shape),
            steps,
            batch_slot: self.round.slot.slice(),
            places: Some([starts, roots]),
        };
        let hidden = self.machine.block_pass(draft, &self.work, block, blocks)?;
        let rows = places.len() * steps;
        let proposals = Proposals { ids: self.round.ids.slice(), logprobs: self.round.logprobs.slice() };
        let confident = self.confident_rows(draft, hidden, steps, places)?;
        let mut pools = match &draft.markov {
            Some(markov) => {
                self.machine.write_base(draft, &self.work, hidden, rows)?;
                self.grow_corrected((draft, markov, block), hidden, places, shapes, proposals)?
            }
            None => {
                let head = draft.proposal_head(&self.machine.target);
                self.machine.propose(head, &self.work, hidden, rows, topk, proposals)?;
                let best = self.read_best(rows, topk, draft.spec.vocabulary)?;
                grow(shapes, steps, places.len(), |depth, nodes| {
                    Ok(nodes.iter().map(|(at, ..)| best[at * steps + depth].clone()).collect())
                })?
            }
        };
        if let Some(rows) = confident {
            self.add_confidences(draft, &rows, steps, places, &mut pools)?;
        }
        Ok(pools)
    }

    /// Grows pools whose rankings a Markov head corrects, depth by depth.
    fn grow_corrected(
        &self,
        (draft, markov, block): (&BlockWeights, &MarkovWeights, &BlockArrays),
        hidden: Rows<'_>,
        places: &[ReplayPlace<'_>],
        shapes: &[TreeShape],
        proposals: Proposals<'_>,
    ) -> Result<Vec<Pool>, EngineError> {
        let steps = shapes.iter().map(|shape| shape.num_steps).max().unwrap_or_default();
        let topk = shapes.iter().map(|shape| shape.topk).max().unwrap_or_default();
        let mut states = NodeStates::default();
        grow(shapes, steps, places.len(), |depth, nodes| {
            let (mut best, mut after) = (Vec::with_capacity(nodes.len()), NodeStates::default());
            // Trees of several shapes may have more parents together than any of them.
            for nodes in nodes.chunks(block.level_rows().max(1)) {
                self.lay_out_level(block, (depth, steps), places, nodes)?;
                self.send_states(markov, depth, nodes, &states)?;
                let level = MarkovLevel { depth, rows: nodes.len(), nodes: block.level(nodes.len()), hidden };
                self.machine.rank_level(draft, markov, &self.work, level, topk, proposals)?;
                best.extend(self.read_best(nodes.len(), topk, draft.spec.vocabulary)?);
                self.read_states(markov, depth, nodes, &mut after)?;
            }
            states = after;
            Ok(best)
        })
    }

    /// Writes the nodes of a level to the device; each reads the state of its own number.
    fn lay_out_level(
        &self,
        block: &BlockArrays,
        (depth, steps): (usize, usize),
        places: &[ReplayPlace<'_>],
        nodes: &[RankedNode],
    ) -> Result<(), EngineError> {
        let to = block.level(nodes.len());
        let token = |(at, _, proposed): &RankedNode| proposed.map_or(places[*at].root, |(token, _)| token) as i32;
        for (to, values) in [
            (to.token, nodes.iter().map(token).collect::<Vec<i32>>()),
            (to.source, (0..nodes.len() as i32).collect()),
            (to.base, nodes.iter().map(|(at, ..)| (at * steps + depth) as i32).collect()),
        ] {
            self.device.write(to, &values)?;
        }
        Ok(())
    }

    /// Bytes of a state of the Markov head; 0 if it has none.
    fn markov_state(&self, markov: &MarkovWeights) -> usize {
        match markov.spec.kind {
            MarkovKind::Recurrent => markov.spec.rank * self.options.element.bytes(),
            MarkovKind::Vanilla | MarkovKind::Gated => 0,
        }
    }

    /// Writes the Markov head's states before nodes, which are those after their parents.
    fn send_states(
        &self,
        markov: &MarkovWeights,
        depth: usize,
        nodes: &[RankedNode],
        states: &NodeStates,
    ) -> Result<(), EngineError> {
        let width = self.markov_state(markov);
        if width == 0 || depth == 0 {
            return Ok(());
        }
        let parent = |(at, _, proposed): &RankedNode| (*at, proposed.and_then(|(_, parent)| parent));
        let zeros = vec![0; width];
        let before: Vec<u8> =
            nodes.iter().flat_map(|node| states.get(&parent(node)).unwrap_or(&zeros)).copied().collect();
        // Two buffers in turns: a level reads the states of the previous one while it writes its
        // own.
        Ok(self.device.write(self.work.markov.states[(depth + 1) % 2].slice(), &before)?)
    }

    /// Reads the states after nodes.
    fn read_states(
        &self,
        markov: &MarkovWeights,
        depth: usize,
        nodes: &[RankedNode],
        to: &mut NodeStates,
    ) -> Result<(), EngineError> {
        let width = self.markov_state(markov);
        if width == 0 {
            return Ok(());
        }
        let mut after = vec![0_u8; nodes.len() * width];
        self.device.read(self.work.markov.states[depth % 2].slice(), &mut after)?;
        let of_nodes = nodes.iter().zip(after.chunks_exact(width));
        to.extend(of_nodes.map(|((at, place, _), state)| ((*at, *place), state.to_vec())));
        Ok(())
    }
}

/// A node whose children are ranked: the index of its replayed place; its place in the pool, and
/// the token and parent that it has there, or none for the root.
type RankedNode = (usize, Option<usize>, Option<(u32, Option<usize>)>);

/// Grows the pools of `count` places, each of `steps` levels. `rank` returns the best tokens after
/// nodes of a depth.
fn grow(
    shapes: &[TreeShape],
    steps: usize,
    count: usize,
    mut rank: impl FnMut(usize, &[RankedNode]) -> Result<Best, EngineError>,
) -> Result<Vec<Pool>, EngineError> {
    let roots: Vec<RankedNode> = (0..count).map(|at| (at, None, None)).collect();
    let first = rank(0, &roots)?;
    let mut grown: Vec<Levels<'_>> = first.iter().map(|first| Levels::new(shapes, first)).collect();
    for depth in 1..steps {
        let parents: Vec<Vec<usize>> = grown.iter().map(Levels::parents).collect();
        let node = |at: usize, place: usize| {
            let proposal = grown[at].pool().all()[place];
            (at, Some(place), Some((proposal.token, proposal.parent)))
        };
        let nodes: Vec<RankedNode> = (parents.iter().enumerate())
            .flat_map(|(at, places)| places.iter().map(move |place| (at, *place)))
            .map(|(at, place)| node(at, place))
            .collect();
        let mut best = if nodes.is_empty() { Vec::new() } else { rank(depth, &nodes)? }.into_iter();
        for (levels, parents) in grown.iter_mut().zip(&parents) {
            // Results are in the order of the nodes, in which those of one place follow each other.
            let own: Vec<_> = best.by_ref().take(parents.len()).collect();
            levels.push(parents, &own);
        }
    }
    Ok(grown.into_iter().map(Levels::into_pool).collect())
}

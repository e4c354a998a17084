//! Replay: what the draft would have proposed at positions of known texts.
//!
//! The host grows the pools with [`Expansion`], whose rule is that of the device's kernels, and
//! lays out the rows of each draft pass over all places together. So beams that cannot matter to a
//! text are not run.

use std::ops::Range;

use kernels::{
    device::{Buffer, DeviceError},
    launch::{Groups, Proposals, Rows},
};
use rayon::prelude::*;
use schemas::tree::TreeShape;

use super::{
    CudaBackend,
    limits::LOGIT_ROWS,
    machine::Pass,
    supported::check_shape,
    weights::{DraftWeights, StepwiseWeights},
    workspace::WorkspaceShape,
};
use crate::{
    backend::{Pool, PrefillChunk, ProbabilityQuery, ReplayPlace, Slot},
    error::EngineError,
    sampling,
    tree::{BeamRow, Expansion, grow, largest},
};

/// Maximum number of places whose pools grow together, if memory allows.
const PLACES: usize = 256;

/// States after positions of a text, kept on the device.
pub struct CudaTrace {
    positions: Range<usize>,
    /// The draft's, `[positions, draft hidden]`.
    draft: Buffer,
    /// The target's states after its final norm, `[positions, hidden]`, if requested.
    target: Option<Buffer>,
}

/// The best tokens after each row, with log-probabilities.
pub(super) type Best = Vec<Vec<(u32, f32)>>;

impl CudaBackend {
    /// Starts to keep states of a slot that is about to be prefilled.
    pub(super) fn start_trace(&mut self, slot: Slot, positions: Range<usize>, target: bool) -> Result<(), EngineError> {
        let draft_row = self.draft_row()?;
        let target_row = if target { self.target_row() } else { 0 };
        let open = self.slots.get_mut(slot)?;
        if open.read > positions.start {
            let (read, start) = (open.read, positions.start);
            return Err(EngineError::Device(format!("slot {} has read {read} tokens, past {start}", slot.0)));
        }
        let count = positions.len();
        let needed = (count * (draft_row + target_row)) as u64;
        // Half of the free memory is left to the passes.
        // The least of all ranks, which must refuse together.
        let available = self.machine.least(self.device.memory()?.0 / 2)?;
        if needed > available {
            return Err(EngineError::OutOfMemory {
                what: format!("keeping the states of {count} positions for replay"),
                needed_mib: needed >> 20,
                available_mib: available >> 20,
                hint: "replay shorter texts, or lower --mem-fraction-static".into(),
            });
        }
        open.trace = Some(CudaTrace {
            positions,
            // Rows of a draft without states have no bytes, but a buffer is never empty.
            draft: self.device.zeros((count * draft_row).max(16))?,
            target: if target { Some(self.device.zeros(count * target_row)?) } else { None },
        });
        Ok(())
    }

    /// Keeps the target's states of pieces whose last rows are `lasts`. Must run before the draft's
    /// pass, which overwrites them.
    pub(super) fn keep_target(&self, chunks: &[PrefillChunk<'_>], lasts: &[i32]) -> Result<(), EngineError> {
        self.keep(chunks, lasts, &self.work.normed, self.target_row(), |trace| trace.target.as_ref())
    }

    /// Keeps the draft's states of pieces.
    pub(super) fn keep_draft(&self, chunks: &[PrefillChunk<'_>], lasts: &[i32]) -> Result<(), EngineError> {
        self.keep(chunks, lasts, &self.work.states[0], self.draft_row()?, |trace| Some(&trace.draft))
    }

    fn keep(
        &self,
        chunks: &[PrefillChunk<'_>],
        lasts: &[i32],
        from: &Buffer,
        row: usize,
        to: impl Fn(&CudaTrace) -> Option<&Buffer>,
    ) -> Result<(), EngineError> {
        for (chunk, last) in chunks.iter().zip(lasts) {
            let Some(trace) = self.trace_of(chunk.slot) else { continue };
            let rows = chunk.rows_within(&trace.positions);
            if let (Some(to), false) = (to(trace), rows.is_empty() || row == 0) {
                let begin = *last as usize + 1 - chunk.tokens.len();
                let at = chunk.start + rows.start - trace.positions.start;
                let from = from.range((begin + rows.start) * row..(begin + rows.end) * row);
                self.device.copy(to.range(at * row..(at + rows.len()) * row), from)?;
            }
        }
        Ok(())
    }

    /// Grows the pools of places, as many together as there is room for.
    pub(super) fn run_pools(
        &mut self,
        places: &[ReplayPlace<'_>],
        shapes: &[TreeShape],
    ) -> Result<Vec<Pool>, EngineError> {
        let mut pools = Vec::with_capacity(places.len());
        if matches!(self.machine.draft, Some(DraftWeights::Block(_))) {
            shapes.iter().try_for_each(|shape| check_shape(&self.machine, *shape))?;
            let extent = |places| WorkspaceShape::of_rounds(self.machine.nodes(), shapes, places);
            let extents: Vec<_> = halved(PLACES).map(|places| (places, extent(places))).collect();
            let together = self.make_room(extents)?;
            for places in places.chunks(together) {
                pools.extend(self.grow_blocks(places, shapes)?);
            }
            return Ok(pools);
        }
        let shape = largest(shapes);
        check_shape(&self.machine, shape)?;
        let TreeShape { num_steps: steps, topk, .. } = shape;
        let scratch = shape.beam_rows();
        // The host ranks candidates here, so the device needs room for beams only, not for pools
        // and trees.
        let extent = |places| WorkspaceShape {
            rows: places * topk,
            batch: places,
            steps,
            pool: 1,
            scratch,
            topk,
            ranked: topk,
            block: 0,
            given: 0,
            verified: 0,
            budget: 0,
            branches: topk,
        };
        let together = self.make_room(halved(PLACES).map(|places| (places, extent(places))).collect())?;
        for places in places.chunks(together) {
            pools.extend(self.expand(places, shape)?);
        }
        Ok(pools)
    }

    /// Allocates the first memory that fits, of sizes for numbers of places; returns that number.
    fn make_room(&mut self, extents: Vec<(usize, WorkspaceShape)>) -> Result<usize, EngineError> {
        for (places, extent) in extents {
            match self.grow(extent) {
                Ok(()) => return Ok(places),
                // Fewer places per pass give the same pools, only later.
                Err(EngineError::OutOfMemory { .. }) if places > 1 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(1)
    }

    fn expand(&self, places: &[ReplayPlace<'_>], shape: TreeShape) -> Result<Vec<Pool>, EngineError> {
        let draft = self.machine.draft.as_ref().and_then(DraftWeights::stepwise).ok_or_else(no_draft)?;
        let row = self.draft_row()?;
        for (at, place) in places.iter().enumerate() {
            let trace = self.trace_of(place.slot);
            let last = place.position.checked_sub(1).filter(|_| self.holds(place.slot, place.position));
            let kept = last.zip(trace).and_then(|(last, trace)| Some((&trace.draft, trace.row(last)?)));
            let (kept, from) = kept.ok_or_else(|| not_kept(place.slot, place.position))?;
            let to = self.work.states[0].range(at * row..(at + 1) * row);
            self.device.copy(to, kept.range(from * row..(from + 1) * row))?;
        }
        let first = self.best(
            draft,
            self.machine.ranked_states(draft, &self.work, None, places.len())?,
            places.len(),
            shape.topk,
        )?;
        let prune = |at: usize, tree: &mut Expansion| tree.prune(places[at].text, places[at].wanted);
        let trees = grow(shape, &first, prune, |step, beams| {
            self.lay_out(places, shape, step, beams)?;
            self.machine.place_rows(draft, &self.arrays, beams.len(), false)?;
            let arrays = &self.arrays;
            let count = beams.chunk_by(|a, b| a.tree == b.tree).count();
            let groups = Groups::Ranges { first: arrays.group_first.slice(), count, largest: shape.topk };
            let pass = Pass::new(beams.len(), groups, arrays.branches(), arrays, &self.work);
            let (from, to) = ((step - 1) % 2, step % 2);
            self.machine.gather_own(pass)?;
            let x = self.machine.step(draft, pass, &self.work.states[from], Some(arrays.source.slice()), to)?;
            self.best(draft, x, beams.len(), shape.topk)
        })?;
        Ok(trees.into_iter().map(Expansion::into_pool).collect())
    }

    /// Writes the row arrays of a draft pass to the device, laid out as in a round.
    fn lay_out(
        &self,
        places: &[ReplayPlace<'_>],
        shape: TreeShape,
        step: usize,
        beams: &[BeamRow<'_>],
    ) -> Result<(), DeviceError> {
        let scratch = shape.beam_rows();
        let arrays = &self.arrays;
        let cache_row = |row: &BeamRow<'_>, beam: usize| (self.machine.cache_rows + row.tree * scratch + beam) as i32;
        let column = |of: &dyn Fn(&BeamRow<'_>) -> i32| beams.iter().map(of).collect::<Vec<i32>>();
        let mut own = vec![0; beams.len() * arrays.own_stride];
        for (own, row) in own.chunks_exact_mut(arrays.own_stride).zip(beams) {
            own.iter_mut().zip(&row.beam.path).for_each(|(own, beam)| *own = cache_row(row, *beam));
        }
        let mut first = vec![0];
        for group in beams.chunk_by(|a, b| a.tree == b.tree) {
            first.push(first.last().copied().unwrap_or_default() + group.len() as i32);
        }
        let position = |row: &BeamRow<'_>| places[row.tree].position as i32;
        let write = |row: &BeamRow<'_>| row.beam.path.last().map_or(-1, |beam| cache_row(row, *beam));
        for (to, values) in [
            (&arrays.token, column(&|row| row.beam.token as i32)),
            // All beams of a depth share one position; at the first depth it is the root's.
            (&arrays.position, column(&|row| position(row) + step as i32 - 1)),
            (&arrays.write, column(&write)),
            (&arrays.slot, column(&|row| places[row.tree].slot.0 as i32)),
            (&arrays.prefix, column(&position)),
            (&arrays.own_count, column(&|row| row.beam.path.len() as i32)),
            (&arrays.source, column(&|row| row.source as i32)),
            (&arrays.own, own),
            (&arrays.group_first, first),
        ] {
            self.device.write(to.slice(), &values)?;
        }
        Ok(())
    }

    /// Reads the draft's proposals for rows back to the host.
    fn best(&self, draft: StepwiseWeights<'_>, x: Rows<'_>, rows: usize, topk: usize) -> Result<Best, EngineError> {
        let (ids, logprobs) = (self.round.ids.slice(), self.round.logprobs.slice());
        let head = draft.proposal_head(&self.machine.target);
        self.machine.propose(head, &self.work, x, rows, topk, Proposals { ids, logprobs })?;
        self.read_best(rows, topk, head.vocabulary)
    }

    /// Reads ranked rows back to the host, for a draft that proposes this many tokens.
    pub(super) fn read_best(&self, rows: usize, topk: usize, vocabulary: usize) -> Result<Best, EngineError> {
        let (ids, logprobs) = (self.round.ids.slice(), self.round.logprobs.slice());
        let (mut tokens, mut scores) = (vec![0_i32; rows * topk], vec![0.0_f32; rows * topk]);
        self.device.read(ids, &mut tokens)?;
        self.device.read(logprobs, &mut scores)?;
        // A smaller vocabulary leaves the rest of each row unused.
        let width = topk.min(vocabulary);
        let pairs = |(tokens, scores): (&[i32], &[f32])| {
            tokens.iter().zip(scores).take(width).map(|(token, score)| (*token as u32, *score)).collect()
        };
        Ok(tokens.chunks_exact(topk).zip(scores.chunks_exact(topk)).map(pairs).collect())
    }

    /// The target's probabilities of tokens, from its kept states.
    pub(super) fn run_probabilities(&self, requested: &[ProbabilityQuery]) -> Result<Vec<Vec<f64>>, EngineError> {
        let row = self.target_row();
        let hidden = self.machine.target.spec.hidden;
        let vocabulary = self.machine.target.spec.vocabulary;
        let mut probabilities = Vec::with_capacity(requested.len());
        for requested in requested.chunks(LOGIT_ROWS.min(self.extent.rows)) {
            let mut samplings = Vec::with_capacity(requested.len());
            for (at, requested) in requested.iter().enumerate() {
                let open = self.slots.find(requested.slot);
                let trace = open
                    .and_then(|open| open.trace.as_ref())
                    .filter(|_| self.holds(requested.slot, requested.position + 1));
                let kept = trace.and_then(|trace| Some((trace.target.as_ref()?, trace.row(requested.position)?)));
                let (Some((kept, from)), Some(open)) = (kept, open) else {
                    return Err(not_kept(requested.slot, requested.position));
                };
                let to = self.work.added.range(at * row..(at + 1) * row);
                self.device.copy(to, kept.range(from * row..(from + 1) * row))?;
                samplings.push(&open.sampling);
            }
            let logits = self.read_logits(Rows { at: self.work.added.slice(), stride: hidden }, requested.len())?;
            let rows = logits.par_chunks_exact(vocabulary).zip(requested).zip(samplings);
            let of = |((logits, requested), sampling): ((&[f32], &ProbabilityQuery), _)| {
                sampling::probabilities(logits, sampling, &requested.tokens)
            };
            probabilities.par_extend(rows.map(of));
        }
        Ok(probabilities)
    }

    pub(super) fn trace_of(&self, slot: Slot) -> Option<&CudaTrace> {
        self.slots.find(slot)?.trace.as_ref()
    }

    /// Whether this many tokens of a slot are in the cache.
    pub(super) fn holds(&self, slot: Slot, tokens: usize) -> bool {
        self.slots.find(slot).is_some_and(|open| open.read >= tokens)
    }

    /// Bytes of a state of the target.
    fn target_row(&self) -> usize {
        self.machine.target.spec.hidden * self.options.element.bytes()
    }

    /// Bytes of a state of the draft.
    fn draft_row(&self) -> Result<usize, EngineError> {
        let draft = self.machine.draft.as_ref().ok_or_else(no_draft)?;
        Ok(draft.state_width() * self.options.element.bytes())
    }
}

/// A number, and its halves down to 1.
fn halved(number: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(number), |number| Some(number / 2).filter(|half| *half > 0))
}

impl CudaTrace {
    /// Positions at which the target's states are kept.
    pub(super) fn target_positions(&self) -> Range<usize> {
        if self.target.is_some() { self.positions.clone() } else { 0..0 }
    }

    /// The row of a position.
    fn row(&self, position: usize) -> Option<usize> {
        self.positions.contains(&position).then(|| position - self.positions.start)
    }
}

pub(super) fn no_draft() -> EngineError {
    EngineError::Configuration("replay needs a draft, but none is loaded; give --speculative-draft-model-path".into())
}

pub(super) fn not_kept(slot: Slot, position: usize) -> EngineError {
    EngineError::Device(format!("slot {} has kept no state for a replay at position {position}", slot.0))
}

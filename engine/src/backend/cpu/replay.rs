//! Replay: what the draft would have proposed at positions of a text that has been prefilled.

use std::ops::Range;

use rayon::prelude::*;
use schemas::tree::TreeShape;

use super::{CpuBackend, draft::Root};
use crate::{
    backend::{Pool, PrefillChunk, ProbabilityQuery, ReplayPlace, Slot},
    error::EngineError,
    memory, sampling,
};

/// Maximum number of beams of a draft pass, and of rows of logits, in memory at a time.
const MOST_ROWS: usize = 256;

/// Kept states after positions of a text.
#[derive(Clone, Debug)]
pub struct CpuTrace {
    positions: Range<usize>,
    /// Number of these positions that were read.
    read: usize,
    /// The draft's, `[positions read, draft hidden]`.
    draft: Vec<f32>,
    /// The target's after its final norm, `[positions read, hidden]`, if requested.
    target: Option<Vec<f32>>,
}

impl CpuTrace {
    /// Keeps the requested states of a piece that continues the text processed so far.
    pub fn keep(&mut self, chunk: &PrefillChunk<'_>, draft: &[f32], target: &[f32]) {
        let (rows, count) = (chunk.rows_within(&self.positions), chunk.tokens.len());
        let part = |all: &[f32], width: usize| all[rows.start * width..rows.end * width].to_vec();
        self.read += rows.len();
        self.draft.extend(part(draft, draft.len() / count.max(1)));
        if let Some(kept) = &mut self.target {
            kept.extend(part(target, target.len() / count.max(1)));
        }
    }

    /// Positions at which the target's states are kept.
    pub fn target_positions(&self) -> Range<usize> {
        if self.target.is_some() { self.positions.clone() } else { 0..0 }
    }

    /// The draft's state after a position.
    fn draft_row(&self, width: usize, position: usize) -> Option<&[f32]> {
        self.row(&self.draft, width, position)
    }

    /// The target's state after a position.
    fn target_row(&self, width: usize, position: usize) -> Option<&[f32]> {
        self.row(self.target.as_ref()?, width, position)
    }

    fn row<'a>(&self, kept: &'a [f32], width: usize, position: usize) -> Option<&'a [f32]> {
        let at = position.checked_sub(self.positions.start).filter(|at| *at < self.read)?;
        kept.get(at * width..(at + 1) * width)
    }
}

impl CpuBackend {
    /// Starts to keep states of a slot that is about to be prefilled.
    pub(super) fn start_trace(&mut self, slot: Slot, positions: Range<usize>, target: bool) -> Result<(), EngineError> {
        let Some(draft) = &self.draft else {
            return Err(EngineError::Configuration(
                "replay needs a draft, but none is loaded; give --speculative-draft-model-path".into(),
            ));
        };
        let draft_width = draft.state_width();
        let target_width = if target { self.target.hidden_size() } else { 0 };
        let state = self.slots.get_mut(slot)?;
        // States are kept as a prompt is read: those of positions already read are lost.
        if state.length > positions.start {
            let (length, start) = (state.length, positions.start);
            return Err(EngineError::Device(format!("slot {} has read {length} tokens, past {start}", slot.0)));
        }
        let count = positions.len();
        let needed = (count * (draft_width + target_width) * size_of::<f32>()) as u64;
        // Half of the free memory is left to the passes.
        if let Some(available) = memory::available().map(|available| available / 2).filter(|most| needed > *most) {
            return Err(EngineError::OutOfMemory {
                what: format!("keeping the states of {count} positions for replay"),
                needed_mib: needed >> 20,
                available_mib: available >> 20,
                hint: "replay shorter texts, or lower --mem-fraction-static".into(),
            });
        }
        state.trace = Some(CpuTrace {
            positions,
            read: 0,
            draft: Vec::with_capacity(count * draft_width),
            target: target.then(|| Vec::with_capacity(count * target_width)),
        });
        Ok(())
    }

    /// Fills the pools of places, as many together as there is room for.
    pub(super) fn run_pools(
        &mut self,
        places: &[ReplayPlace<'_>],
        shapes: &[TreeShape],
    ) -> Result<Vec<Pool>, EngineError> {
        let scratch = self.capacity.pages * self.capacity.page_size;
        let Some(draft) = &self.draft else {
            return Err(EngineError::Configuration("replay needs a draft, but none is loaded".into()));
        };
        let width = draft.state_width();
        let rows = shapes.iter().map(|shape| draft.nodes().passes(*shape).1).max().unwrap_or(1);
        let mut pools = Vec::with_capacity(places.len());
        // A shape may have more rows than the limit by itself: one place at a time still runs.
        for places in places.chunks((MOST_ROWS / rows.max(1)).max(1)) {
            let states = self.slots.get_all(places.iter().map(|place| place.slot))?;
            let mut roots = Vec::with_capacity(places.len());
            for (state, place) in states.iter().zip(places) {
                // A draft starts from the state before the root, which the first token does not
                // have.
                let last = place.position.checked_sub(1);
                let kept = last.and_then(|last| state.trace.as_ref()?.draft_row(width, last));
                let (Some(prefix), Some(kept)) = (state.rows.get(..place.position + draft.ahead()), kept) else {
                    return Err(not_kept(place.slot, place.position));
                };
                let followed = Some((place.text, place.wanted));
                roots.push(Root { token: place.root, prefix, state: kept, followed });
            }
            pools.extend(draft.pools(&mut self.draft_caches, scratch, shapes, &roots));
        }
        Ok(pools)
    }

    /// The target's probabilities of tokens, from its kept states.
    pub(super) fn run_probabilities(&self, requested: &[ProbabilityQuery]) -> Result<Vec<Vec<f64>>, EngineError> {
        let width = self.target.hidden_size();
        let mut probabilities = Vec::with_capacity(requested.len());
        for requested in requested.chunks(MOST_ROWS) {
            let states = self.slots.get_all(requested.iter().map(|requested| requested.slot))?;
            let mut hidden = Vec::with_capacity(requested.len() * width);
            for (state, requested) in states.iter().zip(requested) {
                let kept = state.trace.as_ref().and_then(|trace| trace.target_row(width, requested.position));
                hidden.extend(kept.ok_or_else(|| not_kept(requested.slot, requested.position))?);
            }
            let logits = self.target.logits(&hidden);
            let rows = logits.par_chunks_exact(self.capacity.vocab_size).zip(requested).zip(&states);
            probabilities.par_extend(rows.map(|((logits, requested), state)| {
                sampling::probabilities(logits, &state.sampling, &requested.tokens)
            }));
        }
        Ok(probabilities)
    }
}

fn not_kept(slot: Slot, position: usize) -> EngineError {
    EngineError::Device(format!("slot {} has kept no state for a replay at position {position}", slot.0))
}

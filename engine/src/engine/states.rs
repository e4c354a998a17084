//! The target's hidden states after each position of a text, on which a draft is trained.

use std::ops::Range;

use kernels::device::Element;

use super::Engine;
use crate::{
    backend::{PrefillChunk, Replay, Slot, StateRow, TargetStates, WindowChange},
    error::EngineError,
    pages::PagePool,
    request::SamplingParams,
};

/// A target's states after all positions of a text but the last. Row i belongs to token i.
#[derive(Clone, Debug, PartialEq)]
pub struct TextStates {
    /// Number of positions.
    pub positions: usize,
    /// The captured layers that the draft reads, `[positions, captured layers · hidden]`; empty if
    /// it reads the final state.
    pub captured: Vec<f32>,
    /// The final state after the target's final norm, `[positions, hidden]`.
    pub last: Vec<f32>,
}

impl Engine {
    /// Runs the target over a text of at least two tokens and returns its states. They are the
    /// values that rounds pass to the draft, rounded as on the device. Only while idle; clears the
    /// prefix cache.
    ///
    /// # Errors
    /// When a request is running, no draft is loaded, the text does not fit, or the device fails.
    pub fn states(&mut self, tokens: &[u32]) -> Result<TextStates, EngineError> {
        read(self.scheduler.lend()?, tokens)
    }
}

fn read(backend: &mut dyn Replay, tokens: &[u32]) -> Result<TextStates, EngineError> {
    let capacity = backend.capacity();
    let row = backend.state_row().ok_or_else(|| {
        EngineError::Configuration("states of texts need a draft that reads them: load a draft".into())
    })?;
    let refused =
        |reason: String| Err(EngineError::InvalidRequest(format!("a text of {} tokens {reason}", tokens.len())));
    let positions = tokens.len().saturating_sub(1);
    let pages = (positions + capacity.draft_ahead).div_ceil(capacity.page_size.max(1));
    if positions == 0 {
        return refused("is too short to train on: expected at least 2 tokens".into());
    }
    if tokens.len() > capacity.context_length {
        return refused(format!("is longer than the context of {}", capacity.context_length));
    }
    let (slot, mut pool) = (Slot(0), PagePool::new(&capacity));
    let Some((mut table, _)) = pool.open(&[], pages) else {
        return refused(format!("needs {pages} pages, but the KV cache has {}", capacity.pages));
    };
    backend.open(slot, &SamplingParams::default(), table.ids(), 0)?;
    let covers = &mut |positions| pool.cover(&mut table, &[], positions).then(|| pool.take_window_changes());
    let states = traced(backend, slot, tokens, &row, covers);
    backend.close(slot);
    pool.close(table, &[]);
    change_windows(backend, &pool.take_window_changes())?;
    states
}

/// Tells the device about changes of window pages.
fn change_windows(backend: &mut dyn Replay, changes: &[WindowChange]) -> Result<(), EngineError> {
    if changes.is_empty() { Ok(()) } else { backend.change_windows(changes) }
}

/// `covers` gives the pages of positions their window pages; `None` if there are too few.
fn traced(
    backend: &mut dyn Replay,
    slot: Slot,
    tokens: &[u32],
    row: &StateRow,
    covers: &mut dyn FnMut(Range<usize>) -> Option<Vec<WindowChange>>,
) -> Result<TextStates, EngineError> {
    let positions = tokens.len() - 1;
    let most = backend.capacity().prefill_chunk.max(1);
    backend.trace(slot, 0..positions, true)?;
    let mut states = TextStates { positions, captured: Vec::new(), last: Vec::new() };
    let mut bytes = Vec::new();
    for start in (0..positions).step_by(most) {
        let end = (start + most).min(positions);
        let chunk = PrefillChunk { slot, tokens: &tokens[start..end], start, next: Some(tokens[end]) };
        let changes = covers(start..end)
            .ok_or_else(|| EngineError::Device("there are too few window pages for one piece of a text".into()))?;
        change_windows(backend, &changes)?;
        bytes.clear();
        backend.prefill_traced(&[chunk], TargetStates::Out(&mut bytes))?;
        let (features, last) = bytes.split_at(((end - start) * row.features).min(bytes.len()));
        if row.captured.is_empty() {
            decode(features, &row.element, &mut states.last)?;
        } else {
            decode(features, &row.element, &mut states.captured)?;
            decode(last, &row.element, &mut states.last)?;
        }
    }
    Ok(states)
}

/// Appends the decoded elements of a type to `to`.
fn decode(bytes: &[u8], element: &str, to: &mut Vec<f32>) -> Result<(), EngineError> {
    let known = [Element::F32, Element::F16, Element::BF16].into_iter().find(|known| known.name() == element);
    let known = known.ok_or_else(|| EngineError::Device(format!("states of type {element} cannot be read")))?;
    to.extend(known.decode(bytes));
    Ok(())
}

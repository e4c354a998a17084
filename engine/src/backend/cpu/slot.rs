//! State that the backend keeps for a running request.

use super::{replay::CpuTrace, target::PassOutput};
use crate::{
    adjust::Adjuster,
    backend::{PageId, Slot, TokenLogprobs, slot_table::SlotTable},
    error::EngineError,
    request::SamplingParams,
};

/// The state of an open slot.
#[derive(Debug)]
pub struct SlotState {
    /// How its tokens are chosen.
    pub sampling: SamplingParams,
    /// The cache row of each position.
    pub rows: Vec<u32>,
    /// Number of positions in the caches.
    pub length: usize,
    /// The last produced token, which is not in the caches yet: the root of the next tree.
    pub root: u32,
    /// The draft's state after the last position that it has processed, which may have no values;
    /// `None` if it does not follow the sequence.
    pub drafted: Option<Vec<f32>>,
    /// The last positions that the draft has not processed.
    pub pending: PendingDraft,
    /// States kept for replay.
    pub trace: Option<CpuTrace>,
    /// Changes its logits, if requested.
    pub adjuster: Option<Adjuster>,
    /// Log-probabilities of the prompt so far, if requested.
    pub prompt_logprobs: Vec<TokenLogprobs>,
}

/// Positions at the end of a sequence that the draft has not processed.
#[derive(Clone, Debug, Default)]
pub struct PendingDraft {
    /// The token after each position.
    pub tokens: Vec<u32>,
    /// Output of the target's pass at these positions.
    pub pass: PassOutput,
}

impl SlotState {
    /// A sequence on some pages; the caches hold its first `length` positions.
    pub fn new(sampling: SamplingParams, pages: &[PageId], page_size: usize, length: usize) -> Self {
        let mut state = Self {
            sampling,
            rows: Vec::new(),
            length,
            root: 0,
            drafted: None,
            pending: PendingDraft::default(),
            trace: None,
            adjuster: None,
            prompt_logprobs: Vec::new(),
        };
        state.extend(pages, page_size);
        state
    }

    /// Adds pages at the end.
    pub fn extend(&mut self, pages: &[PageId], page_size: usize) {
        let page_size = page_size as u32;
        self.rows.extend(pages.iter().flat_map(|page| page.0 * page_size..(page.0 + 1) * page_size));
    }

    /// The cache rows of the first positions.
    pub fn rows_before(&self, end: usize) -> Result<&[u32], EngineError> {
        self.rows
            .get(..end)
            .ok_or_else(|| EngineError::Device(format!("{end} positions do not fit in {} cache rows", self.rows.len())))
    }

    /// Cache rows for the `count` positions after the sequence.
    pub fn rows_ahead(&self, count: usize) -> Result<&[u32], EngineError> {
        self.rows.get(self.length..self.length + count).ok_or_else(|| {
            let (length, rows) = (self.length, self.rows.len());
            EngineError::Device(format!("{count} positions do not fit after {length} in {rows} cache rows"))
        })
    }
}

impl SlotTable<SlotState> {
    /// Takes the adjusters of some open slots, to use them while the slots are borrowed;
    /// [`put_back`](Self::put_back) returns them.
    pub fn take_adjusters(&mut self, slots: impl IntoIterator<Item = Slot>) -> Vec<Option<Adjuster>> {
        slots.into_iter().map(|slot| self.find_mut(slot)?.adjuster.take()).collect()
    }

    /// Returns adjusters to their slots.
    pub fn put_back(&mut self, slots: impl IntoIterator<Item = Slot>, adjusters: Vec<Option<Adjuster>>) {
        for (slot, adjuster) in slots.into_iter().zip(adjusters) {
            if let Some(state) = self.find_mut(slot) {
                state.adjuster = adjuster;
            }
        }
    }

    /// Number of positions of a slot that the draft has not processed.
    pub fn pending_draft_tokens(&self, slot: Slot) -> usize {
        self.find(slot).map_or(0, |state| state.pending.tokens.len())
    }
}

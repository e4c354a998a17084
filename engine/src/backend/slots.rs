//! Running requests on a device: their pages, their states, and what adjusts their logits.

use super::{Describe, TokenLogprobs};
use crate::{error::EngineError, request::SamplingParams};

/// One page of the KV cache (target and draft share the numbering).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

/// The place of one running request on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// A page of the caches of layers with a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowPage(pub u32);

/// The window page of a page from now on; `None` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowChange {
    /// The page.
    pub page: PageId,
    /// Its window page.
    pub to: Option<WindowPage>,
}

/// A place for a copy of a slot's state: what linear attention keeps of a sequence beside its
/// pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Snapshot(pub u32);

/// Opens and closes places for requests.
pub trait Slots: Describe {
    /// Opens a slot. `pages` must hold the prompt and what its first round fills;
    /// [`extend`](Self::extend) adds others. The first `cached` positions, which fill whole pages,
    /// already hold the beginning of the prompt, in the target's caches and in the draft's: its
    /// first piece starts after them. These pages may be shared by several slots and are only read.
    ///
    /// # Errors
    /// When the slot is in use, a page does not exist, or the pages hold fewer positions.
    fn open(
        &mut self,
        slot: Slot,
        sampling: &SamplingParams,
        pages: &[PageId],
        cached: usize,
    ) -> Result<(), EngineError>;

    /// Adds pages at the end of a slot's sequence, for rounds that are launched after it. A round
    /// needs room for the sequence before it, at its longest after the rounds in flight, and for
    /// its tree.
    ///
    /// # Errors
    /// When the slot is not open, a page does not exist, or there are more than a sequence can
    /// have.
    fn extend(&mut self, slot: Slot, pages: &[PageId]) -> Result<(), EngineError>;

    /// Changes the window pages of pages, in this order, for passes that are launched after it.
    /// Each page whose rows such a pass writes, or whose positions it sees within the window, must
    /// have one. Only if the backend has window pages
    /// ([`Capacity::windows`](super::Capacity::windows)).
    ///
    /// # Errors
    /// When a page or window page does not exist, or a window page would belong to two pages.
    fn change_windows(&mut self, changes: &[WindowChange]) -> Result<(), EngineError>;

    /// Copies the state that a slot has after all pieces of its prompt so far to a place, for later
    /// sequences with the same beginning. No effect if slots have no state.
    ///
    /// # Errors
    /// When the slot is not open or the place does not exist.
    fn keep(&mut self, _slot: Slot, _to: Snapshot) -> Result<(), EngineError> {
        Ok(())
    }

    /// Copies a kept state to a slot that was opened with as many cached positions as the state has
    /// read, before its first piece. Without it, a slot's state is that of an empty sequence.
    ///
    /// # Errors
    /// As [`keep`](Self::keep).
    fn resume(&mut self, _slot: Slot, _from: Snapshot) -> Result<(), EngineError> {
        Ok(())
    }

    /// Sets what precedes the next token of a slot that was opened with adjustments
    /// ([`SamplingParams::adjustments`]): its whole prompt and the output after it, cached or not;
    /// and the tokens that end it.
    ///
    /// # Errors
    /// When the slot is not open.
    fn adjust(&mut self, slot: Slot, prompt: &[u32], output: &[u32], ends: &[u32]) -> Result<(), EngineError>;

    /// Gives the tokens of a slot's sequence to a backend that looks drafts up by itself: its whole
    /// prompt and the output after it, cached or not. After [`open`](Self::open), before its first
    /// round.
    ///
    /// # Errors
    /// When the slot is not open, or the tokens do not fit.
    fn remember(&mut self, slot: Slot, prompt: &[u32], output: &[u32]) -> Result<(), EngineError>;

    /// Log-probabilities of a slot's prompt, once it has been processed.
    fn prompt_logprobs(&mut self, slot: Slot) -> Vec<TokenLogprobs>;

    /// Why a slot has no further token, if its grammar is the reason.
    fn grammar_failure(&self, slot: Slot) -> Option<String>;

    /// Releases a slot. Its pages may be reused by the next [`open`](Self::open); their contents
    /// stay until then. Never while a round in flight includes the slot.
    fn close(&mut self, slot: Slot);
}

//! Processing of prompts.

use std::{ops::Range, time::Duration};

use super::{Slot, Slots, Yield};
use crate::error::EngineError;

/// A piece of a prompt.
#[derive(Clone, Copy, Debug)]
pub struct PrefillChunk<'a> {
    /// The slot of the request.
    pub slot: Slot,
    /// The tokens of this piece; never empty.
    pub tokens: &'a [u32],
    /// Position of the first token.
    pub start: usize,
    /// The prompt token that follows this piece; `None` if the prompt ends here. The draft needs
    /// it, since its row i reads token i + 1.
    pub next: Option<u32>,
}

impl PrefillChunk<'_> {
    /// The rows of this piece whose positions are within `positions`.
    pub fn rows_within(&self, positions: &Range<usize>) -> Range<usize> {
        let row = |position: usize| position.clamp(self.start, self.start + self.tokens.len()) - self.start;
        row(positions.start)..row(positions.end)
    }

    /// The rows whose next token is at position `from` or later, each with that token. `last` is
    /// the row of this piece's last token.
    pub fn rows_before(&self, from: usize, last: usize) -> impl Iterator<Item = (usize, u32)> {
        let next = self.tokens.iter().skip(1).copied().chain(self.next);
        let rows = (self.start + 1..).zip(last + 1 - self.tokens.len()..).zip(next);
        rows.filter(move |((position, _), _)| *position >= from).map(|((_, row), token)| (row, token))
    }
}

/// The token that follows a prompt. The draft reads a placeholder if there is none.
pub(crate) fn first_token(first: &Option<Yield>) -> u32 {
    first.iter().flat_map(|one| &one.tokens).next().map_or(0, |token| token.id)
}

/// Fails if no token follows the end of a request's prompt.
///
/// # Errors
/// [`EngineError::NotFinite`].
pub(crate) fn expect_finite(first: &[Option<Yield>]) -> Result<(), EngineError> {
    match first.iter().flatten().find_map(|one| one.not_finite) {
        Some(position) => Err(EngineError::NotFinite { position }),
        None => Ok(()),
    }
}

/// Processes prompts.
pub trait Prefill: Slots {
    /// Starts to process pieces of prompts, at most one per slot: by the target, then by the draft.
    /// `first` receives first tokens of prompts that end here, each with the index of its piece,
    /// before the draft processes the prompt. Returns whether some are left to
    /// [`collect_prefill`](Self::collect_prefill): a backend that can process the prompts by the
    /// draft, and run rounds, before the host knows these tokens does not wait for them here. They
    /// are collected before the next prefill.
    ///
    /// # Errors
    /// When the device fails.
    fn prefill(
        &mut self,
        chunks: &[PrefillChunk<'_>],
        first: &mut dyn FnMut(usize, Yield),
    ) -> Result<bool, EngineError>;

    /// Waits until the target has processed the pieces of the last prefill, but not for work after
    /// it. `first` receives the first tokens that it has not received yet, as in
    /// [`prefill`](Self::prefill).
    ///
    /// # Errors
    /// When the device fails.
    fn collect_prefill(&mut self, first: &mut dyn FnMut(usize, Yield)) -> Result<(), EngineError>;

    /// The time that the device has spent in prefills since the last call: in those that were
    /// launched before a collected round, and if nothing is in flight, in all of them. In that case
    /// it waits for them.
    ///
    /// # Errors
    /// When the device fails.
    fn prefill_time(&mut self) -> Result<Duration, EngineError>;

    /// Like [`prefill`](Self::prefill), but waits, and returns the first tokens in the order of the
    /// chunks.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    fn prefill_collecting(&mut self, chunks: &[PrefillChunk<'_>]) -> Result<Vec<Option<Yield>>, EngineError> {
        let mut all = vec![None; chunks.len()];
        let mut take = |at, first| all[at] = Some(first);
        if self.prefill(chunks, &mut take)? {
            self.collect_prefill(&mut take)?;
        }
        Ok(all)
    }
}

//! Target states that are kept after a pass over a text.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::EngineError;

/// What is kept of the target after each position of a text, so that the draft can process the text without it. Caches
/// are not kept: the draft's cache is filled from these states, and probabilities are computed from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateRow {
    /// The type of the elements, as in `--dtype`.
    pub element: String,
    /// The layers on whose entry the residual stream is captured for the draft; none where it sees the final state.
    pub captured: Vec<usize>,
    /// Bytes of what the draft sees.
    pub features: usize,
    /// Bytes of the final state, if probabilities will be needed; 0 if the draft's features are the final state.
    pub last: usize,
}

/// States of a target for pieces of texts: piece by piece, first what the draft sees of each position, then the final
/// states at those positions at which they are [traced](super::Backend::trace).
#[derive(Debug)]
pub enum TargetStates<'a> {
    /// The target runs, and what it leaves is added here.
    Out(&'a mut Vec<u8>),
    /// The target does not run: this is what it left when it did.
    In(&'a [u8]),
}

impl StateRow {
    /// Bytes of a chunk of a text, with final states at some of its positions.
    pub fn bytes(&self, piece: &Range<usize>, wanted: &Range<usize>) -> usize {
        let last = piece.end.min(wanted.end).saturating_sub(piece.start.max(wanted.start));
        piece.len() * self.features + last * self.last
    }
}

/// That a piece is of no text whose states can be kept.
pub(super) fn not_of_a_text() -> EngineError {
    EngineError::Device("states are kept only for traced texts that continue after the piece".into())
}

//! States of a target that are kept after a pass over a text.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::EngineError;

/// Layout of the target's state that is kept after each position of a text, so that the draft can
/// process the text without running the target. Caches are not kept: the draft's cache is filled
/// from these states, and probabilities are computed from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateRow {
    /// The type of the elements, as in `--dtype`.
    pub element: String,
    /// The layers before which the residual stream is captured for the draft; empty if the draft
    /// reads the final state.
    pub captured: Vec<usize>,
    /// Bytes of the features for the draft.
    pub features: usize,
    /// Bytes of the final state, if probabilities will be needed; 0 if the draft's features are the
    /// final state.
    pub last: usize,
}

/// States of a target for pieces of texts, piece by piece: first the features of each position,
/// then the final states at the positions at which they are [traced](super::Replay::trace).
#[derive(Debug)]
pub enum TargetStates<'a> {
    /// The target runs, and its states are appended here.
    Out(&'a mut Vec<u8>),
    /// The target does not run; these are its states from an earlier run.
    In(&'a [u8]),
}

impl StateRow {
    /// Bytes of a chunk of a text, with final states at some of its positions.
    pub fn bytes(&self, piece: &Range<usize>, wanted: &Range<usize>) -> usize {
        let last = piece.end.min(wanted.end).saturating_sub(piece.start.max(wanted.start));
        piece.len() * self.features + last * self.last
    }
}

/// The error for a piece of a text whose states cannot be kept.
pub(super) fn not_of_a_text() -> EngineError {
    EngineError::Device("states are kept only for traced texts that continue after the piece".into())
}

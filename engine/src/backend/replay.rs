//! What a draft would have proposed in texts that are known.

use std::ops::Range;

use schemas::tree::TreeShape;

use super::{Pool, Prefill, PrefillChunk, RequiredTree, Slot, StateRow, TargetStates};
use crate::error::EngineError;

/// A position of a text at which a round could have started.
#[derive(Clone, Copy, Debug)]
pub struct ReplayPlace<'a> {
    /// The slot that has read the text.
    pub slot: Slot,
    /// Position of the root: the number of tokens of the text before it.
    pub position: usize,
    /// The root's token.
    pub root: u32,
    /// The tokens of the text after the root.
    pub text: &'a [u32],
    /// What the pool must answer.
    pub wanted: RequiredTree,
}

/// Tokens whose probability at a position of a text the target computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbabilityQuery {
    /// The slot that has read the text.
    pub slot: Slot,
    /// The position that the tokens would have.
    pub position: usize,
    /// The tokens.
    pub tokens: Vec<u32>,
}

/// Keeps the states of texts, and drafts from them.
pub trait Replay: Prefill {
    /// Keeps, from now until the slot is closed, the states that
    /// [`prefill`](super::Prefill::prefill) computes at these positions, none of which the slot has
    /// read yet: the draft's state and, with `target`, the target's final hidden state.
    ///
    /// # Errors
    /// When the slot is not open, no draft is loaded, or memory for the states is missing; nothing
    /// is allocated then.
    fn trace(&mut self, slot: Slot, positions: Range<usize>, target: bool) -> Result<(), EngineError>;

    /// Layout of the state that [`prefill_traced`](Self::prefill_traced) transfers per position;
    /// `None` without a draft. Constant.
    fn state_row(&self) -> Option<StateRow>;

    /// Like [`prefill`](super::Prefill::prefill), for pieces of traced slots whose texts continue
    /// after the pieces; it returns or accepts the target's states at their positions. If the
    /// target does not run, its caches are unchanged and only the draft can continue.
    ///
    /// # Errors
    /// When a piece does not belong to such a text, the number of states differs from the number of
    /// positions, or the device fails.
    fn prefill_traced(&mut self, chunks: &[PrefillChunk<'_>], states: TargetStates<'_>) -> Result<(), EngineError>;

    /// What the draft would have proposed in rounds that start at these places of texts, for trees
    /// of these shapes, which are of one family
    /// ([`NodeSource::family`](schemas::tree::NodeSource::family)). A pool may omit whatever does
    /// not change the answer for them. The caches of the texts are unchanged.
    ///
    /// # Errors
    /// When the draft's state before a place was not kept, or the device fails.
    fn pools(&mut self, places: &[ReplayPlace<'_>], shapes: &[TreeShape]) -> Result<Vec<Pool>, EngineError>;

    /// The probabilities of tokens at places of texts, under each slot's sampling parameters.
    ///
    /// # Errors
    /// When the target's state at a place was not kept, or the device fails.
    fn probabilities(&mut self, requested: &[ProbabilityQuery]) -> Result<Vec<Vec<f64>>, EngineError>;
}

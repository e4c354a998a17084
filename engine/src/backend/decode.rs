//! Rounds of decoding.

use std::time::Duration;

use schemas::tree::TreeShape;

use super::{DraftTree, LookedUp, ProducedToken, Slot, Slots};
use crate::error::EngineError;

/// Maximum number of tokens of a sequence that the draft may leave pending. Rounds without
/// speculation leave their tokens pending, to be processed together with later ones, since a draft
/// pass over many rows costs little more than one over a few.
pub const MAX_PENDING_DRAFT: usize = 32;

/// One round for a batch.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The tree that is drafted and verified; [`TreeShape::OFF`] for plain decoding.
    pub shape: TreeShape,
    /// The running requests, in any order, each once.
    pub slots: &'a [Slot],
}

/// A launched round that has not been read.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a launched round must be collected"]
pub struct Ticket(pub u64);

/// Who drafts the trees of a round.
#[derive(Clone, Copy, Debug)]
pub enum Drafted<'a> {
    /// The backend alone.
    Here,
    /// The backend, whose trees are joined with what the host has looked up: a chain for each slot,
    /// which may be empty (`tree::joined`).
    Joined(&'a [LookedUp]),
    /// The host: a tree for each slot, of the shape's nodes or fewer.
    ByHost(&'a [DraftTree]),
}

impl<'a> Drafted<'a> {
    /// The chain that is joined with the tree of the slot at this place of the round, if any.
    pub fn chain(self, at: usize) -> Option<&'a LookedUp> {
        if let Self::Joined(chains) = self { chains.get(at) } else { None }
    }
}

/// What a request receives from a round, or at the end of its prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Yield {
    /// A round yields one to steps + 1 tokens, bonus token last; a prompt yields one. Fewer if a
    /// position is `not_finite`.
    pub tokens: Vec<ProducedToken>,
    /// The position after these tokens, if the target's logits for it are not finite. The request
    /// cannot continue then.
    pub not_finite: Option<usize>,
}

impl Yield {
    /// The yield of a prompt: the token that follows it at this position, or `None` if the target's
    /// logits are not finite.
    pub fn from_prompt(token: Option<ProducedToken>, position: usize) -> Self {
        let not_finite = token.is_none().then_some(position);
        Self { tokens: Vec::from_iter(token), not_finite }
    }
}

/// Times of a round as measured on the device; `None` for parts that were not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTiming {
    /// Draft steps and tree selection; `None` on a GPU for a round that drafts nothing.
    pub draft: Option<Duration>,
    /// The target's pass over the tree, and acceptance.
    pub verify: Option<Duration>,
    /// KV compaction and the draft's extension over the accepted tokens; `None` on a GPU for a
    /// round that does neither.
    pub extend: Option<Duration>,
    /// The whole round.
    pub total: Duration,
    /// Time before the round, not included in [`total`](Self::total), in which the device waits for
    /// drafts of the host: the look-up, and the copy of the trees. A backend measures only its
    /// copy; `None` if it drafts itself.
    pub stall: Option<Duration>,
}

/// The result of a round.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundOutput {
    /// In the order of [`Round::slots`].
    pub yields: Vec<Yield>,
    /// Times of its parts.
    pub timing: RoundTiming,
}

/// Runs rounds: draft, verify, accept, extend.
pub trait Decode: Slots {
    /// Prepares for rounds of these shapes at batch sizes up to the largest capture size (a GPU
    /// captures its graphs here). Weights stay loaded. If any shape speculates, the draft follows
    /// sequences that are opened from now on through all their rounds; otherwise it processes only
    /// what is [traced](super::Replay::trace). Only while no slot is open. `captured(done, total)`
    /// reports the progress of graph capture.
    ///
    /// # Errors
    /// When a shape cannot run on this device, or memory for its buffers is missing.
    fn prepare(
        &mut self,
        shapes: &[TreeShape],
        capture_sizes: &[usize],
        captured: &mut dyn FnMut(usize, usize),
    ) -> Result<(), EngineError>;

    /// Starts a round and returns without waiting for it.
    ///
    /// # Errors
    /// When the device fails.
    fn launch(&mut self, round: Round<'_>) -> Result<Ticket, EngineError> {
        self.launch_drafted(round, Drafted::Here)
    }

    /// Like [`launch`](Self::launch), for trees that are drafted by the host or with its help.
    ///
    /// # Errors
    /// When this backend cannot run such a round, or the device fails.
    fn launch_drafted(&mut self, round: Round<'_>, drafted: Drafted<'_>) -> Result<Ticket, EngineError>;

    /// Waits for a launched round. Rounds are collected in the order in which they were launched.
    ///
    /// # Errors
    /// When the device fails.
    fn collect(&mut self, ticket: Ticket) -> Result<RoundOutput, EngineError>;

    /// Number of positions at the end of a slot's sequence that the draft has not processed yet:
    /// its cache rows there are stale. At most [`MAX_PENDING_DRAFT`].
    fn pending_draft_tokens(&self, slot: Slot) -> usize;
}

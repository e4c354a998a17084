//! The interface of a device to the scheduler, at the granularity of a round.
//!
//! The interface carries no tensors: slots, pages and tokens go in, tokens come out. So a GPU backend can keep all
//! state on the device, hold a whole round (draft, verify, accept, extend) in one graph, and let the host launch
//! round n + 1 before it reads round n. The states of a target that replay keeps on disk ([`TargetStates`]) are bytes whose
//! format only the backend knows.

mod choice;
pub mod cpu;
pub mod cuda;
mod states;
pub(crate) mod verify_plan;

use std::{ops::Range, time::Duration};

use schemas::tree::TreeShape;

pub use self::{
    states::{StateRow, TargetStates},
    verify_plan::{VerifyPlan, inner_rows, target_passes},
};
use crate::{error::EngineError, options::EngineOptions, request::SamplingParams, spec::ModelCost};
pub use crate::{
    token::{ProducedToken, TokenLogprobs},
    tree::{Pool, Wanted},
};
pub use kernels::device::GpuState;

/// Tokens of a sequence that the draft may leave pending at most. Rounds without speculation leave theirs to be read
/// together with later ones, since one pass of the draft over many rows costs little more than one over a few.
pub const MAX_PENDING_DRAFT: usize = 32;

/// One page of the KV cache (target and draft share the numbering).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

/// The place of one running request on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// What a backend has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Requests that can be open together.
    pub slots: usize,
    /// Pages of the KV cache.
    pub pages: usize,
    /// Tokens a page.
    pub page_size: usize,
    /// Tokens that one sequence can have, prompt and output together.
    pub context_length: usize,
    /// Tokens of the target's vocabulary.
    pub vocab_size: usize,
    /// Most prompt tokens that one [`PrefillChunk`] should carry.
    pub prefill_chunk: usize,
    /// Rounds that may be launched and not collected, at least 1. With more than one, the host launches the next round
    /// before it knows which requests the last one has ended: their slots run along, and what they yield is dropped.
    pub rounds_in_flight: usize,
}

/// What a backend runs on, for fingerprints and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Such as `cpu` or `cuda:0`.
    pub device: String,
    /// Such as the processor's or the GPU's name.
    pub name: String,
    /// Driver version of a GPU; empty on the CPU.
    pub driver: String,
    /// Worker threads on the CPU, multiprocessors on a GPU.
    pub units: usize,
}

/// A piece of a prompt.
#[derive(Clone, Copy, Debug)]
pub struct PrefillChunk<'a> {
    /// Whose prompt.
    pub slot: Slot,
    /// The tokens of this piece; never empty.
    pub tokens: &'a [u32],
    /// The position of the first of them.
    pub start: usize,
    /// The prompt token that follows this piece; `None` if the prompt ends here. The draft needs it, since its row i
    /// sees token i + 1.
    pub next: Option<u32>,
}

impl PrefillChunk<'_> {
    /// The rows of this piece that lie within positions.
    pub fn rows_within(&self, positions: &Range<usize>) -> Range<usize> {
        let row = |position: usize| position.clamp(self.start, self.start + self.tokens.len()) - self.start;
        row(positions.start)..row(positions.end)
    }

    /// The rows whose next token is at a position from `from` on, each with that token. `last` is the row of this piece's last token.
    pub fn rows_before(&self, from: usize, last: usize) -> impl Iterator<Item = (usize, u32)> {
        let next = self.tokens.iter().skip(1).copied().chain(self.next);
        let rows = (self.start + 1..).zip(last + 1 - self.tokens.len()..).zip(next);
        rows.filter(move |((position, _), _)| *position >= from).map(|((_, row), token)| (row, token))
    }
}

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

/// What one request got from a round, or from the end of its prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Yield {
    /// Of a round one to steps + 1 tokens, bonus token last; of a prompt one; fewer where one is `not_finite`.
    pub tokens: Vec<ProducedToken>,
    /// The position after these tokens, if the target's logits for it are not finite. The request cannot continue then.
    pub not_finite: Option<usize>,
}

impl Yield {
    /// The yield of a prompt: the token that follows it at this position, or `None` if the target's logits are not finite.
    pub fn of_prompt(token: Option<ProducedToken>, position: usize) -> Self {
        let not_finite = token.is_none().then_some(position);
        Self { tokens: Vec::from_iter(token), not_finite }
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

/// Where the time of a round went, as measured on the device; a part that was not measured is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTiming {
    /// Draft steps and tree selection; `None` on a GPU for a round that drafts nothing.
    pub draft: Option<Duration>,
    /// The target's pass over the tree, and acceptance.
    pub verify: Option<Duration>,
    /// KV compaction and the draft's extension over the accepted tokens; `None` on a GPU for a round that does neither.
    pub extend: Option<Duration>,
    /// The whole round.
    pub total: Duration,
}

/// What a round produced.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundOutput {
    /// In the order of [`Round::slots`].
    pub yields: Vec<Yield>,
    /// Where the time went.
    pub timing: RoundTiming,
}

/// A position of a text at which a round could have started.
#[derive(Clone, Copy, Debug)]
pub struct ReplayPlace<'a> {
    /// Who has read the text.
    pub slot: Slot,
    /// Position of the root: the number of tokens of the text before it.
    pub position: usize,
    /// The tokens of the text after the root.
    pub text: &'a [u32],
    /// What the pool has to answer.
    pub wanted: Wanted,
}

/// Tokens whose probability at a position of a text the target computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Who has read the text.
    pub slot: Slot,
    /// Position that the tokens would follow.
    pub position: usize,
    /// Which.
    pub tokens: Vec<u32>,
}

/// Whose weights are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The draft's alone.
    Draft,
    /// The target's, and the draft's with them, which may share some.
    All,
}

/// A device that holds a target, a draft and their caches.
pub trait Backend: Send {
    /// What it has room for. Constant.
    fn capacity(&self) -> Capacity;

    /// What it runs on. Constant.
    fn device(&self) -> DeviceInfo;

    /// The state that the GPU's driver reports now; `None` on a CPU, or if the driver reports none.
    fn gpu_state(&self) -> Option<GpuState> {
        None
    }

    /// What its passes read of memory and multiply. Constant.
    fn cost(&self) -> ModelCost;

    /// Bytes a second that the device reads of its memory, measured now with memory that is free.
    ///
    /// # Errors
    /// When the device fails.
    fn measure_bandwidth(&self) -> Result<f64, EngineError>;

    /// How long graphs have taken to capture so far; `None` on a device without them.
    fn capture_time(&self) -> Option<Duration> {
        None
    }

    /// Accepts this many tokens per round on average from now on, whatever the target says; `None` for what the target
    /// says. Only while no round is under way.
    fn simulate_accept_length(&mut self, length: Option<f32>);

    /// Measures the parts of rounds too from now on ([`RoundTiming::verify`] is there then), or no longer. A device that
    /// holds a round in one graph runs it in several meanwhile, so that it takes slightly longer; one that measures them
    /// in any case has nothing to do. Only while no round is under way.
    fn time_parts(&mut self, _on: bool) {}

    /// Makes ready for rounds of these shapes at batch sizes up to the largest capture size (a GPU captures its graphs
    /// here). Weights stay loaded. If one of them speculates, the draft follows the sequences that are opened from now on
    /// through all their rounds; otherwise it reads nothing but what is [traced](Self::trace). Only while no slot is open.
    /// `captured(done, total)` reports the progress of graph capture.
    ///
    /// # Errors
    /// When a shape cannot run on this device, or memory for its buffers is missing.
    fn prepare(
        &mut self,
        shapes: &[TreeShape],
        capture_sizes: &[usize],
        captured: &mut dyn FnMut(usize, usize),
    ) -> Result<(), EngineError>;

    /// Takes the memory of the caches now, where it is only promised yet, so that none is missing or taken later. Only while
    /// no slot is open.
    fn commit_memory(&mut self) {}

    /// Takes weights of the options' folders in place of the loaded ones, where both are of one description. Slots that are
    /// open continue with what the caches hold, which the old weights have computed. Whether this backend can: one that cannot
    /// has changed nothing.
    ///
    /// # Errors
    /// When the weights cannot be read or are of another description; the loaded ones stay.
    fn exchange(&mut self, _options: &EngineOptions, _which: Exchange) -> Result<bool, EngineError> {
        Ok(false)
    }

    /// Takes a slot into use. `pages` hold the whole sequence: prompt, output and the tree of the last round. The first
    /// `cached` positions, which fill whole pages, hold the beginning of the prompt already, in the target's caches and
    /// in the draft's: its first piece starts there. These pages may be held by several slots and are only read.
    ///
    /// # Errors
    /// When the slot is in use, a page does not exist, or the pages do not hold that many positions.
    fn open(
        &mut self,
        slot: Slot,
        sampling: &SamplingParams,
        pages: &[PageId],
        cached: usize,
    ) -> Result<(), EngineError>;

    /// Takes pieces of prompts in, at most one a slot. Yields the first token of each prompt that ends here, in the
    /// order of the chunks.
    ///
    /// # Errors
    /// When the device fails.
    fn prefill(&mut self, chunks: &[PrefillChunk<'_>]) -> Result<Vec<Option<Yield>>, EngineError>;

    /// Starts a round and returns without waiting for it.
    ///
    /// # Errors
    /// When the device fails.
    fn launch(&mut self, round: Round<'_>) -> Result<Ticket, EngineError>;

    /// Waits for a launched round. Rounds are collected in the order in which they were launched.
    ///
    /// # Errors
    /// When the device fails.
    fn collect(&mut self, ticket: Ticket) -> Result<RoundOutput, EngineError>;

    /// Positions at the end of a slot's sequence that the draft follows but has not read: what its cache holds there is not
    /// of their tokens. At most [`MAX_PENDING_DRAFT`].
    fn pending_draft_tokens(&self, slot: Slot) -> usize;

    /// Keeps, from now on, the states that [`prefill`](Self::prefill) computes at these positions of a slot that has
    /// read none of them: the draft's state, and with `target` the target's final hidden state too. Until the slot is
    /// closed.
    ///
    /// # Errors
    /// When the slot is not open, no draft is loaded, or memory for the states is missing; nothing is taken then.
    fn trace(&mut self, slot: Slot, positions: Range<usize>, target: bool) -> Result<(), EngineError>;

    /// What [`prefill_traced`](Self::prefill_traced) takes of a position; `None` without a draft. Constant.
    fn state_row(&self) -> Option<StateRow>;

    /// Prefills pieces as [`prefill`](Self::prefill) does, for traced slots whose texts continue after the pieces, and
    /// returns or accepts the target's states there. If the target does not run, its caches are unchanged and only the
    /// draft can continue.
    ///
    /// # Errors
    /// When a piece does not belong to such a text, the number of states is not the number of positions, or the device
    /// fails.
    fn prefill_traced(&mut self, chunks: &[PrefillChunk<'_>], states: TargetStates<'_>) -> Result<(), EngineError>;

    /// What the draft would have proposed in rounds that begin at places of texts, for trees of a shape. Each pool may
    /// omit what does not change the answer for this shape, and for shapes of the same `topk` that are neither deeper
    /// nor larger. The caches of the texts are unchanged.
    ///
    /// # Errors
    /// When the draft's state before a place was not kept, or the device fails.
    fn pools(&mut self, places: &[ReplayPlace<'_>], shape: TreeShape) -> Result<Vec<Pool>, EngineError>;

    /// The chance of tokens to be chosen at places of texts, as each slot's sampling says.
    ///
    /// # Errors
    /// When the target's state at a place was not kept, or the device fails.
    fn probabilities(&mut self, asked: &[Asked]) -> Result<Vec<Vec<f64>>, EngineError>;

    /// Tells what comes before the next token of a slot that has been opened with adjustments
    /// ([`SamplingParams::adjustments`]): its whole prompt and what has been produced after it, cached or not; and the
    /// tokens that end it.
    ///
    /// # Errors
    /// When the slot is not open.
    fn adjust(&mut self, slot: Slot, prompt: &[u32], output: &[u32], ends: &[u32]) -> Result<(), EngineError>;

    /// Log-probabilities of a slot's prompt, once it has been read.
    fn prompt_logprobs(&mut self, slot: Slot) -> Vec<TokenLogprobs>;

    /// Why a slot has no further token, where that is not the target's doing.
    fn grammar_failure(&self, slot: Slot) -> Option<String>;

    /// Lets a rank of a group end as if it had crashed, to see what follows. Of no effect where there is one device.
    fn kill_rank(&mut self, _rank: usize) {}

    /// Releases a slot. Its pages may be reused by the next [`open`](Self::open), and their contents are kept
    /// until then. Never while a launched round that holds the slot has not been collected.
    fn close(&mut self, slot: Slot);
}

//! The interface of a device to the scheduler, at the granularity of a round.
//!
//! The interface carries no tensors: slots, pages and tokens go in, tokens come out. So a GPU
//! backend can keep all state on the device, hold a whole round (draft, verify, accept, extend) in
//! one graph, and let the host launch round n + 1 before it reads round n. The target's states that
//! replay keeps on disk ([`TargetStates`]) are bytes in a format that only the backend knows.

mod choice;
pub mod cpu;
pub mod cuda;
pub(crate) mod expert_reads;
pub(crate) mod state_places;
mod states;

use std::{ops::Range, time::Duration};

use schemas::tree::TreeShape;

pub use self::{
    expert_reads::{ExpertReads, LayerReads},
    states::{StateRow, TargetStates},
};
use crate::{error::EngineError, options::EngineOptions, played::Simulated, request::SamplingParams, spec::ModelCost};
pub use crate::{
    token::{ProducedToken, TokenLogprobs},
    tree::{DraftTree, Pool, Wanted},
    verify_plan::{VerifyPlan, inner_rows, target_passes},
};
pub use kernels::device::GpuState;

/// Maximum number of tokens of a sequence that the draft may leave pending. Rounds without
/// speculation leave their tokens pending, to be processed together with later ones, since a draft
/// pass over many rows costs little more than one over a few.
pub const MAX_PENDING_DRAFT: usize = 32;

/// One page of the KV cache (target and draft share the numbering).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

/// The place of one running request on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// Capacity of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Maximum number of open slots.
    pub slots: usize,
    /// Pages of the KV cache.
    pub pages: usize,
    /// Tokens per page.
    pub page_size: usize,
    /// Maximum length of a sequence, prompt and output together.
    pub context_length: usize,
    /// Size of the target's vocabulary.
    pub vocab_size: usize,
    /// Maximum number of prompt tokens that one [`PrefillChunk`] should carry.
    pub prefill_chunk: usize,
    /// Maximum number of rounds in flight (launched and not collected), at least 1. With more than
    /// one, the host launches the next round before it knows which requests ended in the last one:
    /// their slots run along, and their yields are dropped.
    pub rounds_in_flight: usize,
    /// Number of places for copies of a slot's state ([`Backend::keep`]), if sequences have a state
    /// in addition to their pages; `None` if pages are all that they need.
    pub snapshots: Option<usize>,
    /// Number of positions after a sequence whose cache rows the draft writes when it processes the
    /// last token ([`DraftSpec::ahead`](crate::spec::DraftSpec::ahead)).
    pub draft_ahead: usize,
}

/// A place for a copy of a slot's state: what linear attention keeps of a sequence beside its
/// pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Snapshot(pub u32);

/// The device of a backend, for fingerprints and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// For example `cpu` or `cuda:0`.
    pub device: String,
    /// The name of the processor or GPU.
    pub name: String,
    /// Driver version of a GPU; empty on the CPU.
    pub driver: String,
    /// Worker threads on the CPU, multiprocessors on a GPU.
    pub units: usize,
}

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
    pub wanted: Wanted,
}

/// Tokens whose probability at a position of a text the target computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The slot that has read the text.
    pub slot: Slot,
    /// The position that the tokens would have.
    pub position: usize,
    /// The tokens.
    pub tokens: Vec<u32>,
}

/// Which weights are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Only the draft's.
    Draft,
    /// The target's and the draft's, since they may share some.
    All,
}

/// A device that holds a target, a draft and their caches.
pub trait Backend: Send {
    /// Its capacity. Constant.
    fn capacity(&self) -> Capacity;

    /// The device that it runs on. Constant.
    fn device(&self) -> DeviceInfo;

    /// The state that the GPU's driver reports now; `None` on a CPU, or if the driver reports none.
    fn gpu_state(&self) -> Option<GpuState> {
        None
    }

    /// The memory traffic and multiplications of its passes. Constant.
    fn cost(&self) -> ModelCost;

    /// Memory bandwidth of the device in bytes per second, measured now in free memory.
    ///
    /// # Errors
    /// When the device fails.
    fn measure_bandwidth(&self) -> Result<f64, EngineError>;

    /// Floating-point operations per second that products with weights can sustain; `None` where
    /// that is not known.
    fn product_rate(&self) -> Option<f64> {
        None
    }

    /// Total time of graph capture so far; `None` on a device without graphs.
    fn capture_time(&self) -> Option<Duration> {
        None
    }

    /// Simulates acceptance from now on. `None` restores the target's decisions. Only while no slot
    /// is open. Shapes that are [prepared](Self::prepare) later must be among those of texts that
    /// are played.
    ///
    /// # Errors
    /// When the device fails, or memory for what is played is missing.
    fn simulate_acceptance(&mut self, simulated: Option<Simulated>) -> Result<(), EngineError>;

    /// Turns timing of the parts of rounds on or off ([`RoundTiming::verify`] is `Some` while it is
    /// on). A device that holds a round in one graph splits it into several meanwhile, so rounds
    /// take slightly longer; a device that always measures the parts ignores this. Only while no
    /// round is in flight.
    fn time_parts(&mut self, _on: bool) {}

    /// Starts to count the experts that rounds read, or stops, and returns what was counted since
    /// it was started. Meanwhile a device that holds rounds in graphs runs them kernel by kernel,
    /// and the host reads what routers have chosen, so rounds take longer. Only while no slot is
    /// open.
    fn count_experts(&mut self, _on: bool) -> Option<ExpertReads> {
        None
    }

    /// Prepares for rounds of these shapes at batch sizes up to the largest capture size (a GPU
    /// captures its graphs here). Weights stay loaded. If any shape speculates, the draft follows
    /// sequences that are opened from now on through all their rounds; otherwise it processes only
    /// what is [traced](Self::trace). Only while no slot is open. `captured(done, total)` reports
    /// the progress of graph capture.
    ///
    /// # Errors
    /// When a shape cannot run on this device, or memory for its buffers is missing.
    fn prepare(
        &mut self,
        shapes: &[TreeShape],
        capture_sizes: &[usize],
        captured: &mut dyn FnMut(usize, usize),
    ) -> Result<(), EngineError>;

    /// Commits the memory of the caches now if it is only reserved, so that it neither grows nor
    /// runs out later. Only while no slot is open.
    fn commit_memory(&mut self) {}

    /// Replaces the loaded weights with those of the options' folders; the models must have the
    /// same description. Open slots continue with their caches as the old weights computed them.
    /// Returns false, with nothing changed, if this backend cannot do it.
    ///
    /// # Errors
    /// When the weights cannot be read or their description differs; the loaded ones stay.
    fn exchange(&mut self, _options: &EngineOptions, _which: Exchange) -> Result<bool, EngineError> {
        Ok(false)
    }

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

    /// Starts a round and returns without waiting for it.
    ///
    /// # Errors
    /// When the device fails.
    fn launch(&mut self, round: Round<'_>) -> Result<Ticket, EngineError>;

    /// Like [`launch`](Self::launch), for trees that the host has drafted, one per slot: they have
    /// the shape's nodes or fewer.
    ///
    /// # Errors
    /// When this backend cannot verify such trees, or the device fails.
    fn launch_drafted(&mut self, round: Round<'_>, _trees: &[DraftTree]) -> Result<Ticket, EngineError> {
        let slots = round.slots.len();
        Err(EngineError::Device(format!("this device cannot verify the trees that the host drafted for {slots} slots")))
    }

    /// Waits for a launched round. Rounds are collected in the order in which they were launched.
    ///
    /// # Errors
    /// When the device fails.
    fn collect(&mut self, ticket: Ticket) -> Result<RoundOutput, EngineError>;

    /// Number of positions at the end of a slot's sequence that the draft has not processed yet:
    /// its cache rows there are stale. At most [`MAX_PENDING_DRAFT`].
    fn pending_draft_tokens(&self, slot: Slot) -> usize;

    /// Keeps, from now until the slot is closed, the states that [`prefill`](Self::prefill)
    /// computes at these positions, none of which the slot has read yet: the draft's state and,
    /// with `target`, the target's final hidden state.
    ///
    /// # Errors
    /// When the slot is not open, no draft is loaded, or memory for the states is missing; nothing
    /// is allocated then.
    fn trace(&mut self, slot: Slot, positions: Range<usize>, target: bool) -> Result<(), EngineError>;

    /// Layout of the state that [`prefill_traced`](Self::prefill_traced) transfers per position;
    /// `None` without a draft. Constant.
    fn state_row(&self) -> Option<StateRow>;

    /// Like [`prefill`](Self::prefill), for pieces of traced slots whose texts continue after the
    /// pieces; it returns or accepts the target's states at their positions. If the target does not
    /// run, its caches are unchanged and only the draft can continue.
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
    fn probabilities(&mut self, asked: &[Asked]) -> Result<Vec<Vec<f64>>, EngineError>;

    /// Sets what precedes the next token of a slot that was opened with adjustments
    /// ([`SamplingParams::adjustments`]): its whole prompt and the output after it, cached or not;
    /// and the tokens that end it.
    ///
    /// # Errors
    /// When the slot is not open.
    fn adjust(&mut self, slot: Slot, prompt: &[u32], output: &[u32], ends: &[u32]) -> Result<(), EngineError>;

    /// Log-probabilities of a slot's prompt, once it has been processed.
    fn prompt_logprobs(&mut self, slot: Slot) -> Vec<TokenLogprobs>;

    /// Why a slot has no further token, if its grammar is the reason.
    fn grammar_failure(&self, slot: Slot) -> Option<String>;

    /// Ends the thread of one rank of a group as if it had crashed, for tests. No effect on a
    /// single device.
    fn kill_rank(&mut self, _rank: usize) {}

    /// Releases a slot. Its pages may be reused by the next [`open`](Self::open); their contents
    /// stay until then. Never while a round in flight includes the slot.
    fn close(&mut self, slot: Slot);
}

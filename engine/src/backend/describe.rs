//! What is constant about a backend.

use crate::spec::ModelCost;

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
    /// Maximum number of prompt tokens that one [`PrefillChunk`](super::PrefillChunk) should carry.
    pub prefill_chunk: usize,
    /// Pieces of prompts end at multiples of this many positions, or with the prompt, if that many
    /// fit: the sums of a layer with a state go over chunks that lie there. States are kept there
    /// too.
    pub state_chunk: usize,
    /// Maximum number of rounds in flight (launched and not collected), at least 1. With more than
    /// one, the host launches the next round before it knows which requests ended in the last one:
    /// their slots run along, and their yields are dropped.
    pub rounds_in_flight: usize,
    /// Number of places for copies of a slot's state ([`Slots::keep`](super::Slots::keep)), if
    /// sequences have a state in addition to their pages; `None` if pages are all that they need.
    pub snapshots: Option<usize>,
    /// The pool of window pages, if layers with a window have their rows there; `None` if a page
    /// has its rows of all layers.
    pub windows: Option<WindowPages>,
    /// Number of positions after a sequence whose cache rows the draft writes when it processes the
    /// last token ([`DraftSpec::ahead`](crate::spec::DraftSpec::ahead)).
    pub draft_ahead: usize,
}

impl Capacity {
    /// No slots and no pages.
    pub const NONE: Self = Self {
        slots: 0,
        pages: 0,
        page_size: 1,
        context_length: 0,
        vocab_size: 0,
        prefill_chunk: 0,
        state_chunk: 1,
        rounds_in_flight: 1,
        snapshots: None,
        windows: None,
        draft_ahead: 0,
    };
}

/// The pool of window pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WindowPages {
    /// Number of positions that a row of these layers sees, its own included.
    pub window: usize,
    /// Number of window pages.
    pub count: usize,
}

impl WindowPages {
    /// The first position that a row at a position sees; rows after it see none before that.
    pub fn first_seen(self, position: usize) -> usize {
        position.saturating_sub(self.window - 1)
    }
}

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

/// The constant facts of a device that holds models.
pub trait Describe: Send {
    /// Its capacity. Constant.
    fn capacity(&self) -> Capacity;

    /// The device that it runs on. Constant.
    fn device(&self) -> DeviceInfo;

    /// Whether it looks up the drafts of rounds by itself, in the texts that
    /// [`Slots::remember`](super::Slots::remember) gives it. Constant.
    fn looks_up(&self) -> bool;

    /// The memory traffic and multiplications of its passes. Constant.
    fn cost(&self) -> ModelCost;
}

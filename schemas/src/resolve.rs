//! What the engine will really run after its defaults and silent rewrites.

use crate::{text::Span, version::EngineVersion};

/// A value of the resolved configuration and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided<T> {
    /// The value.
    pub value: T,
    /// How it came about.
    pub origin: Origin,
}

/// How a resolved value came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// As the user wrote it, there.
    Written(Span),
    /// The engine's default.
    Default {
        /// Why this one, in a few words.
        reason: String,
        /// Where in the engine's source, or which issue says so.
        source: &'static str,
    },
    /// The engine replaces what the user wrote.
    Rewritten {
        /// What the user wrote, there.
        written: Span,
        /// Why, in a few words.
        reason: String,
        /// Where in the engine's source, or which issue says so.
        source: &'static str,
    },
}

/// Speculation algorithms that rules tell apart (after NEXTN became EAGLE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the engine's own")]
pub enum Algorithm {
    Eagle,
    Eagle3,
    Standalone,
    Ngram,
    Dflash,
    Dspark,
    Uno,
    FrozenKvMtp,
}

/// What will run. A `None` means that it cannot be known from what was given; nothing is guessed.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The SGLang version whose behaviour is resolved.
    pub version: EngineVersion,
    /// Whether the user gave that version (otherwise it is the newest known, or slime's pin).
    pub version_given: bool,
    /// The algorithm; `None` inside when speculation is off.
    pub algorithm: Option<Decided<Algorithm>>,
    /// Whether the launch asks for speculation, even with an algorithm that is not known.
    pub speculative: bool,
    /// Draft steps.
    pub num_steps: Option<Decided<usize>>,
    /// Branches a step.
    pub topk: Option<Decided<usize>>,
    /// Nodes verified, the root included.
    pub num_draft_tokens: Option<Decided<usize>>,
    /// Most requests running together (global, before it is divided by DP).
    pub max_running_requests: Option<Decided<usize>>,
    /// Batch sizes for which a decode graph is captured, ascending; empty when graphs are off.
    pub capture_sizes: Option<Decided<Vec<usize>>>,
    /// Attention backend of decode and verify.
    pub attention_backend: Option<Decided<String>>,
    /// Tokens a KV page.
    pub page_size: Option<Decided<usize>>,
    /// Dtype of the target's weights as loaded.
    pub target_dtype: Option<Decided<String>>,
    /// Dtype of the draft's weights as loaded.
    pub draft_dtype: Option<Decided<String>>,
    /// Longest sequence.
    pub context_length: Option<Decided<usize>>,
    /// Tensor parallelism.
    pub tp_size: Decided<usize>,
}

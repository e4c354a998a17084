//! The configuration that the engine will actually run, after its defaults and silent rewrites.

mod attention;
mod capture;
mod estimate;
mod memory;
mod pools;
mod ranks;
mod requests;
pub mod running;
mod shape;
mod view;
mod vllm;
mod weights;

pub(crate) use shape::turns_off;
use std::borrow::Cow;

use schemas::{
    algorithm::Algorithm,
    engines::{Engine, SLIME_PIN, newest_known},
    flags::{Arity, Key},
    model::ModelFacts,
    text::Span,
    version::EngineVersion,
};

use crate::{Launch, Setting};

pub use attention::uses_mla;
pub use estimate::{FilledStates, MemoryEstimate, StatePool, readable};
pub use vllm::VllmResolved;

/// The engine version to check a launch against, and whether it was stated. In order of precedence:
/// `told` by the user, the launch's own, slime's pin for slime, the newest of the text's day, the
/// newest known.
pub fn version_of(launch: &Launch, stated: Option<EngineVersion>) -> (EngineVersion, bool) {
    let stated = stated.or(launch.engine_version.as_ref().map(|version| version.value));
    match (stated, launch.engine) {
        (Some(version), _) => (version, true),
        (None, Engine::Slime) => (SLIME_PIN, false),
        (None, engine) => (launch.version_of_day.unwrap_or_else(|| newest_known(engine)), false),
    }
}

/// What the launch will actually run in this version of SGLang. `target` and `draft` are the known
/// facts about the checkpoints; `gpu_memory` is the memory of one GPU in MiB. If a GPU has to be
/// assumed, the origin's reason says which.
pub fn resolve(
    launch: &Launch,
    version: EngineVersion,
    version_given: bool,
    target: Option<&ModelFacts>,
    draft: Option<&ModelFacts>,
    gpu_memory: Option<u64>,
) -> Resolved {
    let draft = draft.filter(|_| launch.loads_draft(version));
    let launch = &with_what_may_be_given(launch);
    let given = Given { launch, version, target, draft, gpu_memory };
    let off = shape::off(&given);
    let mut resolved = Resolved {
        version,
        version_given,
        algorithm: shape::algorithm(&given),
        speculative: off.is_none(),
        off,
        num_steps: None,
        topk: None,
        num_draft_tokens: None,
        max_running_requests: None,
        capture_sizes: None,
        attention_backend: None,
        page_size: None,
        target_dtype: weights::target_dtype(&given),
        draft_dtype: weights::draft_dtype(&given),
        context_length: weights::context_length(&given),
        tp_size: weights::tp_size(&given),
        usable_context: None,
        reserved_slots: None,
        chunked_prefill_size: memory::chunked_prefill_size(&given),
        mem_fraction_static: None,
        memory: None,
        vllm: vllm::resolve(&given),
    };
    shape::fill(&given, &mut resolved);
    resolved.max_running_requests = shape::max_running_requests(&given, &resolved);
    resolved.attention_backend = attention::backend(&given, &resolved);
    resolved.page_size = attention::page_size(&given, &resolved);
    shape::apply_paging(&given, &mut resolved);
    resolved.capture_sizes = capture::sizes_of(&given, &resolved);
    resolved.usable_context = requests::usable_context(&given, &resolved);
    resolved.reserved_slots = requests::reserved_slots(&given, &resolved);
    resolved.mem_fraction_static = memory::mem_fraction_static(&given, &resolved);
    resolved.memory = estimate::estimate(&given, &resolved);
    resolved
}

/// The launch with every flag that may be given set to an unknown value, so that none of them
/// counts as the default.
fn with_what_may_be_given(launch: &Launch) -> Cow<'_, Launch> {
    let takes_value = |key: &&Key| key.flag().arity() != Arity::None && !launch.has(**key);
    if !launch.perhaps.iter().any(|key| takes_value(&key)) {
        return Cow::Borrowed(launch);
    }
    let mut whole = launch.clone();
    for key in launch.perhaps.iter().filter(takes_value) {
        whole.settings.insert(*key, Setting::unknown(launch.anchor));
    }
    Cow::Owned(whole)
}

/// The inputs of the resolution.
#[derive(Clone, Copy)]
struct Given<'a> {
    launch: &'a Launch,
    version: EngineVersion,
    target: Option<&'a ModelFacts>,
    draft: Option<&'a ModelFacts>,
    gpu_memory: Option<u64>,
}

impl Given<'_> {
    /// A count as the user wrote it.
    fn written(&self, key: Key) -> Option<Decided<usize>> {
        let number = self.launch.count(key)?;
        Some(Decided { value: number.value, origin: Origin::Written(number.span) })
    }
}

impl<T> Decided<T> {
    /// The engine's default.
    fn default(value: T, reason: impl Into<String>, source: &'static str) -> Self {
        Self { value, origin: Origin::Default { reason: reason.into(), source } }
    }

    /// A value that the engine sets, in place of what the user wrote, if anything.
    fn forced(value: T, written: Option<Span>, reason: impl Into<String>, source: &'static str) -> Self {
        let reason = reason.into();
        let origin = match written {
            Some(written) => Origin::Rewritten { written, reason, source },
            None => Origin::Default { reason, source },
        };
        Self { value, origin }
    }
}

impl Origin {
    /// Whether the value is what the user wrote.
    pub fn is_written(&self) -> bool {
        matches!(self, Self::Written(_))
    }
}

/// A value of the resolved configuration and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided<T> {
    /// The value.
    pub value: T,
    /// Who set the value, and why.
    pub origin: Origin,
}

/// Who set a resolved value, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The user, at this place.
    Written(Span),
    /// The engine's default.
    Default {
        /// Why the default is this value, in a few words.
        reason: String,
        /// The file of the engine, or the issue, that shows it.
        source: &'static str,
    },
    /// The engine replaces what the user wrote.
    Rewritten {
        /// The place of what the user wrote.
        written: Span,
        /// Why the engine replaces it, in a few words.
        reason: String,
        /// The file of the engine, or the issue, that shows it.
        source: &'static str,
    },
}

/// The configuration that will run. `None` means that a value cannot be derived from the inputs;
/// nothing is guessed.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The SGLang version whose behaviour is resolved.
    pub version: EngineVersion,
    /// Whether the version was stated (otherwise it is the newest known, or slime's pin).
    pub version_given: bool,
    /// The algorithm; `None` also if speculation is off.
    pub algorithm: Option<Decided<Algorithm>>,
    /// Whether the launch enables speculation, even with an unknown algorithm.
    pub speculative: bool,
    /// Why nothing drafts, in a few words, if so.
    pub off: Option<&'static str>,
    /// Draft steps.
    pub num_steps: Option<Decided<usize>>,
    /// Branches per step.
    pub topk: Option<Decided<usize>>,
    /// Nodes verified, the root included.
    pub num_draft_tokens: Option<Decided<usize>>,
    /// Maximum number of running requests (global, before it is divided by DP).
    pub max_running_requests: Option<Decided<usize>>,
    /// Batch sizes for which a decode graph is captured, ascending; empty if graphs are off.
    pub capture_sizes: Option<Decided<Vec<usize>>>,
    /// Attention backend of decode and verify.
    pub attention_backend: Option<Decided<String>>,
    /// Tokens per KV page.
    pub page_size: Option<Decided<usize>>,
    /// Dtype in which the target's weights are loaded.
    pub target_dtype: Option<Decided<String>>,
    /// Dtype in which the draft's weights are loaded.
    pub draft_dtype: Option<Decided<String>>,
    /// Maximum sequence length.
    pub context_length: Option<Decided<usize>>,
    /// Tensor-parallel size.
    pub tp_size: Option<Decided<usize>>,
    /// Maximum number of tokens of a request, prompt and output together.
    pub usable_context: Option<Decided<usize>>,
    /// KV slots reserved for each running request in addition to those of its own tokens.
    pub reserved_slots: Option<Decided<usize>>,
    /// Maximum number of prompt tokens per prefill pass.
    pub chunked_prefill_size: Option<Decided<usize>>,
    /// Fraction of the GPU's memory for weights and KV cache.
    pub mem_fraction_static: Option<Decided<f64>>,
    /// Memory needed on one GPU; `None` if the GPU is not known.
    pub memory: Option<MemoryEstimate>,
    /// For a launch of vLLM: what it decides before run time. The other values are SGLang's and
    /// mean nothing then.
    pub vllm: Option<VllmResolved>,
}

#[cfg(test)]
mod tests;

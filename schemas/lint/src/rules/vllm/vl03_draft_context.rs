//! # VL03: draft-context
//!
//! Sequences can be longer than those the draft was trained for.
//!
//! ## What it does
//!
//! Compares the draft's `max_position_embeddings` with `--max-model-len`, or with the target's, up
//! to 0.24; and the `max_model_len` that is given for the draft with the same, in all versions.
//!
//! ## Why is this bad?
//!
//! Beyond its own length the draft looks up rotations that do not exist: an illegal memory access,
//! or proposals that are not accepted. With a `max_model_len` of the draft above the target's the
//! server does not start.
//!
//! ## What vLLM does
//!
//! Nothing is checked for heads; long prompts fail. For the given number:
//! `ValueError: speculative_max_model_len=8192 cannot be larger than target_max_model_len=4096`.
//!
//! ## Example
//!
//! ```launch bad version:0.24.0
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048}
//! ```
//!
//! ```launch bad version:0.24.0
//! vllm serve target --max-model-len 4096 \
//!   --speculative-config '{"method": "draft_model", "model": "draft", "num_speculative_tokens": 3, "max_model_len": 8192}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.24.0
//! vllm serve target --max-model-len 2048 \
//!   --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048}
//! ```
//!
//! ## Versions
//!
//! Up to 0.24, which is reported to fail. 0.33 makes room for the target's context in all heads,
//! and shortens the context where it cannot; which version introduced this is unknown.
//!
//! ## Source
//!
//! vLLM issues #48894, #23072, #57941, PRs #49343, #57964; `config/speculative.py` and
//! `config/vllm.py` of 0.33.0.

use schemas::{diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL03",
    name: "draft-context",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The first version that is not checked.
const FIXED_IN: EngineVersion = EngineVersion::new(0, 25, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    above_target(context).or_else(|| untrained(context))
}

/// The length that is given for the draft is above the target's.
fn above_target(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    // Without a draft the key is not read.
    config.model.as_deref().filter(|_| context.loads_draft() && !config.is_legacy)?;
    let (given, length) = (usize::try_from(config.integer("max_model_len")?).ok()?, target_length(context)?);
    (given > length).then(|| {
        let place = context.launch.vllm_key_place("max_model_len").unwrap_or(config.span);
        let message = format!("`max_model_len` of the draft is {given}, above the target's {length}");
        let finding = Finding::new(place, message, "refused")
            .related(context.span(Key::ContextLength), "requested here")
            .vllm_says(format!(
                "ValueError: speculative_max_model_len={given} cannot be larger than target_max_model_len={length}"
            ));
        let is_given = context.launch.has(Key::ContextLength);
        finding.on_facts("target", context.target.filter(|_| !is_given)).help("take `max_model_len` out")
    })
}

/// The length of the target's sequences: the given one, or that of its config.
fn target_length(context: &Context<'_>) -> Option<usize> {
    if context.launch.has(Key::ContextLength) {
        return Some(context.launch.count(Key::ContextLength)?.value);
    }
    Some(context.target_config().filter(|target| target.states_context_length())?.derived_context_length())
}

/// Sequences can be longer than those that the draft was trained for.
fn untrained(context: &Context<'_>) -> Option<Finding> {
    if !context.resolved.version_given || context.version() >= FIXED_IN {
        return None;
    }
    let config = context.launch.vllm_speculation()?;
    let draft = context.draft_config().filter(|draft| draft.states_context_length())?.derived_context_length();
    let length = target_length(context)?;
    (draft < length).then(|| {
        let message = format!("the draft was trained for {draft} tokens, but sequences can have {length}");
        Finding::new(config.span, message, "shorter than the context")
            .related(context.span(Key::ContextLength), "requested here")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help(format!("add `--max-model-len {draft}`, or take a head for long contexts"))
            .at_most(Severity::Warning)
    })
}

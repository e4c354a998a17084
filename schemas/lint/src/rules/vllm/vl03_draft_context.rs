//! # VL03: draft-context
//!
//! Sequences can be longer than those the draft was trained for.
//!
//! ## What it does
//!
//! Compares the draft's `max_position_embeddings` with `--max-model-len`, or with the target's, up
//! to 0.24.
//!
//! ## Why is this bad?
//!
//! Beyond its own length the draft looks up rotations that do not exist: an illegal memory access,
//! or proposals that are not accepted.
//!
//! ## What vLLM does
//!
//! Nothing is checked for heads; long prompts fail.
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
    severity: Severity::Warning,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The first version that is not checked.
const FIXED_IN: EngineVersion = EngineVersion::new(0, 25, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    if !context.resolved.version_given || context.version() >= FIXED_IN {
        return None;
    }
    let config = context.launch.vllm_speculation()?;
    let draft = context.draft_config().filter(|draft| draft.states_context_length())?.derived_context_length();
    let length = match context.launch.has(Key::ContextLength) {
        true => context.launch.count(Key::ContextLength)?.value,
        false => context.target_config().filter(|target| target.states_context_length())?.derived_context_length(),
    };
    (draft < length).then(|| {
        let message = format!("the draft was trained for {draft} tokens, but sequences can have {length}");
        Finding::new(config.span, message, "shorter than the context")
            .related(context.span(Key::ContextLength), "requested here")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help(format!("add `--max-model-len {draft}`, or take a head for long contexts"))
    })
}

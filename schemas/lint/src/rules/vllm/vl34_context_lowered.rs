//! # VL34: context-lowered
//!
//! The draft is trained for fewer tokens than the target, and lowers the length of all sequences.
//!
//! ## What it does
//!
//! For `draft_model`, compares the draft's context with `--max-model-len`, or else with the
//! target's context.
//!
//! ## Why is this bad?
//!
//! Runner V2 cannot stop drafting for long sequences, so vLLM lowers the length of every sequence
//! to the draft's. Longer requests are refused although `--max-model-len` allows them.
//!
//! ## What vLLM does
//!
//! It logs `The draft model's max_model_len (2048) is smaller than the target model's (8192) and
//! the V2 model runner can't skip speculation for longer sequences; reducing max_model_len to
//! 2048.`
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "draft_model", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 2048}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --max-model-len 2048 \
//!   --speculative-config '{"method": "draft_model", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 2048}
//! ```
//!
//! ## Versions
//!
//! 0.33 and later; 0.32 does not have it.
//!
//! ## Source
//!
//! vLLM `config/vllm.py`, `_limit_max_model_len_to_draft`, of 0.33.0.

use schemas::{diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, vllm::method_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL34",
    name: "context-lowered",
    severity: Severity::Warning,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

const SINCE: EngineVersion = EngineVersion::new(0, 33, 0);

/// Keys that set the draft's length, or that need runner V1.
const OTHERWISE: [&str; 3] = ["max_model_len", "parallel_drafting", "use_heterogeneous_vocab"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation().filter(|_| context.version() >= SINCE)?;
    if method_of(&config) != Some("draft_model") || OTHERWISE.iter().any(|key| config.may_give(key)) {
        return None;
    }
    // Runner V1 skips speculation for longer sequences.
    if context.launch.variable("VLLM_USE_V2_MODEL_RUNNER").is_some_and(|chosen| chosen.value == "0") {
        return None;
    }
    let draft = context.draft_config().filter(|draft| draft.states_context_length())?.derived_context_length();
    let length = match context.launch.has(Key::ContextLength) {
        true => context.launch.count(Key::ContextLength)?.value,
        false => context.target_config().filter(|target| target.states_context_length())?.derived_context_length(),
    };
    (draft < length).then(|| {
        let message =
            format!("the draft has a context of {draft} tokens, and lowers the server's from {length} to that");
        Finding::new(config.span, message, "lowers the context")
            .related(context.span(Key::ContextLength), "requested here")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .by_version()
            .help(format!("add `--max-model-len {draft}` if that is enough, or take a draft for longer contexts"))
    })
}

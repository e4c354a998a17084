//! # SD065: long-context-mask
//!
//! Rollouts reach the end of the context, where the mask of the verify graphs is too short.
//!
//! ## What it does
//!
//! Compares the longest rollout that slime requests (`--rollout-max-context-len`, else prompt plus
//! response) plus the draft tokens with the context length, for backends whose verify graphs keep a
//! mask over the whole context: triton, aiter, wave.
//!
//! ## Why is this bad?
//!
//! The mask of a full batch has room for sequences of the context length, and a verify pass adds
//! the draft tokens to each. At the end of the context this overruns the mask.
//!
//! ## What SGLang does
//!
//! It writes past `cuda_graph_custom_mask`. Two fixes are open.
//!
//! ## Example
//!
//! ```launch bad version:0.5.15.post1
//! SGLANG_ARGS=(
//!    --hf-checkpoint target
//!    --rollout-max-prompt-len 1024
//!    --rollout-max-response-len 7168
//!    --sglang-context-length 8192
//!    --sglang-attention-backend triton
//!    --sglang-max-running-requests 16
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-speculative-num-steps 3
//!    --sglang-speculative-eagle-topk 1
//!    --sglang-speculative-num-draft-tokens 4
//! )
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.15.post1
//! SGLANG_ARGS=(
//!    --hf-checkpoint target
//!    --rollout-max-prompt-len 1024
//!    --rollout-max-response-len 7164
//!    --sglang-context-length 8192
//!    --sglang-attention-backend triton
//!    --sglang-max-running-requests 16
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-speculative-num-steps 3
//!    --sglang-speculative-eagle-topk 1
//!    --sglang-speculative-num-draft-tokens 4
//! )
//! ```
//!
//! ## Versions
//!
//! All versions read; the fixes are not merged.
//!
//! ## Source
//!
//! sglang pull requests #29450 (triton) and #29581 (aiter, wave).

use schemas::{diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD065",
    name: "long-context-mask",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Backends whose graphs contain such a mask.
const MASKED: [&str; 3] = ["aiter", "triton", "wave"];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm().filter(|_| context.launch.engine == Engine::Slime)?;
    let resolved = context.resolved;
    let backend = resolved.attention_backend.as_ref()?.value.as_str();
    if !MASKED.contains(&backend) || resolved.capture_sizes.as_ref()?.value.is_empty() {
        return None;
    }
    let (tokens, length) = (resolved.num_draft_tokens.as_ref()?.value, resolved.context_length.as_ref()?.value);
    let rollout = longest_rollout(context)?;
    if rollout.saturating_add(tokens) <= length {
        return None;
    }
    let message = format!("rollouts of {rollout} tokens and {tokens} draft tokens reach past a context of {length}");
    let wanted = rollout.saturating_add(tokens).to_string();
    Some(
        Finding::new(context.place(Key::ContextLength), message, format!("{length} tokens"))
            .related(
                context.span(Key::RolloutMaxContextLen).or(context.span(Key::RolloutMaxResponseLen)),
                "as long as this",
            )
            .note(format!("{backend} keeps a mask of the context length a request, which a full batch overruns"))
            .on_facts("target", context.target)
            .help(format!("write `{}`, or shorten the rollouts", context.line(Key::ContextLength, &wanted))),
    )
}

/// The longest sequence that slime requests, in tokens.
fn longest_rollout(context: &Context<'_>) -> Option<usize> {
    let given = |key: Key| context.launch.count(key).map(|tokens| tokens.value);
    if context.launch.has(Key::RolloutMaxContextLen) {
        return given(Key::RolloutMaxContextLen);
    }
    given(Key::RolloutMaxPromptLen)?.checked_add(given(Key::RolloutMaxResponseLen)?)
}

//! # VL08: method-and-head
//!
//! The method does not match the head.
//!
//! ## What it does
//!
//! Compares `eagle` and `eagle3` with what the draft's config says of it.
//!
//! ## Why is this bad?
//!
//! An EAGLE-3 head needs hidden states of several layers, an EAGLE head those of the last. With the other method it does not
//! load, or its tokens are never accepted.
//!
//! ## What vLLM does
//!
//! It builds the method's class; weights of the other do not fit.
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "eagle", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000, "vocab_size": 128256}
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000, "vocab_size": 128256}
//! ```
//!
//! ## Versions
//!
//! All versions with both methods.
//!
//! ## Source
//!
//! vLLM issue #21737.

use crate::{
    diagnostic::Severity,
    model::DraftKind,
    rules::{Applies, Check, Context, Finding, Rule},
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "VL08",
    name: "method-and-head",
    severity: Severity::Error,
    applies: Applies::Vllm,
    file: include_str!("vl08_method_and_head.rs"),
    check: Check::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let kind = context.draft_config()?.draft_kind(context.draft?.tensors.as_ref())?;
    let right = match (config.method.as_deref()?, kind) {
        ("eagle", DraftKind::Eagle3) => "eagle3",
        ("eagle3", DraftKind::Eagle) => "eagle",
        _ => return None,
    };
    Some(
        Finding::new(config.span, format!("the draft is a head for the method {right}"), "another method")
            .on_draft(context)
            .help(format!("write `\"method\": \"{right}\"`")),
    )
}

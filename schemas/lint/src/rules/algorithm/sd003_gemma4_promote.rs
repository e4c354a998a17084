//! # SD003: gemma4-promote
//!
//! Gemma 4's assistant drafts run under EAGLE or NEXTN, not under EAGLE3.
//!
//! ## What it does
//!
//! Looks at the draft's class under EAGLE3.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: Gemma4AssistantForCausalLM draft requires --speculative-algorithm NEXTN or EAGLE;
//! EAGLE3 is not supported for this draft architecture.` Under EAGLE and NEXTN it runs
//! FROZEN_KV_MTP instead, with a line in the log.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path google/gemma-4 --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["Gemma4AssistantForCausalLM"]}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path google/gemma-4 --speculative-algorithm EAGLE --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["Gemma4AssistantForCausalLM"]}
//! ```
//!
//! ## Versions
//!
//! 0.5.12.post1 and later.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD003",
    name: "gemma4-promote",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let class = context.draft_config()?.architecture()?;
    if !(class.starts_with("Gemma4") && class.contains("Assistant")) || context.version() < V0_5_12 {
        return None;
    }
    let key = Key::SpeculativeAlgorithm;
    Some(
        Finding::new(context.value_place(key), format!("EAGLE3 does not run {class}"), "EAGLE or NEXTN")
            .related(context.span(Key::SpeculativeDraftModelPath), class)
            .sglang_says(format!(
                "{class} draft requires --speculative-algorithm NEXTN or EAGLE; EAGLE3 is not supported for this draft \
                 architecture."
            ))
            .on_facts("draft", context.draft)
            .by_version()
            .help(format!("write `{}`", context.line(key, "EAGLE"))),
    )
}

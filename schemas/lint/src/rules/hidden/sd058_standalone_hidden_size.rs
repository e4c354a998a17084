//! # SD058: standalone-hidden-size
//!
//! STANDALONE with another hidden size crashes when requests are merged.
//!
//! ## What it does
//!
//! Compares the hidden sizes of target and draft under STANDALONE, before 0.5.15. If only one
//! request runs at a time, nothing is merged, and nothing is reported.
//!
//! ## Why is this bad?
//!
//! It runs for minutes, until a running batch and a new one are merged.
//!
//! ## What SGLang does
//!
//! `RuntimeError: Sizes of tensors must match except in dimension 0. Expected size 4096 but got
//! size 2048`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm STANDALONE --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 2048}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.15.post1
//! sglang serve --model-path target --speculative-algorithm STANDALONE --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 2048}
//! ```
//!
//! ## Versions
//!
//! Up to 0.5.12.post1; fixed in 0.5.15.post1 (PR #24217).
//!
//! ## Source
//!
//! sglang issue #24215; PRs #10090, #24217.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD058",
    name: "standalone-hidden-size",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The fix was released between these.
const EDGE: Edge = Edge::new(V0_5_12, V0_5_15);

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Standalone)?;
    let version = context.version();
    let (target, draft) = (context.target_config()?.hidden_size?, context.draft_config()?.hidden_size?);
    if target == draft || EDGE.side(version) == Side::After {
        return None;
    }
    // Nothing is merged if only one request runs.
    let most = context.resolved.max_running_requests.as_ref().map(|requests| requests.value);
    if most == Some(1) || context.expected_concurrency == Some(1) {
        return None;
    }
    let message =
        format!("sglang {version} cannot merge batches of a draft of width {draft} with a target of width {target}");
    let finding = Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "another hidden size")
        .sglang_says(format!(
            "RuntimeError: Sizes of tensors must match except in dimension 0. Expected size {target} but got size \
             {draft}"
        ))
        .maybe_note(EDGE.doubt(version))
        .on_facts("target", context.target)
        .by_version()
        .help("use sglang 0.5.15.post1 or later, or a draft of the target's hidden size");
    Some(if EDGE.side(version) == Side::Between { finding.at_most(Severity::Warning) } else { finding })
}

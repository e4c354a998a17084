//! # SD023: topk1-drafts-adjusted
//!
//! With topk 1 the number of draft tokens is always steps + 1, whatever is requested.
//!
//! ## What it does
//!
//! Compares `--speculative-num-draft-tokens` with `--speculative-num-steps` + 1 where topk is 1.
//!
//! ## Why is this bad?
//!
//! The requested number is not the one that runs. A measurement labelled with it is mislabelled.
//!
//! ## What SGLang does
//!
//! It warns `speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when
//! speculative_eagle_topk == 1` and ignores the number.
//!
//! ## Example
//!
//! ```launch bad version:0.5.6
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 24 --max-running-requests 16
//! ```
//!
//! ```launch bad version:0.5.23 toml
//! engine = "sglang"
//! model_path = "target"
//! max_running_requests = 16
//! speculative_algorithm = "EAGLE3"
//! speculative_draft_model_path = "draft"
//! speculative_num_steps = 4
//! speculative_eagle_topk = 1
//! speculative_num_draft_tokens = 24
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.6
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5 --max-running-requests 16
//! ```
//!
//! ## Versions
//!
//! All versions since 0.4.7.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use launch::resolve::Origin;
use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, support::count};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD023",
    name: "topk1-drafts-adjusted",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let key = Key::SpeculativeNumDraftTokens;
    let tokens = context.resolved.num_draft_tokens.as_ref()?;
    let topk = context.resolved.topk.as_ref()?;
    let steps = context.resolved.num_steps.as_ref()?.value;
    if !matches!(tokens.origin, Origin::Rewritten { .. }) || matches!(topk.origin, Origin::Rewritten { .. }) {
        return None;
    }
    let written = context.launch.text(key)?;
    let runs = tokens.value.to_string();
    let message = format!("with topk 1 sglang verifies {}, not {}", count(tokens.value, "token"), written.value);
    Some(
        Finding::new(written.span, message, format!("replaced by {steps} steps + 1"))
            .related(context.span(Key::SpeculativeEagleTopk), "a chain")
            .sglang_says(super::ADJUSTED)
            .help(format!("write `{}`, or a topk above 1 for a tree", context.line(key, &runs)))
            .fix(Safety::Safe, "write what runs", context.set(key, &runs)),
    )
}

//! # SD026: drafts-lt-2
//!
//! Fewer than two draft tokens leave nothing to verify.
//!
//! ## What it does
//!
//! Looks for `--speculative-num-draft-tokens` below 2 (the root, which the target has already
//! produced, counts as one). With topk 1 the number is replaced anyway: see SD023.
//!
//! ## Why is this bad?
//!
//! There is no draft among the draft tokens.
//!
//! ## What SGLang does
//!
//! Nothing checks it; selecting zero candidates fails, or drafting has no effect. DSPARK reports
//! it: `speculative_num_draft_tokens must be >= 2 (= gamma + 1)`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 1
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `speculative/eagle_utils.py` (followed in the code, not run).

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD026",
    name: "drafts-lt-2",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let key = Key::SpeculativeNumDraftTokens;
    let tokens = context.launch.integer(key)?;
    let chain = context.resolved.topk.as_ref().is_some_and(|topk| topk.value == 1);
    if tokens.value >= 2 || chain || context.is_adaptive() {
        return None;
    }
    let message = format!("{} draft tokens leave nothing to verify: the root counts as one of them", tokens.value);
    let steps = context.resolved.num_steps.as_ref().map_or(2, |steps| steps.value.saturating_add(1).max(2));
    Some(
        Finding::new(tokens.span, message, "at least 2")
            .help(format!("write `{}` or more", context.line(key, &steps.to_string()))),
    )
}

//! # SD021: partial-trio-topk-missing
//!
//! The number of steps is given without topk.
//!
//! ## What it does
//!
//! Looks for `--speculative-num-steps` without `--speculative-eagle-topk`, where steps are not
//! chosen at run time.
//!
//! ## Why is this bad?
//!
//! The three numbers form one shape: either all are given, or none. The server does not start.
//!
//! ## What SGLang does
//!
//! It compares the missing number: `TypeError: '>' not supported between instances of 'NoneType'
//! and 'int'`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path zai-org/GLM-5.3-Flash-FP8 --speculative-algorithm EAGLE --speculative-num-steps 3 \
//!   --max-running-requests 16
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path zai-org/GLM-5.3-Flash-FP8 --speculative-algorithm EAGLE --speculative-num-steps 3 \
//!   --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
//! ```
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-adaptive \
//!   --max-running-requests 16
//! ```
//!
//! ## Versions
//!
//! The message is that of 0.5.2 and later; older versions fail in other places.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`; issue #36829.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD021",
    name: "partial-trio-topk-missing",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let (steps, topk, tokens) = (Key::SpeculativeNumSteps, Key::SpeculativeEagleTopk, Key::SpeculativeNumDraftTokens);
    let place = context.span(steps)?;
    if context.is_adaptive() || !context.is_absent(topk) {
        return None;
    }
    let message = format!("`{}` without `{}`: startup fails with a TypeError", context.flag(steps), context.flag(topk));
    let finding = Finding::new(place, message, "needs topk")
        .sglang_says("TypeError: '>' not supported between instances of 'NoneType' and 'int'");
    let depth = context.launch.count(steps).map(|steps| steps.value);
    let wanted = context.launch.count(tokens).map(|tokens| tokens.value);
    // The intention is clear if the draft tokens are those of a chain, or are not given.
    let chain = match (depth, wanted) {
        (Some(depth), Some(wanted)) => depth.checked_add(1) == Some(wanted),
        (_, None) => !context.launch.has(tokens),
        (None, Some(_)) => false,
    };
    if !chain {
        return Some(finding.help(format!("add `{}` with the branches of each step", context.flag(topk))));
    }
    Some(finding.help(format!("add `{}` for a chain, or a larger topk for a tree", context.line(topk, "1"))).fix(
        Safety::Unsafe,
        "draft a chain",
        context.set(topk, "1"),
    ))
}

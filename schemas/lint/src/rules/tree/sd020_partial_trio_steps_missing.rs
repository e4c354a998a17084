//! # SD020: partial-trio-steps-missing
//!
//! topk or draft tokens are given without the number of steps.
//!
//! ## What it does
//!
//! Looks for `--speculative-eagle-topk` or `--speculative-num-draft-tokens` without
//! `--speculative-num-steps`, where steps are not chosen at run time.
//!
//! ## Why is this bad?
//!
//! The three numbers form one shape: either all are given, or none. The server does not start, and
//! does not say why.
//!
//! ## What SGLang does
//!
//! It stops with a bare `AssertionError` without any text.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`; issue #5673.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD020",
    name: "partial-trio-steps-missing",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let (steps, topk, tokens) = (Key::SpeculativeNumSteps, Key::SpeculativeEagleTopk, Key::SpeculativeNumDraftTokens);
    let given = [topk, tokens].into_iter().find(|key| context.launch.has(*key))?;
    if context.is_adaptive() || !context.is_absent(steps) {
        return None;
    }
    let message = format!(
        "`{}` without `{}`: startup fails with a bare AssertionError",
        context.flag(given),
        context.flag(steps)
    );
    let finding = Finding::new(context.place(given), message, "needs the number of steps")
        .sglang_says("AssertionError")
        .help(format!("add `{}` with the depth of the tree, or give none of the three", context.flag(steps)));
    let chain = context.launch.count(topk).is_some_and(|topk| topk.value == 1);
    let Some(depth) = context.launch.count(tokens).filter(|tokens| chain && tokens.value >= 2) else {
        return Some(finding);
    };
    let depth = (depth.value - 1).to_string();
    Some(
        finding.help(format!("add `{}`, the depth of a chain of these draft tokens", context.line(steps, &depth))).fix(
            Safety::Unsafe,
            "give the chain its depth",
            context.set(steps, &depth),
        ),
    )
}

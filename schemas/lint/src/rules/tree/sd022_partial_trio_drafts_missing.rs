//! # SD022: partial-trio-drafts-missing
//!
//! Steps and topk are given without the number of draft tokens.
//!
//! ## What it does
//!
//! Looks for `--speculative-num-steps` and `--speculative-eagle-topk` without
//! `--speculative-num-draft-tokens`, where steps are not chosen at run time.
//!
//! ## Why is this bad?
//!
//! With topk above 1 nothing fills in the number, and the start fails where it is first used. With
//! topk 1 it is always steps + 1 and everything works; the finding is then only a hint.
//!
//! ## What SGLang does
//!
//! With topk 1 it warns `speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when
//! speculative_eagle_topk == 1`; with a larger topk it stops with a `TypeError` about `NoneType`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 4
//! ```
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py` (topk above 1: followed in the code, not run).

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD022",
    name: "partial-trio-drafts-missing",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let (steps, topk, tokens) = (Key::SpeculativeNumSteps, Key::SpeculativeEagleTopk, Key::SpeculativeNumDraftTokens);
    let place = context.span(steps)?;
    let branches = context.launch.count(topk)?;
    if context.is_adaptive() || !context.is_absent(tokens) {
        return None;
    }
    let depth = context.launch.count(steps).map(|steps| steps.value);
    if branches.value > 1 {
        let message = format!("no `{}` for a tree with topk {}: start fails", context.flag(tokens), branches.value);
        let finding = Finding::new(place, message, "needs the number of draft tokens")
            .related(context.span(topk), "a tree")
            .note("the number has no default, and computing with it fails with a TypeError about NoneType")
            .help(format!("add `{}` with the nodes that the target is to verify", context.flag(tokens)));
        return Some(finding);
    }
    let wanted = depth?.checked_add(1)?.to_string();
    let message = format!("no `{}`: with topk 1 it becomes steps + 1 = {wanted}", context.flag(tokens));
    Some(
        Finding::new(place, message, "a chain")
            .at_most(Severity::Info)
            .sglang_says(super::ADJUSTED)
            .help(format!("add `{}` to say what runs", context.line(tokens, &wanted)))
            .fix(Safety::Safe, "say what runs", context.set(tokens, &wanted)),
    )
}

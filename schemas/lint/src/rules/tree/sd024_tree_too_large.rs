//! # SD024: tree-too-large
//!
//! More draft tokens are requested than the tree can have.
//!
//! ## What it does
//!
//! With topk K above 1 and S steps, the draft proposes K candidates in the first step and K² in
//! each later one. The root and all candidates together are 1 + K + (S − 1)·K², which
//! `--speculative-num-draft-tokens` cannot exceed.
//!
//! ## Why is this bad?
//!
//! The best candidates are selected from too few.
//!
//! ## What SGLang does
//!
//! It stops with `RuntimeError: selected index k out of range` when graphs are captured or at the
//! first request. Nothing checks the numbers earlier.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 2 --speculative-eagle-topk 4 --speculative-num-draft-tokens 32
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 32
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `speculative/eagle_utils.py`, `organize_draft_results`; issue #5160, PR #24054.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use super::GivenShape;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD024",
    name: "tree-too-large",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let shape = GivenShape::from_context(context)?;
    if shape.topk < 2 || shape.num_steps < 1 || shape.num_draft_tokens <= shape.bound() {
        return None;
    }
    let key = Key::SpeculativeNumDraftTokens;
    let bound = shape.bound().to_string();
    let message = format!("{} draft tokens are more than the {bound} that this tree can have", shape.num_draft_tokens);
    Some(
        Finding::new(context.value_place(key), message, format!("at most {bound}"))
            .related(context.span(Key::SpeculativeNumSteps), format!("{} steps", shape.num_steps))
            .related(context.span(Key::SpeculativeEagleTopk), format!("topk {}", shape.topk))
            .sglang_says("RuntimeError: selected index k out of range")
            .note(format!(
                "1 + topk + (steps − 1)·topk² = 1 + {topk} + {later}·{square} = {bound}",
                topk = shape.topk,
                later = shape.num_steps - 1,
                square = shape.topk.saturating_mul(shape.topk),
            ))
            .help(format!("write `{}` or less, or more steps", context.line(key, &bound)))
            .fix(Safety::Unsafe, "ask for what the tree can have", context.set(key, &bound)),
    )
}

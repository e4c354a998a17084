//! # SD027: steps-le-0
//!
//! Speculation is on, but without draft steps or branches.
//!
//! ## What it does
//!
//! Looks for `--speculative-num-steps` of 0 or less. 0 is valid only for adaptive speculation (no
//! speculation for the moment) and for spectune's own engine, where 0 steps, topk 1 and 1 draft
//! token mean no speculation. Looks for `--speculative-eagle-topk` of 0 or less too.
//!
//! ## Why is this bad?
//!
//! A draft without a step proposes nothing; the draft model is loaded in vain, if the engine starts
//! at all.
//!
//! ## What SGLang does
//!
//! Nothing checks the number; the draft's attention backend for several steps is not built, but
//! later code relies on it.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 0 --speculative-eagle-topk 1 --speculative-num-draft-tokens 1
//! ```
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 0 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2
//! ```
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --max-running-requests 16
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `speculative/draft_utils.py` (followed in the code, not run).

use schemas::{diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD027",
    name: "steps-le-0",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    without_branches(context).or_else(|| without_steps(context))
}

fn without_branches(context: &Context<'_>) -> Option<Finding> {
    let key = Key::SpeculativeEagleTopk;
    let topk = context.launch.integer(key).filter(|topk| topk.value <= 0)?;
    let message = format!("a topk of {} takes no token of the draft", topk.value);
    let help = format!("write `{}` for a chain, or more for a tree", context.line(key, "1"));
    Some(Finding::new(topk.span, message, "at least 1").help(help))
}

fn without_steps(context: &Context<'_>) -> Option<Finding> {
    let key = Key::SpeculativeNumSteps;
    let steps = context.launch.integer(key)?;
    let off = context.launch.engine == Engine::Spectune && steps.value == 0;
    if steps.value > 0 || context.is_adaptive() || off {
        return None;
    }
    let message = format!("{} draft steps propose no tokens", steps.value);
    Some(Finding::new(steps.span, message, "at least 1").help(format!(
        "write `{}` or more, or remove `{}` to run without speculation",
        context.line(key, "1"),
        context.flag(Key::SpeculativeAlgorithm)
    )))
}

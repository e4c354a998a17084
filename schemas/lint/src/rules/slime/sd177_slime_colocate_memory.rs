//! # SD177: slime-colocate-memory
//!
//! Trainer and engine share the GPU, and the engine takes nearly all of it.
//!
//! ## What it does
//!
//! Looks for `--sglang-mem-fraction-static` above 0.8 with `--colocate` and speculation.
//!
//! ## Why is this bad?
//!
//! The trainer's memory on the GPU, and the graphs and buffers of target and draft, must fit into
//! the rest.
//!
//! ## What SGLang does
//!
//! It runs out of memory when graphs are captured or when it wakes after training. slime's recipes
//! with speculation use 0.7 to 0.8.
//!
//! ## Example
//!
//! ```launch bad
//! SGLANG_ARGS=(
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-speculative-num-steps 3
//!    --sglang-speculative-eagle-topk 1
//!    --sglang-speculative-num-draft-tokens 4
//!    --sglang-max-running-requests 64
//!    --sglang-attention-backend fa3
//!    --colocate
//!    --sglang-mem-fraction-static 0.88
//! )
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! SGLANG_ARGS=(
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-speculative-num-steps 3
//!    --sglang-speculative-eagle-topk 1
//!    --sglang-speculative-num-draft-tokens 4
//!    --sglang-max-running-requests 64
//!    --sglang-attention-backend fa3
//!    --colocate
//!    --sglang-mem-fraction-static 0.75
//! )
//! ```
//!
//! ## Versions
//!
//! slime of August 2026.
//!
//! ## Source
//!
//! slime issues #1022, #1177, and its recipes.

use schemas::{diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD177",
    name: "slime-colocate-memory",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The largest fraction in slime's recipes with speculation.
const MOST: f64 = 0.8;

fn check(context: &Context<'_>) -> Option<Finding> {
    let colocated = context.span(Key::Colocate)?;
    let share = context.launch.number(Key::MemFractionStatic).filter(|share| share.value > MOST)?;
    (context.launch.engine == Engine::Slime && context.resolved.speculative).then(|| {
        let message = format!("a share of {} leaves little for the trainer, graphs and draft", share.value);
        Finding::new(share.span, message, "above what slime's recipes take")
            .related(Some(colocated), "shared with the trainer")
            .related(context.span(Key::SpeculativeAlgorithm), "separate graphs and buffers")
            .help(format!("write `{}`, and raise it from there", context.line(Key::MemFractionStatic, "0.7")))
    })
}

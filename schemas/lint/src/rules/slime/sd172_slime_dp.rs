//! # SD172: slime-dp
//!
//! Data-parallel ranks of a slime engine need DP attention.
//!
//! ## What it does
//!
//! Looks for `--sglang-dp-size` above 1 without `--sglang-enable-dp-attention`.
//!
//! ## Why is this bad?
//!
//! slime does not start the engine.
//!
//! ## What SGLang does
//!
//! slime asserts that DP attention is on.
//!
//! ## Example
//!
//! ```launch bad
//! SGLANG_ARGS=(
//!    --sglang-dp-size 4
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-max-running-requests 64
//!    --sglang-attention-backend fa3
//! )
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! SGLANG_ARGS=(
//!    --sglang-dp-size 4
//!    --sglang-enable-dp-attention
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-max-running-requests 64
//!    --sglang-attention-backend fa3
//! )
//! ```
//!
//! ## Versions
//!
//! slime of August 2026.
//!
//! ## Source
//!
//! slime `slime/backends/sglang_utils/arguments.py`.

use schemas::{
    diagnostic::{Safety, Severity},
    engines::Engine,
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD172",
    name: "slime-dp",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let ranks = context.launch.count(Key::DpSize).filter(|ranks| ranks.value > 1)?;
    let key = Key::EnableDpAttention;
    if context.launch.engine != Engine::Slime || !context.is_absent(key) {
        return None;
    }
    Some(
        Finding::new(
            ranks.span,
            format!("{} ranks without DP attention: slime does not start", ranks.value),
            "needs it",
        )
        .help(format!("add `{}`", context.flag(key)))
        .fix(Safety::Unsafe, "turn DP attention on", context.set(key, "")),
    )
}

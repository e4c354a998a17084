//! # SD173: slime-fp16
//!
//! `--fp16` sets the engine's dtype as well.
//!
//! ## What it does
//!
//! Looks for slime's `--fp16` with speculation.
//!
//! ## Why is this bad?
//!
//! It trains in float16 and makes the engine run in float16, regardless of `--sglang-dtype`.
//!
//! ## What SGLang does
//!
//! slime sets `dtype` to float16.
//!
//! ## Example
//!
//! ```launch bad
//! TRAIN_ARGS=(
//!    --fp16
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-max-running-requests 64
//!    --sglang-attention-backend fa3
//! )
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! TRAIN_ARGS=(
//!    --sglang-dtype bfloat16
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
//! slime `slime/backends/sglang_utils/sglang_engine.py`.

use schemas::{diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD173",
    name: "slime-fp16",
    severity: Severity::Info,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let place = context.span(Key::Fp16)?;
    (context.launch.engine == Engine::Slime && context.resolved.speculative).then(|| {
        Finding::new(place, "the engine runs in float16 too, target and draft", "for the engine as well")
            .related(context.span(Key::Dtype), "not used")
    })
}

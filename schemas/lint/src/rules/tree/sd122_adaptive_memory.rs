//! # SD122: adaptive-memory
//!
//! Adaptive steps need memory for the longest chain, and little is left.
//!
//! ## What it does
//!
//! Looks for `--speculative-adaptive` with its default configuration and a `--mem-fraction-static`
//! of 0.9 or more.
//!
//! ## Why is this bad?
//!
//! Buffers are allocated for the largest number of steps that may be chosen (7, so 8 tokens per
//! request), and graphs are captured for every number of steps, not just one. All of that is
//! outside the memory fraction.
//!
//! ## What SGLang does
//!
//! It captures one set of graphs for each of 0, 1, 3, 5 and 7 steps, regardless of
//! `--speculative-num-steps`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-adaptive --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --mem-fraction-static 0.92
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-adaptive --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --mem-fraction-static 0.85
//! ```
//!
//! ## Versions
//!
//! Since the flag was added; read in 0.5.12 to 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/adaptive_spec_params.py`; issue #35275.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD122",
    name: "adaptive-memory",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Fraction above which little memory is left besides weights and KV pool.
const TIGHT: f64 = 0.9;

fn check(context: &Context<'_>) -> Option<Finding> {
    context.algorithm().filter(|algorithm| matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3))?;
    let adaptive = context.span(Key::SpeculativeAdaptive)?;
    let share = context.launch.number(Key::MemFractionStatic).filter(|share| share.value >= TIGHT)?;
    let static_steps = context.launch.count(Key::SpeculativeEagleTopk).is_some_and(|topk| topk.value > 1);
    if static_steps || context.launch.has(Key::EnableDpAttention) || !context.is_absent(Key::SpeculativeAdaptiveConfig)
    {
        return None;
    }
    Some(
        Finding::new(share.span, "adaptive steps take memory outside this share, for up to 7 steps", "little is left")
            .related(Some(adaptive), "graphs for 0, 1, 3, 5 and 7 steps")
            .help(format!(
                "lower `{}`, or name fewer steps in a file for `{}`",
                context.flag(Key::MemFractionStatic),
                context.flag(Key::SpeculativeAdaptiveConfig)
            )),
    )
}

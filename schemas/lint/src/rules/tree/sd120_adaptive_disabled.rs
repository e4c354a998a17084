//! # SD120: adaptive-disabled
//!
//! Adaptive steps are requested but will not be used.
//!
//! ## What it does
//!
//! Looks for `--speculative-adaptive` with an algorithm other than EAGLE or EAGLE3, with topk above
//! 1, or with DP attention.
//!
//! ## Why is this bad?
//!
//! The requested setting is not the one that runs: the number of steps stays fixed.
//!
//! ## What SGLang does
//!
//! `speculative_adaptive disabled: … Falling back to static speculative params.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-adaptive --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-adaptive --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3
//! ```
//!
//! ## Versions
//!
//! Since the flag was added; read in 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/adaptive_spec_params.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD120",
    name: "adaptive-disabled",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let place = context.span(Key::SpeculativeAdaptive)?;
    let algorithm = context.algorithm()?;
    let topk = context.launch.count(Key::SpeculativeEagleTopk).filter(|topk| topk.value > 1);
    let (reason, key) = if !matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3) {
        (algorithm.name(), Key::SpeculativeAlgorithm)
    } else if topk.is_some() {
        ("topk above 1", Key::SpeculativeEagleTopk)
    } else if context.launch.has(Key::EnableDpAttention) {
        ("DP attention", Key::EnableDpAttention)
    } else if context.launch.count(Key::AttnDpSize).is_some_and(|ranks| ranks.value > 1) {
        ("DP attention", Key::AttnDpSize)
    } else if context.launch.has(Key::EnableMultiLayerEagle) {
        ("one MTP layer a step", Key::EnableMultiLayerEagle)
    } else if context.launch.has(Key::EnableTwoBatchOverlap) {
        ("two-batch overlap", Key::EnableTwoBatchOverlap)
    } else if context.version() <= V0_5_12 && context.is_absent(Key::SpeculativeEagleTopk) {
        ("a topk that is not given, up to 0.5.12", Key::SpeculativeAdaptive)
    } else {
        return None;
    };
    Some(
        Finding::new(place, format!("adaptive steps are turned off by {reason}"), "not used")
            .related(context.span(key), "this turns them off")
            .sglang_says("speculative_adaptive disabled: …. Falling back to static speculative params.")
            .help(format!("take `{}` or `{}` out", context.flag(Key::SpeculativeAdaptive), context.flag(key))),
    )
}

//! # SD111: rejection-sampling
//!
//! Rejection sampling runs on chains of EAGLE and EAGLE3 only, with exact acceptance.
//!
//! ## What it does
//!
//! Looks for `--speculative-use-rejection-sampling` with another algorithm, with topk above 1, or
//! with an accept threshold below 1.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `NotImplementedError` for other algorithms; a ValueError that demands topk 1 or thresholds of 1.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-use-rejection-sampling \
//!   --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 4 \
//!   --speculative-num-draft-tokens 8
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-use-rejection-sampling --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Since the flag was added; read in 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD111",
    name: "rejection-sampling",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let place = context.span(Key::SpeculativeUseRejectionSampling)?;
    let algorithm = context.algorithm()?;
    let topk = context.launch.count(Key::SpeculativeEagleTopk).filter(|topk| topk.value > 1);
    let lossy = [Key::SpeculativeAcceptThresholdSingle, Key::SpeculativeAcceptThresholdAcc]
        .into_iter()
        .find(|key| context.launch.number(*key).is_some_and(|threshold| threshold.value < 1.0));
    let (reason, key) = match (algorithm, topk, lossy) {
        (Algorithm::Eagle | Algorithm::Eagle3, Some(_), _) => ("topk above 1", Key::SpeculativeEagleTopk),
        (Algorithm::Eagle | Algorithm::Eagle3, None, Some(key)) => ("an accept threshold below 1", key),
        (Algorithm::Eagle | Algorithm::Eagle3, None, None) => return None,
        (other, ..) => (other.name(), Key::SpeculativeAlgorithm),
    };
    Some(
        Finding::new(
            place,
            format!("rejection sampling does not run with {reason}"),
            "chains of EAGLE and EAGLE3 only",
        )
        .related(context.span(key), "this")
        .help(format!("take `{}` out", context.flag(Key::SpeculativeUseRejectionSampling))),
    )
}

//! # SD110: accept-thresholds
//!
//! An acceptance threshold below 1 changes the model's output.
//!
//! ## What it does
//!
//! Looks for `--speculative-accept-threshold-single` and `--speculative-accept-threshold-acc`
//! below 1.
//!
//! ## Why is this bad?
//!
//! With both at 1, speculation gives the target's own distribution. Below 1, draft tokens are
//! accepted that the target would have rejected: this is faster, but no longer the same model. In
//! reinforcement learning the samples are off-policy.
//!
//! ## What SGLang does
//!
//! A draft token is accepted if the target gives it a probability of at least `single`; `acc`
//! raises the acceptance probability p to min(1, p / acc). Nothing in the log says so.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-accept-threshold-single 0.8
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-accept-threshold-single 1.0
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `arg_groups/fields/spec.py`, `speculative/eagle_utils.py`.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD110",
    name: "accept-thresholds",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let keys = [Key::SpeculativeAcceptThresholdSingle, Key::SpeculativeAcceptThresholdAcc];
    keys.into_iter().filter_map(|key| look(context, key)).collect()
}

fn look(context: &Context<'_>, key: Key) -> Option<Finding> {
    let threshold = context.launch.number(key).filter(|_| context.resolved.speculative)?;
    // NaN is not a threshold; the engine rejects it.
    if threshold.value >= 1.0 || threshold.value.is_nan() {
        return None;
    }
    let message =
        format!("an acceptance threshold of {} makes the output lossy: it is not the target's own", threshold.value);
    Some(
        Finding::new(threshold.span, message, "below 1")
            .note("draft tokens are accepted that the target would have rejected")
            .help(format!("remove `{}`, or write `{}`", context.flag(key), context.line(key, "1.0")))
            .fix(Safety::Unsafe, "accept what the target accepts", context.remove(key)),
    )
}

//! # SD097: two-batch-overlap
//!
//! Two-batch overlap or PD multiplexing cannot be combined with this kind of speculation.
//!
//! ## What it does
//!
//! Looks for `--enable-pdmux` with adaptive steps, and for `--enable-pdmux` or
//! `--enable-two-batch-overlap` with a UNO tree (topk above 1). Adaptive steps under two-batch
//! overlap are reported by SD120.
//!
//! ## Why is this bad?
//!
//! Adaptive steps are turned off, and a UNO tree is rejected.
//!
//! ## What SGLang does
//!
//! `speculative_adaptive disabled: …. Falling back to static speculative params.` Under either of
//! them UNO can draft chains only.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-adaptive --enable-pdmux
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --enable-pdmux
//! ```
//!
//! ## Versions
//!
//! Read in 0.5.23; adaptive steps are in 0.5.12.post1 and later.
//!
//! ## Source
//!
//! sglang `speculative/adaptive_spec_params.py`, `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD097",
    name: "two-batch-overlap",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let algorithm = context.algorithm()?;
    let launch = context.launch;
    let tree =
        algorithm == Algorithm::Uno && launch.count(Key::SpeculativeEagleTopk).is_some_and(|topk| topk.value > 1);
    let adaptive = matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3) && context.is_adaptive();
    let (message, key, cause) = if adaptive && launch.has(Key::EnablePdmux) {
        ("adaptive steps are turned off under PD multiplexing", Key::EnablePdmux, Key::SpeculativeAdaptive)
    } else if tree && context.version() >= V0_5_23 {
        let key = [Key::EnablePdmux, Key::EnableTwoBatchOverlap].into_iter().find(|key| launch.has(*key))?;
        ("a UNO tree does not run under this overlap", key, Key::SpeculativeEagleTopk)
    } else {
        return None;
    };
    Some(
        Finding::new(context.place(key), message, "not together")
            .related(context.span(cause), "this and that")
            .by_version()
            .help(format!("take `{}` or `{}` out", context.flag(key), context.flag(cause))),
    )
}

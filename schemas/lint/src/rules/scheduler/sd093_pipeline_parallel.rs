//! # SD093: pipeline-parallel
//!
//! Pipeline parallelism and speculation cannot be combined.
//!
//! ## What it does
//!
//! Looks for `--pp-size` above 1 with speculation, except for prefill engines with EAGLE or DSPARK
//! from 0.5.21 on.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! Up to 0.5.20: `AssertionError: Pipeline parallelism is not compatible with overlap schedule,
//! speculative decoding`. From 0.5.21 on it runs on prefill nodes, with a single-layer EAGLE or
//! DSPARK: `PP + speculative decoding (MTP) is only supported on prefill nodes`. DFLASH and UNO
//! reject it everywhere.
//!
//! ## Example
//!
//! ```launch bad version:0.5.2
//! sglang serve --model-path target --pp-size 2 --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.2
//! sglang serve --model-path target --tp-size 2 --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! All versions read: on prefill nodes up to 0.5.20, elsewhere up to 0.5.23 unless
//! SGLANG_ENABLE_PP_SPEC is set.
//!
//! ## Source
//!
//! sglang `arg_groups/validation_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD093",
    name: "pipeline-parallel",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let size = context.launch.count(Key::PpSize).filter(|size| size.value > 1)?;
    let version = context.version();
    let parallel = context.resolved.tp_size.as_ref().map_or(1, |tensor| tensor.value).saturating_mul(size.value);
    let prefill = context.launch.text(Key::DisaggregationMode).is_some_and(|mode| mode.value == "prefill");
    let experimental = !context.launch.lacks_variable("SGLANG_ENABLE_PP_SPEC");
    let never = matches!(context.algorithm(), Some(Algorithm::Dflash | Algorithm::Uno));
    if !context.resolved.speculative || (version >= V0_5_21 && !never && (prefill || experimental)) {
        return None;
    }
    let says = if never {
        "ValueError: it only supports pp_size == 1"
    } else if version >= V0_5_21 {
        "PP + speculative decoding (MTP) is only supported on prefill nodes"
    } else {
        "AssertionError: Pipeline parallelism is not compatible with overlap schedule, speculative decoding"
    };
    Some(
        Finding::new(
            size.span,
            format!("speculation cannot run over {} pipeline stages", size.value),
            "one stage only",
        )
        .related(context.span(Key::SpeculativeAlgorithm), "drafts between passes")
        .sglang_says(says)
        .by_version()
        .help(format!("use tensor parallelism: `{}`", context.line(Key::TpSize, &parallel.to_string()))),
    )
}

//! # SD093: pipeline-parallel
//!
//! Pipeline parallelism and speculation cannot be combined.
//!
//! ## What it does
//!
//! Looks for `--pp-size` above 1 with speculation, except for what runs from 0.5.21 on: EAGLE or
//! DSPARK on prefill engines, and EAGLE on an engine that does both where SGLANG_ENABLE_PP_SPEC is
//! set.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! Up to 0.5.20: `AssertionError: Pipeline parallelism is not compatible with overlap schedule,
//! speculative decoding`. From 0.5.21 on it runs on prefill nodes, with a single-layer EAGLE or
//! DSPARK: `PP + speculative decoding (MTP) is only supported on prefill nodes`. EAGLE-3 and other
//! algorithms are refused: `Pipeline parallelism currently only supports EAGLE (non-multi-layer)
//! speculative decoding`. Under SGLANG_ENABLE_PP_SPEC so are DSPARK, disaggregation and adaptive
//! speculation. DFLASH and UNO reject it everywhere.
//!
//! ## Example
//!
//! ```launch bad version:0.5.2
//! sglang serve --model-path target --pp-size 2 --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch bad version:0.5.22
//! SGLANG_ENABLE_PP_SPEC=1 sglang serve --model-path target --pp-size 2 --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
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
//! sglang `arg_groups/validation_hook.py`; issue #39634.

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
    let never = matches!(context.algorithm(), Some(Algorithm::Dflash | Algorithm::Uno));
    if !context.resolved.speculative {
        return None;
    }
    let says = if never {
        "ValueError: it only supports pp_size == 1"
    } else if version >= V0_5_21 {
        refused_over_stages(context, prefill)?
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

/// What the versions from 0.5.21 on say, or nothing if the launch runs over stages.
fn refused_over_stages(context: &Context<'_>, prefill: bool) -> Option<&'static str> {
    let launch = context.launch;
    let given = launch.variable("SGLANG_ENABLE_PP_SPEC");
    let experimental = given.is_some_and(|value| matches!(value.value, "1" | "true" | "True"));
    let may_be = experimental || !launch.lacks_variable("SGLANG_ENABLE_PP_SPEC");
    match context.algorithm()? {
        Algorithm::Dspark if experimental => Some("SGLANG_ENABLE_PP_SPEC does not support DSPARK PD prefill"),
        Algorithm::Dspark => (!prefill).then_some("Pipeline parallel DSPARK requires disaggregation-mode=prefill"),
        Algorithm::Eagle
            if experimental && launch.text(Key::DisaggregationMode).is_some_and(|mode| mode.value != "null") =>
        {
            Some("SGLANG_ENABLE_PP_SPEC is not compatible with --disaggregation-mode")
        }
        Algorithm::Eagle if experimental && launch.has(Key::SpeculativeAdaptive) => {
            Some("SGLANG_ENABLE_PP_SPEC is not compatible with --speculative-adaptive")
        }
        Algorithm::Eagle => {
            (!prefill && !may_be).then_some("PP + speculative decoding (MTP) is only supported on prefill nodes")
        }
        _ => Some("Pipeline parallelism currently only supports EAGLE (non-multi-layer) speculative decoding"),
    }
}

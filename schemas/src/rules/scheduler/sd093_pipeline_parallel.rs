//! # SD093: pipeline-parallel
//!
//! Pipeline parallelism and speculation do not go together.
//!
//! ## What it does
//!
//! Looks for `--pp-size` above 1 with speculation, but for prefill engines from 0.5.23 on.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! Up to 0.5.2: `AssertionError: Pipeline parallelism is not compatible with overlap schedule, speculative decoding, mixed
//! chunked prefill.` In 0.5.23 it runs on prefill nodes only, with a single-layer EAGLE: `PP + speculative decoding (MTP) is
//! only supported on prefill nodes`.
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
//! All versions read.
//!
//! ## Source
//!
//! sglang `arg_groups/validation_hook.py`.

use crate::{
    diagnostic::Severity,
    flags::Key,
    rules::{Applies, Check, Context, Finding, Rule, versions::*},
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "SD093",
    name: "pipeline-parallel",
    severity: Severity::Error,
    applies: Applies::Sglang,
    file: include_str!("sd093_pipeline_parallel.rs"),
    check: Check::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let size = context.launch.count(Key::PpSize).filter(|size| size.value > 1)?;
    let version = context.version();
    let parallel = context.resolved.tp_size.as_ref().map_or(1, |tensor| tensor.value).saturating_mul(size.value);
    let prefill = context.launch.text(Key::DisaggregationMode).is_some_and(|mode| mode.value == "prefill");
    let experimental = !context.launch.lacks_variable("SGLANG_ENABLE_PP_SPEC");
    if !context.resolved.speculative || (version > V0_5_15 && (prefill || experimental)) {
        return None;
    }
    let says = if version > V0_5_15 {
        "PP + speculative decoding (MTP) is only supported on prefill nodes"
    } else {
        "AssertionError: Pipeline parallelism is not compatible with overlap schedule, speculative decoding, mixed chunked \
         prefill."
    };
    Some(
        Finding::new(
            size.span,
            format!("speculation cannot run over {} pipeline stages", size.value),
            "one stage only",
        )
        .related(context.span(Key::SpeculativeAlgorithm), "drafts between passes")
        .engine_says(says)
        .by_version(context)
        .help(format!("use tensor parallelism: `{}`", context.line(Key::TpSize, &parallel.to_string()))),
    )
}

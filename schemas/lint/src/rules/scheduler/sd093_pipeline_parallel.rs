//! # SD093: pipeline-parallel
//!
//! Pipeline parallelism and speculation cannot be combined.
//!
//! ## What it does
//!
//! Looks for `--pp-size` above 1 with speculation, except for what runs: EAGLE on prefill engines
//! of NPUs in 0.5.20, and from 0.5.21 on EAGLE or DSPARK on prefill engines, and EAGLE on an engine
//! that does both where SGLANG_ENABLE_PP_SPEC is set.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! Up to 0.5.20: `AssertionError: Pipeline parallelism is not compatible with overlap schedule,
//! speculative decoding`, except for EAGLE on prefill nodes of NPUs in 0.5.20. From 0.5.21 on it runs on prefill nodes, with a single-layer EAGLE or
//! DSPARK: `PP + speculative decoding (MTP) is only supported on prefill nodes`. EAGLE-3 and other
//! algorithms are refused: `Pipeline parallelism currently only supports EAGLE (non-multi-layer)
//! speculative decoding`. Under SGLANG_ENABLE_PP_SPEC so are DSPARK, disaggregation, adaptive
//! speculation and data-parallel attention. DFLASH and UNO reject it everywhere.
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
//! ```launch bad version:0.5.22
//! SGLANG_ENABLE_PP_SPEC=1 sglang serve --model-path target --pp-size 2 --speculative-algorithm EAGLE --speculative-draft-model-path draft --max-running-requests 16 --attention-backend fa3 --speculative-adaptive --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
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
//! All versions read: on prefill nodes up to 0.5.20 (of NPUs up to 0.5.19), elsewhere up to 0.5.23
//! unless SGLANG_ENABLE_PP_SPEC is set.
//!
//! ## Source
//!
//! sglang `arg_groups/validation_hook.py`; issue #39634.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, text::Span};

use crate::rules::{
    Applies, Context, Definition, Finding, RuleCheck,
    platform::{Platform, platform_of},
    versions::*,
};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD093",
    name: "pipeline-parallel",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Why a launch over stages is refused, and what to change.
struct PipelineRefusal {
    says: &'static str,
    /// What does not run, other than stages themselves: its place, and its name in the message.
    with: Option<(Span, &'static str)>,
}

const fn stages(says: &'static str) -> PipelineRefusal {
    PipelineRefusal { says, with: None }
}

const VARIABLE: &str = "SGLANG_ENABLE_PP_SPEC";

fn check(context: &Context<'_>) -> Option<Finding> {
    let size = context.launch.count(Key::PpSize).filter(|size| size.value > 1)?;
    if !context.resolved.speculative {
        return None;
    }
    let refusal = match context.algorithm() {
        Some(Algorithm::Dflash | Algorithm::Uno) => stages("ValueError: it only supports pp_size == 1"),
        _ if context.version() >= V0_5_21 => refused_over_stages(context)?,
        _ => refused_before(context)?,
    };
    let count = size.value;
    let finding = match refusal.with {
        Some((place, what)) => {
            let message = format!("speculation over {count} pipeline stages does not run with {what}");
            Finding::new(place, message, "not together")
                .related(Some(size.span), "stages")
                .help(format!("take it out, or use one stage and no `{VARIABLE}`"))
        }
        None => {
            let parallel = context.resolved.tp_size.as_ref().map_or(1, |tensor| tensor.value).saturating_mul(count);
            let message = format!("speculation cannot run over {count} pipeline stages");
            Finding::new(size.span, message, "one stage only")
                .help(format!("use tensor parallelism: `{}`", context.line(Key::TpSize, &parallel.to_string())))
        }
    };
    Some(
        finding
            .related(context.span(Key::SpeculativeAlgorithm), "drafts between passes")
            .sglang_says(refusal.says)
            .by_version(),
    )
}

fn only_prefills(context: &Context<'_>) -> bool {
    context.launch.disaggregation_mode().is_some_and(|mode| mode.value == "prefill")
}

/// What the versions up to 0.5.20 say. That one runs EAGLE on prefill engines of NPUs.
fn refused_before(context: &Context<'_>) -> Option<PipelineRefusal> {
    let is_prefill = only_prefills(context);
    let is_npu = platform_of(context) == Some(Platform::Ascend);
    if context.version() < V0_5_20 || !is_npu {
        let says = "AssertionError: Pipeline parallelism is not compatible with overlap schedule, speculative decoding";
        return Some(stages(says));
    }
    match context.algorithm()? {
        Algorithm::Eagle if is_prefill => None,
        Algorithm::Eagle => {
            Some(stages("AssertionError: NPU PP + speculative decoding (MTP) is only supported on prefill nodes"))
        }
        _ => Some(stages(
            "AssertionError: Pipeline parallelism currently only supports EAGLE (non-multi-layer) speculative decoding",
        )),
    }
}

/// What the versions from 0.5.21 on say, or nothing if the launch runs over stages.
fn refused_over_stages(context: &Context<'_>) -> Option<PipelineRefusal> {
    let launch = context.launch;
    let is_prefill = only_prefills(context);
    let given = launch.variable(VARIABLE);
    let experimental = given.filter(|value| matches!(value.value, "1" | "true" | "True"));
    let may_be = experimental.is_some() || !launch.lacks_variable(VARIABLE);
    match (context.algorithm()?, experimental) {
        (Algorithm::Dspark, Some(variable)) => Some(PipelineRefusal {
            says: "SGLANG_ENABLE_PP_SPEC does not support DSPARK PD prefill",
            with: Some((variable.span, "this variable under DSPARK")),
        }),
        (Algorithm::Dspark, None) => {
            (!is_prefill).then_some(stages("Pipeline parallel DSPARK requires disaggregation-mode=prefill"))
        }
        (Algorithm::Eagle, Some(_)) => refused_on_one_engine(context),
        (Algorithm::Eagle, None) => (!is_prefill && !may_be)
            .then_some(stages("PP + speculative decoding (MTP) is only supported on prefill nodes")),
        _ => Some(stages("Pipeline parallelism currently only supports EAGLE (non-multi-layer) speculative decoding")),
    }
}

/// What does not run with stages of an engine that does both prefill and decode.
fn refused_on_one_engine(context: &Context<'_>) -> Option<PipelineRefusal> {
    let launch = context.launch;
    let mode = launch.disaggregation_mode();
    let attention = if context.version() >= V0_5_22 {
        "SGLANG_ENABLE_PP_SPEC is not compatible with attention DP (--attn-dp-size)"
    } else {
        "SGLANG_ENABLE_PP_SPEC is not compatible with --enable-dp-attention"
    };
    let size = launch.argument("attn-dp-size");
    let is_several = |word: &str| word.parse::<usize>().is_ok_and(|size| size > 1);
    let size = size.filter(|size| size.known().is_some_and(is_several));
    let attention_span = size.map(|size| size.span).or_else(|| context.span(Key::EnableDpAttention));
    let refused = [
        (
            mode.map(|mode| mode.span),
            "separate prefill and decode engines under this variable",
            "SGLANG_ENABLE_PP_SPEC is not compatible with --disaggregation-mode",
        ),
        (
            context.span(Key::SpeculativeAdaptive),
            "adaptive steps",
            "SGLANG_ENABLE_PP_SPEC is not compatible with --speculative-adaptive",
        ),
        (attention_span, "data-parallel attention", attention),
    ];
    let found = refused.into_iter().find_map(|(place, what, says)| Some((place?, what, says)));
    found.map(|(place, what, says)| PipelineRefusal { says, with: Some((place, what)) })
}

#[cfg(test)]
mod tests {
    use crate::rules::examples::{finds, found_in};

    #[test]
    fn npus_prefill_over_stages_from_0_5_20_on() {
        let text = "sglang serve --model-path m --speculative-algorithm EAGLE --pp-size 2 --disaggregation-mode prefill \
                    --disable-overlap-schedule";
        assert!(finds("SD093", text, "0.5.20"));
        assert!(finds("SD093", &format!("{text} --device npu"), "0.5.19"));
        assert!(!finds("SD093", &format!("{text} --device npu"), "0.5.20"));
        assert!(!finds("SD093", text, "0.5.21"));
    }

    #[test]
    fn what_does_not_run_with_stages_is_named_at_its_place() {
        let check = |flags: &str, version: &str, what: &str| {
            let text = format!(
                "SGLANG_ENABLE_PP_SPEC=1 sglang serve --model-path m --pp-size 2 --tp 4 --speculative-algorithm EAGLE {flags}"
            );
            let found = found_in(&text, version, "", "");
            let own = found.iter().find(|found| found.code == "SD093").expect(flags);
            assert!(own.message.contains(what), "{}", own.message);
            assert!(text[own.span.range()].contains(flags.split_whitespace().last().expect("a flag")), "{flags}");
        };
        check("--speculative-adaptive", "0.5.23", "adaptive steps");
        check("--disaggregation-mode prefill", "0.5.21", "separate prefill");
        check("--dp-size 2 --enable-dp-attention", "0.5.21", "data-parallel attention");
        check("--attn-dp-size 2", "0.5.23", "data-parallel attention");
    }
}

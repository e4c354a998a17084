//! # SD197: dspark-limits
//!
//! DSPARK does not support this setting.
//!
//! ## What it does
//!
//! Looks at a DSPARK launch for DP attention without `--enable-dp-lm-head` or with an unsupported
//! all-to-all library, for context parallelism under DP attention, and for unsupported devices.
//! Under DP attention also for a mode of verification that the library does not allow, and for an
//! all-to-all library of the draft's own.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: DSpark with dp attention requires --enable-dp-lm-head.`, `ValueError: DSpark
//! speculative decoding only supports CUDA, NPU or XPU device.` and others of this kind. Pipeline
//! parallelism is another finding (SD093).
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DSPARK --speculative-draft-model-path draft --tp 8 --dp-size 8 \
//!   --enable-dp-attention --max-running-requests 64
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DSPARK --speculative-draft-model-path draft --tp 8 --dp-size 8 \
//!   --enable-dp-attention --enable-dp-lm-head --max-running-requests 64
//! ```
//!
//! ## Versions
//!
//! Since DSPARK was added (0.5.16). NPUs from 0.5.18 on, XPUs in 0.5.23; `megamoe` from 0.5.18 and
//! `mori` from 0.5.21 on. The mode and the draft's own library were read in 0.5.18 and later.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`, `_handle_dspark`.

use schemas::{
    algorithm::Algorithm,
    diagnostic::Severity,
    flags::Key,
    text::{Located, Span, shortened},
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD197",
    name: "dspark-limits",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    if context.only(Algorithm::Dspark).is_none() || context.version() < V0_5_16 {
        return Vec::new();
    }
    [device(context), head(context), library(context), mode(context), own_library(context)]
        .into_iter()
        .flatten()
        .collect()
}

fn device(context: &Context<'_>) -> Option<Finding> {
    let device = context.launch.text(Key::Device)?;
    let name = device.value.split(':').next().unwrap_or_default();
    let runs = match name {
        "auto" | "cuda" => true,
        "npu" => context.version() >= V0_5_18,
        "xpu" => context.version() >= V0_5_23,
        _ => false,
    };
    (!runs).then(|| {
        Finding::new(device.span, format!("DSPARK does not run on `{name}`"), "not on this device")
            .sglang_says("ValueError: DSpark speculative decoding only supports CUDA, NPU or XPU device.")
            .by_version()
            .help("use a GPU, or another algorithm")
    })
}

fn head(context: &Context<'_>) -> Option<Finding> {
    let ranks = attention_ranks(context)?;
    context.is_absent(Key::EnableDpLmHead).then(|| {
        Finding::new(ranks, "DSPARK with DP attention needs the output head per rank", "no data-parallel head")
            .related(context.span(Key::SpeculativeAlgorithm), "drafts with the target's head")
            .sglang_says("ValueError: DSpark with dp attention requires --enable-dp-lm-head.")
            .by_version()
            .help(format!("add `{}`", context.flag(Key::EnableDpLmHead)))
    })
}

fn library(context: &Context<'_>) -> Option<Finding> {
    attention_ranks(context)?;
    let library = context.launch.text(Key::MoeA2aBackend)?;
    let runs = match library.value {
        "none" => true,
        "megamoe" => context.version() >= V0_5_18,
        "mori" => context.version() >= V0_5_21,
        _ => false,
    };
    let on_npu = context.launch.text(Key::Device).is_some_and(|device| device.value.starts_with("npu"));
    (!runs && !on_npu).then(|| {
        let shown = shortened(library.value);
        Finding::new(library.span, format!("DSPARK with DP attention does not run on `{shown}`"), "not this library")
            .sglang_says("ValueError: DSpark with dp attention supports moe_a2a_backend 'none' (built-in TP MoE), …")
            .by_version()
            .help(format!("write `{}`", context.line(Key::MoeA2aBackend, "none")))
    })
}

/// A mode that cuts the verified tokens, which the ranks would have to agree on.
fn mode(context: &Context<'_>) -> Option<Finding> {
    attention_ranks(context)?;
    let on_npu = context.launch.text(Key::Device).is_some_and(|device| device.value.starts_with("npu"));
    let library = context.launch.text(Key::MoeA2aBackend).filter(|library| library.value != "none")?;
    let mode = context.launch.variable("SGLANG_RAGGED_VERIFY_MODE")?;
    let is_other = matches!(mode.value.trim(), "compact" | "cap-accept");
    (is_other && !on_npu && context.version() >= V0_5_18).then(|| {
        let message = format!("DSPARK over `{}` verifies every token, and the mode asks for fewer", library.value);
        Finding::new(mode.span, message, "not with this library")
            .related(Some(library.span), "exchanges tokens between ranks")
            .sglang_says("ValueError: DSpark DP MoE or prefill coordination requires SGLANG_RAGGED_VERIFY_MODE=static.")
            .by_version()
            .help("take the variable out, or write `SGLANG_RAGGED_VERIFY_MODE=static`")
    })
}

/// A library of the draft's own.
fn own_library(context: &Context<'_>) -> Option<Finding> {
    attention_ranks(context)?;
    let on_npu = context.launch.text(Key::Device).is_some_and(|device| device.value.starts_with("npu"));
    let argument = context.argument("speculative-moe-a2a-backend")?;
    let own = argument.values.first()?;
    let own = Located::new(own.value.known()?, own.span);
    let target = match context.launch.text(Key::MoeA2aBackend) {
        Some(library) => library.value,
        None if context.is_absent(Key::MoeA2aBackend) => "none",
        None => return None,
    };
    (own.value != target && !on_npu && context.version() >= V0_5_18).then(|| {
        let message = format!("DSPARK exchanges tokens over `{target}` too, and not over `{}`", shortened(own.value));
        Finding::new(own.span, message, "another library")
            .sglang_says("ValueError: DSpark ignores --speculative-moe-a2a-backend; with dp attention it must match …")
            .by_version()
            .help(format!("take `{}` out", argument.flag.value))
    })
}

/// The span that requests DP attention with more than one rank.
fn attention_ranks(context: &Context<'_>) -> Option<Span> {
    let several = |key: Key| context.launch.count(key).filter(|ranks| ranks.value > 1).map(|ranks| ranks.span);
    let old = context.span(Key::EnableDpAttention).filter(|_| several(Key::DpSize).is_some());
    several(Key::AttnDpSize).or(old)
}

//! # SD197: dspark-limits
//!
//! DSPARK does not support this setting.
//!
//! ## What it does
//!
//! Looks at a DSPARK launch for DP attention without `--enable-dp-lm-head` or with an unsupported all-to-all library,
//! for context parallelism under DP attention, and for unsupported devices.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: DSpark with dp attention requires --enable-dp-lm-head.`, `ValueError: DSpark speculative decoding only supports CUDA,
//! NPU or XPU device.` and others of this kind. Pipeline parallelism is another finding (SD093).
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
//! Since DSPARK was added (0.5.16). NPUs from 0.5.18 on, XPUs in 0.5.23; `megamoe` from 0.5.18 and `mori` from 0.5.21
//! on.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`, `_handle_dspark`.

use schemas::{
    algorithm::Algorithm,
    diagnostic::Severity,
    flags::Key,
    text::{Span, shortened},
};

use crate::rules::{Applies, Check, Context, Definition, Finding, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD197",
    name: "dspark-limits",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: Check::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    if context.only(Algorithm::Dspark).is_none() || context.version() < V0_5_16 {
        return Vec::new();
    }
    [device(context), head(context), library(context)].into_iter().flatten().collect()
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

/// The span that requests DP attention with more than one rank.
fn attention_ranks(context: &Context<'_>) -> Option<Span> {
    let several = |key: Key| context.launch.count(key).filter(|ranks| ranks.value > 1).map(|ranks| ranks.span);
    let old = context.span(Key::EnableDpAttention).filter(|_| several(Key::DpSize).is_some());
    several(Key::AttnDpSize).or(old)
}

//! # SD031: mla-topk
//!
//! Latent attention on flashinfer or FlashMLA runs chains only, but a tree is requested.
//!
//! ## What it does
//!
//! Looks for topk above 1 if the target has multi-head latent attention (as DeepSeek does) and the
//! backend is flashinfer or flashmla. FlashMLA supports nothing else, so the target need not be
//! known there.
//!
//! ## Why is this bad?
//!
//! The server crashes when the draft's attention backend is built.
//!
//! ## What SGLang does
//!
//! `ValueError: Currently Flashinfer MLA only supports topk=1 for speculative decoding`, or
//! `ValueError: Currently FlashMLA only supports topk=1 for speculative decoding`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path deepseek-ai/DeepSeek-V3 --tp 8 --speculative-algorithm EAGLE --attention-backend flashmla \
//!   --speculative-num-steps 3 --speculative-eagle-topk 2 --speculative-num-draft-tokens 6 --max-running-requests 8
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1, "kv_lora_rank": 512}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path deepseek-ai/DeepSeek-V3 --tp 8 --speculative-algorithm EAGLE --attention-backend flashmla \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 8
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1, "kv_lora_rank": 512}
//! ```
//!
//! ## Versions
//!
//! All versions since 0.4.10.
//!
//! ## Source
//!
//! sglang `layers/attention/flashinfer_mla_backend.py`, `layers/attention/flashmla_backend.py`.

use launch::resolve::uses_mla;
use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD031",
    name: "mla-topk",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let topk = context.resolved.topk.as_ref()?.value;
    let backend = context.resolved.attention_backend.as_ref()?.value.as_str();
    let name = match backend {
        "flashinfer" => "Flashinfer MLA",
        "flashmla" => "FlashMLA",
        _ => return None,
    };
    // FlashMLA has kernels for latent attention only.
    if topk < 2 || (backend != "flashmla" && !uses_mla(context.target_config()?)) {
        return None;
    }
    let key = if context.launch.has(Key::DecodeAttentionBackend) {
        Key::DecodeAttentionBackend
    } else {
        Key::AttentionBackend
    };
    let message = format!("{backend} cannot run a tree (topk {topk}) on latent attention");
    Some(
        Finding::new(context.value_place(key), message, "chains only")
            .related(context.span(Key::SpeculativeEagleTopk), format!("topk {topk}"))
            .sglang_says(format!("ValueError: Currently {name} only supports topk=1 for speculative decoding"))
            .on_facts("target", context.target)
            .help(format!(
                "write `{}`, or `{}`",
                context.line(Key::SpeculativeEagleTopk, "1"),
                context.line(Key::AttentionBackend, context.other_backend())
            )),
    )
}

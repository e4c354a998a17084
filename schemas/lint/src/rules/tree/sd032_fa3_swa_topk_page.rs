//! # SD032: fa3-swa-topk-page
//!
//! fa3 cannot run a tree with pages on a model with sliding windows.
//!
//! ## What it does
//!
//! Looks for topk above 1 and a page size above 1 on fa3, where the target's class runs
//! sliding-window attention (Gemma 2 and 3, gpt-oss, EXAONE 4, OLMo 2 and 3) and its config gives a
//! window.
//!
//! ## Why is this bad?
//!
//! The engine crashes at the first verify pass.
//!
//! ## What SGLang does
//!
//! `AssertionError: FlashAttention backend doesn't support topk > 1 speculative decoding with page
//! size > 1 sliding window attention`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9 also:SD194
//! sglang serve --model-path openai/gpt-oss-120b --speculative-algorithm EAGLE3 --attention-backend fa3 --page-size 64 \
//!   --speculative-draft-model-path lmsys/EAGLE3-gpt-oss-120b-bf16 --max-running-requests 8 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16
//! ```
//! ```target
//! {"architectures": ["GptOssForCausalLM"], "sliding_window": 128, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path openai/gpt-oss-120b --speculative-algorithm EAGLE3 --attention-backend fa3 --page-size 64 \
//!   --speculative-draft-model-path lmsys/EAGLE3-gpt-oss-120b-bf16 --max-running-requests 8 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["GptOssForCausalLM"], "sliding_window": 128, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! The assertion exists from 0.5.2 to 0.5.23; before 0.5.6 trees with pages are rejected on fa3
//! anyway (SD029).
//!
//! ## Source
//!
//! sglang `layers/attention/flashattention_backend.py`.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD032",
    name: "fa3-swa-topk-page",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Prefixes of the classes that report their window to the engine.
const WINDOWED: &[&str] = &["Afmoe", "Exaone4", "Gemma2", "Gemma3", "Gemma4", "GptOss", "Olmo2", "Olmo3"];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let topk = context.resolved.topk.as_ref()?.value;
    let page = context.resolved.page_size.as_ref()?.value;
    let target = context.target_config()?;
    let window = target.sliding_window.filter(|_| target.use_sliding_window != Some(false))?;
    let architecture = target.architecture()?;
    let fa3 = context.resolved.attention_backend.as_ref()?.value == "fa3";
    let windowed = WINDOWED.iter().any(|known| architecture.starts_with(known));
    if topk < 2 || page < 2 || !fa3 || !windowed || context.version() < V0_5_6 {
        return None;
    }
    let message = format!("fa3 cannot run a tree (topk {topk}) with pages of {page} tokens on windows of {window}");
    let finding = Finding::new(context.place(Key::PageSize), message, format!("pages of {page} tokens"))
        .related(context.span(Key::SpeculativeEagleTopk), format!("topk {topk}"))
        .sglang_says(
            "AssertionError: FlashAttention backend doesn't support topk > 1 speculative decoding with page size > 1 \
             sliding window attention",
        )
        .on_facts("target", context.target)
        .by_version()
        .help(format!("{} `{}`, or topk 1", context.add_or_write(Key::PageSize), context.line(Key::PageSize, "1")));
    Some(match context.span(Key::PageSize) {
        Some(_) => finding.fix(Safety::Unsafe, "use pages of one token", context.set(Key::PageSize, "1")),
        None => finding,
    })
}

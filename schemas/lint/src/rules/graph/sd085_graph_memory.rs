//! # SD085: graph-memory
//!
//! The largest verify graph computes more rows than the memory reserve allows for.
//!
//! ## What it does
//!
//! Multiplies the largest captured batch by the draft tokens, and compares that with the tokens of
//! a prefill pass (`--chunked-prefill-size`, at least 8192), by which SGLang decides how much
//! memory to keep free.
//!
//! ## Why is this bad?
//!
//! Activations and logits grow with the rows of a pass. Capture runs out of memory or, worse, a
//! full batch does so under load.
//!
//! ## What SGLang does
//!
//! `Capture cuda graph failed: …`, with the advice to lower `--mem-fraction-static` or the largest
//! captured batch. Memory is kept free for a prefill pass; a decode engine of current versions
//! counts the draft tokens too.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend fa3 --page-size 1 \
//!   --max-running-requests 512 --cuda-graph-bs-decode $(seq 1 512) --speculative-num-steps 31 --speculative-eagle-topk 1 --speculative-num-draft-tokens 32
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend fa3 --page-size 1 \
//!   --max-running-requests 512 --cuda-graph-bs-decode $(seq 1 512) --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `arg_groups/memory_hook.py`, issues #38341 and #10088.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD085",
    name: "graph-memory",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Default number of tokens per prefill pass on common GPUs.
const PREFILL: usize = 8192;

fn check(context: &Context<'_>) -> Option<Finding> {
    context.algorithm()?;
    let decodes_only = context.launch.text(Key::DisaggregationMode).is_some_and(|mode| mode.value == "decode");
    if context.is_adaptive() || (decodes_only && context.version() >= V0_5_23) {
        return None;
    }
    let largest = *context.resolved.capture_sizes.as_ref()?.value.last()?;
    let tokens = context.resolved.num_draft_tokens.as_ref()?.value;
    let prefill = match context.launch.setting(Key::ChunkedPrefillSize) {
        Some(_) => context.launch.count(Key::ChunkedPrefillSize)?.value.max(PREFILL),
        None => PREFILL,
    };
    let rows = largest.saturating_mul(tokens);
    if rows <= prefill {
        return None;
    }
    let place = [Key::SpeculativeNumDraftTokens, Key::CudaGraphBs, Key::CudaGraphMaxBs]
        .into_iter()
        .find_map(|key| context.span(key))
        .unwrap_or(context.launch.anchor);
    let fits = (prefill / tokens.max(1)).max(1);
    let message =
        format!("the largest graph verifies {largest} × {tokens} = {rows} rows, more than a prefill pass of {prefill}");
    Some(
        Finding::new(place, message, format!("{rows} rows in one pass"))
            .related(context.span(Key::CudaGraphMaxBs).or(context.span(Key::CudaGraphBs)), format!("up to {largest}"))
            .related(context.span(Key::MemFractionStatic), "what this leaves must hold them")
            .note("memory is kept free for a prefill pass only")
            .by_version()
            .help(format!(
                "use fewer draft tokens, or capture up to `{}`",
                context.line(Key::CudaGraphMaxBs, &fits.to_string())
            )),
    )
}

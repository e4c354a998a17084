//! # SD034: topk-gt1-kvindices-bug
//!
//! A buffer of FlashInfer's draft is too small for a tree.
//!
//! ## What it does
//!
//! Looks for topk above 1 if the draft's attention runs on FlashInfer inside CUDA graphs, in
//! versions before the fix.
//!
//! ## Why is this bad?
//!
//! The buffer has room for the pages of one branch per request, and a tree has topk branches. Once
//! the running requests' lengths times topk exceed the largest batch times the longest sequence,
//! indices are written past its end: silently wrong drafts, or an illegal memory access. A launch
//! with short texts may never get there.
//!
//! ## What SGLang does
//!
//! `cuda_graph_kv_indices` lacks the factor topk. From the fix on, its size is checked before each
//! launch of the kernel.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 4 --attention-backend flashinfer \
//!   --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 4 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16
//! ```
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 4 --attention-backend flashinfer \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Before 0.5.15.post1; 0.5.12.post1 still has it.
//!
//! ## Source
//!
//! sglang pull requests #27338 and #27460.

use schemas::{diagnostic::Severity, flags::Key};

use super::GivenShape;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD034",
    name: "topk-gt1-kvindices-bug",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const EDGE: Edge = Edge::new(V0_5_12, V0_5_15);

fn check(context: &Context<'_>) -> Option<Finding> {
    let topk = GivenShape::from_context(context)?.topk;
    let captured = !context.resolved.capture_sizes.as_ref()?.value.is_empty();
    if topk < 2 || !captured || EDGE.side(context.version()) == Side::After || draft_backend(context)? != "flashinfer" {
        return None;
    }
    let key = Key::SpeculativeEagleTopk;
    let message =
        format!("the draft's CUDA graphs hold the KV indices of one branch a request, and the tree has {topk}");
    Some(
        Finding::new(context.place(key), message, format!("{topk} branches"))
            .related(context.span(Key::AttentionBackend), "flashinfer drafts")
            .note("long sequences overflow the buffer: wrong drafts, or an illegal memory access")
            .maybe_note(EDGE.doubt(context.version()))
            .by_version()
            .help(format!(
                "use sglang 0.5.15.post1 or later, `{}`, or `{}`",
                context.line(Key::AttentionBackend, context.other_backend()),
                context.line(key, "1")
            )),
    )
}

/// The attention backend of the draft steps.
fn draft_backend<'a>(context: &Context<'a>) -> Option<&'a str> {
    if context.launch.has(Key::SpeculativeDraftAttentionBackend) {
        return context.launch.text(Key::SpeculativeDraftAttentionBackend).map(|backend| backend.value);
    }
    // The engine's default depends on the GPU, which is unknown.
    let written = context.resolved.attention_backend.as_ref().filter(|backend| backend.origin.is_written());
    written.map(|backend| backend.value.as_str())
}

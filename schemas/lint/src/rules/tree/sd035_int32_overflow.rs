//! # SD035: int32-overflow
//!
//! Graph batch × topk × context does not fit the 32-bit offsets of the draft's index table.
//!
//! ## What it does
//!
//! Multiplies the largest captured batch size, topk and the context length.
//!
//! ## Why is this bad?
//!
//! The draft's table of cache rows has a row for each branch of each request, as long as the
//! context.
//!
//! ## What SGLang does
//!
//! From 0.5.15 on: `AssertionError: kv_indices flat offset would overflow int32; reduce
//! batch/topk/context`. Before, offsets wrap around.
//!
//! ## Example
//!
//! ```launch bad version:0.5.15.post1 also:SD082
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 512 --context-length 1048576 \
//!   --cuda-graph-bs 1 2 4 8 16 32 64 128 256 512 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 8 --speculative-num-draft-tokens 16
//! ```
//! ```target
//! {"architectures": ["Glm4MoeForCausalLM"], "num_nextn_predict_layers": 1, "max_position_embeddings": 1048576}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.15.post1
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 64 --context-length 131072 \
//!   --cuda-graph-bs 1 2 4 8 16 32 64 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 8 --speculative-num-draft-tokens 16
//! ```
//! ```target
//! {"architectures": ["Glm4MoeForCausalLM"], "num_nextn_predict_layers": 1, "max_position_embeddings": 1048576}
//! ```
//!
//! ## Versions
//!
//! The assertion is in 0.5.15.post1 and 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/spec_utils.py`.

use schemas::{diagnostic::Severity, flags::Key};

use super::GivenShape;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD035",
    name: "int32-overflow",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let shape = GivenShape::from_context(context)?;
    let largest = context.resolved.capture_sizes.as_ref()?.value.iter().copied().max()?;
    let length = context.resolved.context_length.as_ref()?.value;
    let entries = largest.checked_mul(shape.topk)?.checked_mul(length)?;
    if entries < 1 << 31 {
        return None;
    }
    let place = context.span(Key::ContextLength).or(context.span(Key::SpeculativeEagleTopk));
    let message = format!("{largest} requests × topk {} × {length} tokens = {entries} is past 32 bits", shape.topk);
    Some(
        Finding::new(place.unwrap_or(context.launch.anchor), message, "too large together")
            .related(context.span(Key::SpeculativeEagleTopk), format!("topk {}", shape.topk))
            .related(context.span(Key::CudaGraphBs), format!("up to {largest}"))
            .sglang_says("AssertionError: kv_indices flat offset would overflow int32; reduce batch/topk/context")
            .on_facts("target", context.target)
            .by_version()
            .help("lower the context length, topk, or the largest captured batch size"),
    )
}

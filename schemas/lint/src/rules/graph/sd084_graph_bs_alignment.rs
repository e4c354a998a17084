//! # SD084: graph-bs-alignment
//!
//! None of the listed batch sizes can be captured under DP attention.
//!
//! ## What it does
//!
//! Under DP attention the number of tokens of a captured batch must be a multiple of the number of
//! GPUs that share one attention (tp / dp). Looks for a list of which no size satisfies this.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It drops every size for which batch size times draft tokens is not a multiple, and stops with
//! `AssertionError: capture_bs=[]`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --tp 8 --dp-size 2 --enable-dp-attention \
//!   --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3 --max-running-requests 16 \
//!   --attention-backend fa3 --cuda-graph-bs 1 2 3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --tp 8 --dp-size 2 --enable-dp-attention \
//!   --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3 --max-running-requests 16 \
//!   --attention-backend fa3 --cuda-graph-bs 4 8
//! ```
//!
//! ## Versions
//!
//! The tokens of a request are counted in 0.5.9 and later, the batch size alone before.
//!
//! ## Source
//!
//! sglang `model_executor/runner/base_cuda_graph_runner.py`.

use launch::resolve::Origin;
use schemas::{diagnostic::Severity, flags::Key};

use super::padding::advised_line;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, support::count};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD084",
    name: "graph-bs-alignment",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let key = Key::CudaGraphBs;
    let place = context.span(key).filter(|_| context.resolved.speculative)?;
    let sizes = context.resolved.capture_sizes.as_ref()?;
    let all_dropped = sizes.value.is_empty() && matches!(sizes.origin, Origin::Rewritten { .. });
    let share = context.resolved.tp_size.as_ref()?.value / context.launch.attention_ranks()?;
    if !all_dropped || share < 2 {
        return None;
    }
    let message = format!("none of these batch sizes can be spread over {}", count(share, "GPU"));
    Some(
        Finding::new(place, message, "all of them are dropped")
            .related(context.span(Key::DpSize), format!("each attention is spread over {}", count(share, "GPU")))
            .sglang_says("AssertionError: capture_bs=[]")
            .by_version()
            .help(format!(
                "list multiples of {share}, such as `{}`",
                advised_line(context, share.saturating_mul(8), true)
            )),
    )
}

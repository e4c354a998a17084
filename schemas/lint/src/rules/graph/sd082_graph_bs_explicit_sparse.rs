//! # SD082: graph-bs-explicit-sparse
//!
//! A list of capture sizes with wide gaps makes small batches waste much of their work.
//!
//! ## What it does
//!
//! In an explicit `--cuda-graph-bs`, looks for the batch of up to 32 requests with the most
//! padding, and reports it if it runs at 1.5 times its size or more. If all batches of up to 32
//! requests together lose less than 25%, the finding is information.
//!
//! ## Why is this bad?
//!
//! A batch runs at the next captured size. Under speculation each padded request costs its draft
//! rows and all its verify rows. SGLang's own list for speculation has every size up to 8 and every
//! second size up to 32; lists made for decoding without speculation (`1 2 4 8 16 24 …`) have far
//! fewer.
//!
//! ## What SGLang does
//!
//! It runs the padded batch.
//!
//! ## Example
//!
//! ```launch bad version:0.5.15.post1 also:SD193
//! sglang serve --model-path Qwen/Qwen3.5-35B-A3B --speculative-algorithm EAGLE --max-running-requests 256 \
//!   --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3 \
//!   --cuda-graph-bs-decode 1 2 4 8 $(seq 16 8 256)
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.15.post1
//! sglang serve --model-path Qwen/Qwen3.5-35B-A3B --speculative-algorithm EAGLE --max-running-requests 256 \
//!   --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3 \
//!   --cuda-graph-bs-decode $(seq 1 8) $(seq 10 2 32) $(seq 40 4 64) $(seq 72 8 256)
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `arg_groups/cuda_graph_hook.py`; slime's recipes.

use schemas::{diagnostic::Severity, flags::Key};

use super::padding::{Captured, advised_line};
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD082",
    name: "graph-bs-explicit-sparse",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Larger batches have little relative padding in any realistic list.
const SMALL: usize = 32;

/// Rows computed in vain, in percent of the needed ones and on average over batches, from which the
/// finding is more than information.
const MUCH: f64 = 25.0;

fn check(context: &Context<'_>) -> Option<Finding> {
    let key = Key::CudaGraphBs;
    let place = context.span(key)?;
    if context.launch.has(Key::DisableCudaGraphPadding) {
        return None;
    }
    let captured = Captured::from_context(context)?;
    let requests = context.requests_per_worker().unwrap_or(usize::MAX);
    let (batch, size) = captured.widest_gap(SMALL.min(requests))?;
    if size.saturating_mul(2) < batch.saturating_mul(3) {
        return None;
    }
    let tokens = context.resolved.num_draft_tokens.as_ref().map(|tokens| tokens.value);
    let message =
        format!("a batch of {batch} runs as one of {size}: the list of capture sizes is too sparse for speculation");
    let waste = captured.mean_waste(SMALL.min(requests)) * 100.0;
    let finding = Finding::new(place, message, "wide gaps")
        .note(format!("on average {waste:.0}% more rows than wanted, over batches of up to {}", SMALL.min(requests)));
    let finding = match tokens {
        Some(tokens) => finding.note(format!("each padded request costs {tokens} rows of verify")),
        None => finding,
    };
    let finer = advised_line(context, captured.largest(), true);
    let finding = finding.help(format!("write `{finer}`, or leave the list to sglang: remove `{}`", context.flag(key)));
    Some(if waste < MUCH { finding.at_most(Severity::Info) } else { finding })
}

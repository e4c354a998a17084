//! # SD080: graph-max-bs-lt-max-running
//!
//! More requests can run together than the largest captured batch.
//!
//! ## What it does
//!
//! Compares the largest batch size with a CUDA graph (`--cuda-graph-bs`, `--cuda-graph-max-bs`, or
//! the default of a GPU whose memory is known) with the number of requests that can run together on
//! one worker. Nothing is reported of slime where all samples of a rollout fit
//! (`--rollout-batch-size` × `--n-samples-per-prompt`, no evaluation). If that number is only the
//! default and no expected concurrency exceeds the largest graph, or it is at most a tenth above
//! the largest graph, the finding is information.
//!
//! ## Why is this bad?
//!
//! A batch larger than the largest graph runs without one, verify and draft both: many small
//! kernels, each started by the CPU. Throughput drops just when the load is high.
//!
//! ## What SGLang does
//!
//! The only sign is `cuda graph: False` in the decode log.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --cuda-graph-max-bs 8 --max-running-requests 48
//! ```
//!
//! ```launch bad version:0.5.15.post1 also:SD082,SD090
//! sglang serve --model-path openai/gpt-oss-120b --speculative-algorithm EAGLE3 --cuda-graph-bs-decode 1 2 4 8 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --speculative-draft-model-path draft
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --cuda-graph-max-bs 48 --max-running-requests 48
//! ```
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --cuda-graph-max-bs 8 --max-running-requests 8
//! ```
//!
//! The number of ranks that share the requests may be set elsewhere:
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --cuda-graph-max-bs 8 --max-running-requests 48 --tp 8 --enable-dp-attention --dp-size $DP
//! ```
//!
//! ## Versions
//!
//! All versions read. Without an explicit limit, 48 requests run together under speculation
//! (SD090).
//!
//! ## Source
//!
//! sglang `model_executor/runner/base_cuda_graph_runner.py`, `arg_groups/memory_hook.py`.

use launch::resolve::Origin;
use schemas::{
    diagnostic::{Safety, Severity},
    engines::Engine,
    flags::Key,
};

use super::padding::{Captured, advised_line};
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD080",
    name: "graph-max-bs-lt-max-running",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let captured = Captured::from_context(context)?;
    let requests = context.requests_per_worker()?;
    let (list, limit) = (context.span(Key::CudaGraphBs), context.span(Key::CudaGraphMaxBs));
    let largest = captured.largest();
    // The default depends on the GPU's memory, which must then be known.
    if largest >= requests || (list.is_none() && limit.is_none() && context.gpu_memory.is_none()) {
        return None;
    }
    // A rollout sends its samples and no more.
    if context.rollout_requests().is_some_and(|requests| requests <= largest) {
        return None;
    }
    let place = list.or(limit).unwrap_or(context.launch.anchor);
    let message =
        format!("batches of more than {largest} requests run without a CUDA graph, and {requests} can run together");
    let running = Key::MaxRunningRequests;
    let why = match &context.resolved.max_running_requests.as_ref()?.origin {
        Origin::Written(_) => None,
        Origin::Default { reason, .. } | Origin::Rewritten { reason, .. } => {
            Some(format!("{requests} requests: {reason}"))
        }
    };
    let more = match list {
        Some(_) => advised_line(context, requests, true),
        None => context.line(Key::CudaGraphMaxBs, &requests.to_string()),
    };
    let finding = Finding::new(place, message, format!("up to {largest}"))
        .related(context.span(running), format!("{requests} on each worker"))
        .sglang_says("cuda graph: False (in the decode log, for every such batch)")
        .maybe_note(why)
        .by_version()
        .help(format!(
            "write `{more}`, or {} `{}`",
            context.add_or_write(running),
            context.line(running, &largest.to_string())
        ));
    let finding = match limit.filter(|_| list.is_none()) {
        Some(_) => finding.fix(
            Safety::Unsafe,
            "capture every batch that can run",
            context.set(Key::CudaGraphMaxBs, &requests.to_string()),
        ),
        None => finding,
    };
    // A limit that is only the default says nothing about how many requests come; slime fills it in
    // every rollout.
    let is_default = matches!(context.resolved.max_running_requests.as_ref()?.origin, Origin::Default { .. });
    let may_come = match context.expected_concurrency {
        Some(expected) => expected > largest,
        None => !is_default || context.launch.engine == Engine::Slime,
    };
    // A batch that is hardly larger than the largest graph is rare.
    let is_near = requests <= largest + largest / 10;
    Some(if may_come && !is_near { finding } else { finding.at_most(Severity::Info) })
}

//! # SD088: cuda-graph-disabled
//!
//! Without CUDA graphs, speculation is normally slower than no speculation.
//!
//! ## What it does
//!
//! Looks for switches that turn decode graphs off where speculation is on. An engine that only
//! prefills (`--disaggregation-mode prefill`) needs none.
//!
//! ## Why is this bad?
//!
//! A round consists of many small kernels, several times as many as a decode step. Without a graph
//! the CPU launches each of them, and the GPU waits. Measured for EAGLE-3: 276 tokens per second
//! without graphs, 379 with them.
//!
//! ## What SGLang does
//!
//! It runs, slowly.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --disable-cuda-graph --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --disable-cuda-graph --max-running-requests 16 \
//!   --disaggregation-mode prefill --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang PR #4247.

use launch::resolve::Origin;
use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD088",
    name: "cuda-graph-disabled",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let sizes = context.resolved.capture_sizes.as_ref().filter(|_| context.resolved.speculative)?;
    let Origin::Written(place) = sizes.origin else { return None };
    let decodes = !context.launch.has(Key::DisaggregationMode)
        || context.launch.text(Key::DisaggregationMode)?.value != "prefill";
    if !sizes.value.is_empty() || !decodes {
        return None;
    }
    let keys = [Key::DisableCudaGraph, Key::DisableDecodeCudaGraph, Key::CudaGraphBackendDecode];
    let key = keys.into_iter().find(|key| context.launch.has(*key))?;
    Some(
        Finding::new(place, "speculation without CUDA graphs is normally slower than no speculation", "graphs are off")
            .related(context.span(Key::SpeculativeAlgorithm), "many small kernels a round")
            .note("measured for EAGLE-3: 276 tokens/s without graphs, 379 with them (sglang PR #4247)")
            .help(format!(
                "remove `{}`; against crashes or lack of memory use `{}` or a smaller `{}`",
                context.flag(key),
                context.line(Key::AttentionBackend, context.other_backend()),
                context.flag(Key::CudaGraphMaxBs)
            )),
    )
}

//! # VL10: capture-sizes-tensor-parallel
//!
//! vLLM 0.11.1 rejects this number of draft tokens with this tensor parallelism.
//!
//! ## What it does
//!
//! In 0.11.1, checks whether the larger of `num_speculative_tokens` + 1 and the tensor parallelism
//! is a multiple of the other.
//!
//! ## Why is this bad?
//!
//! vLLM does not start, though nothing is wrong with the configuration.
//!
//! ## What vLLM does
//!
//! `Can't determine cudagraph shapes that are both a multiple of 3 (num_speculative_tokens + 1)
//! required by spec-decode and 4 (tensor_parallel_size) required by sequence parallelism`, whether
//! sequence parallelism is on or not.
//!
//! ## Example
//!
//! ```launch bad version:0.11.1
//! vllm serve target --tensor-parallel-size 4 \
//!   --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 2}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.11.1
//! vllm serve target --tensor-parallel-size 4 \
//!   --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! ## Versions
//!
//! 0.11.1, with more than two ranks; fixed in November 2025.
//!
//! ## Source
//!
//! vLLM PRs #28315, #29036.

use schemas::{diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL10",
    name: "capture-sizes-tensor-parallel",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

const AFFECTED: EngineVersion = EngineVersion::new(0, 11, 1);

fn check(context: &Context<'_>) -> Option<Finding> {
    if !context.resolved.version_given || context.version() != AFFECTED {
        return None;
    }
    let config = context.launch.vllm_speculation()?;
    let tokens = usize::try_from(config.num_speculative_tokens?).ok()?.checked_add(1)?;
    let ranks = context.launch.count(Key::TpSize).filter(|ranks| ranks.value > 2)?;
    let (larger, smaller) = (tokens.max(ranks.value), tokens.min(ranks.value));
    if larger.is_multiple_of(smaller) {
        return None;
    }
    let message = format!("vllm {AFFECTED} finds no graph size for {tokens} tokens over {} ranks", ranks.value);
    Some(
        Finding::new(config.span, message, "num_speculative_tokens + 1")
            .related(Some(ranks.span), "ranks")
            .vllm_says(format!(
                "Can't determine cudagraph shapes that are both a multiple of {tokens} \
                 (num_speculative_tokens + 1) required by spec-decode and {} (tensor_parallel_size) required by \
                 sequence \
                 parallelism",
                ranks.value
            ))
            .help(format!("draft {} tokens, or use another version", ranks.value - 1)),
    )
}

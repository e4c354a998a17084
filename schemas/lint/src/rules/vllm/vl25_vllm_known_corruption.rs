//! # VL25: vllm-known-corruption
//!
//! The output is known to be wrong with this configuration in these versions.
//!
//! ## What it does
//!
//! Looks the launch up in a table of faults that were reported with wrong output: method, target,
//! flags and versions of each. Structured output and tool calls with `ngram`, `ngram_gpu` and
//! `dspark` are among them.
//!
//! ## Why is this bad?
//!
//! Speculation should only change the speed. Here it changed tokens, mostly without a message.
//!
//! ## What vLLM does
//!
//! It runs. The finding names the versions and the issues.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --enable-auto-tool-choice --tool-call-parser hermes \
//!   --speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3}'
//! ```
//!
//! ```launch bad version:0.28.0
//! vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "dflash", "model": "/models/head", "num_speculative_tokens": 6}'
//! ```
//! ```draft
//! {"architectures": ["Qwen3DSparkModel"], "block_size": 7, "markov_rank": 0, "enable_confidence_head": false,
//!  "target_layer_ids": [1, 9, 17, 25, 33], "mask_token_id": 151669}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3}'
//! ```
//!
//! ## Versions
//!
//! Those of each row, as far as reports name them.
//!
//! ## Source
//!
//! `schemas/lint/src/rules/known/faults.json`, which names the issues of each row.

use schemas::diagnostic::Severity;

use crate::rules::{
    Applies, Context, Definition, Finding, RuleCheck,
    known::{Harm, met},
};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL25",
    name: "vllm-known-corruption",
    severity: Severity::Warning,
    applies: Applies::Vllm,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    met(context, Harm::Corruption)
}

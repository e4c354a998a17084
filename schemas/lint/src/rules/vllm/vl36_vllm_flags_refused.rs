//! # VL36: vllm-flags-refused
//!
//! vLLM refuses these flags together, or this number with that one, and does not start.
//!
//! ## What it does
//!
//! Looks the launch up in a table of the conditions that vLLM checks at start: sizes of batches,
//! parallelism, experts, adapters, the scheduler. Conditions of the speculative configuration have
//! rules of their own.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What vLLM does
//!
//! The finding quotes its message.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --max-num-batched-tokens 128 --max-num-seqs 256
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --tensor-parallel-size 8 --enable-eplb
//! ```
//!
//! ```launch bad version:0.31.0
//! vllm serve target --async-scheduling --speculative-config '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --max-num-batched-tokens 2048 --max-num-seqs 256
//! ```
//!
//! ```launch good version:0.33.0
//! vllm serve target -tp 8 -ep --enable-eplb
//! ```
//!
//! ## Versions
//!
//! Those of each row, read in 18 versions from 0.8.5 to 0.33.0. If the version is not stated, a
//! condition that some versions lack is a warning.
//!
//! ## Source
//!
//! vLLM `config/` and `engine/arg_utils.py`; the rows are in
//! `schemas/lint/src/rules/refused/vllm.json`.

use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, refused::refused};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL36",
    name: "vllm-flags-refused",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    refused(context)
}

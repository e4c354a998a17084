//! # VL24: vllm-known-crash
//!
//! The server is known to crash with this configuration in these versions.
//!
//! ## What it does
//!
//! Looks the launch up in a table of crashes that were reported: method, target, flags, GPU and
//! versions of each.
//!
//! ## Why is this bad?
//!
//! The configuration passes the engine's own checks, but the engine crashes anyway: at start, or
//! hours later under load. If it happens at every start and the version is known, it is an error,
//! otherwise a warning.
//!
//! ## What vLLM does
//!
//! The finding quotes vLLM's message, and names the versions and the issues.
//!
//! ## Example
//!
//! ```launch bad version:0.26.0 also:VL25
//! vllm serve Qwen/Qwen3.6-27B-FP8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 5}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.26.0
//! vllm serve Qwen/Qwen3.6-27B-FP8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
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
    code: "VL24",
    name: "vllm-known-crash",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    met(context, Harm::Crash)
}

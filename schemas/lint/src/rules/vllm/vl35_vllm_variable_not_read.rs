//! # VL35: vllm-variable-not-read
//!
//! vLLM does not read this environment variable: a typo, or a variable of an older version.
//!
//! ## What it does
//!
//! Looks up the variables `VLLM_…` of the launch's environment in a table of those that each
//! version reads. An unknown name is reported only if it resembles a known one, since plugins and
//! scripts have their own. Variables of platforms that became plugins are not reported.
//!
//! ## Why is this bad?
//!
//! The setting has no effect.
//!
//! ## What vLLM does
//!
//! It ignores unknown variables.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! VLLM_USE_V2_MODEL_RUNER=1 vllm serve target
//! ```
//!
//! ```launch bad version:0.33.0
//! VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve target
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! VLLM_USE_V2_MODEL_RUNNER=1 vllm serve target --attention-backend FLASHINFER
//! ```
//!
//! ## Versions
//!
//! The variables were read from {vllm versions}. If the version is not stated, a variable that is
//! gone is only information.
//!
//! ## Source
//!
//! vLLM `envs.py` and all other Python files.

use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, variables::not_read};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL35",
    name: "vllm-variable-not-read",
    severity: Severity::Warning,
    applies: Applies::Vllm,
    check: RuleCheck::Several(check),
};

/// Starts of names that plugins of a platform read.
const OF_PLATFORMS: [&str; 14] = [
    "VLLM_ASCEND_",
    "VLLM_CONTIGUOUS_PA",
    "VLLM_DECODE_",
    "VLLM_DELAYED_SAMPLING",
    "VLLM_GRAPH_",
    "VLLM_HPU_",
    "VLLM_NEURON_",
    "VLLM_PROMPT_",
    "VLLM_PT_PROFILE",
    "VLLM_REGIONAL_COMPILATION",
    "VLLM_SKIP_WARMUP",
    "VLLM_TPU_",
    "VLLM_USE_HPU_",
    "VLLM_XLA_",
];

fn check(context: &Context<'_>) -> Vec<Finding> {
    not_read(context, "VLLM_", &OF_PLATFORMS)
}

//! # VL46: vllm-config-refused
//!
//! vLLM refuses the draft's or the target's config.json under this method, and does not start.
//!
//! ## What it does
//!
//! Looks the config.json up in a table of the conditions that vLLM checks when it loads a draft of
//! blocks (windows of its layers, how it was trained, what runner V1 lacks), and of targets that do
//! not draft by every method, with every flag, or any number of tokens. What a config lacks is
//! reported only if the file itself was read.
//!
//! ## Why is this bad?
//!
//! The server does not start, often only after the target's weights were loaded.
//!
//! ## What vLLM does
//!
//! The finding quotes its message.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "dflash", "model": "org/draft", "num_speculative_tokens": 7}'
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "torch_dtype": "bfloat16", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]}
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 4}'
//! ```
//! ```target
//! {"architectures": ["Step3p5ForCausalLM"], "torch_dtype": "bfloat16", "num_nextn_predict_layers": 3}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --speculative-config '{"method": "dflash", "model": "org/draft", "num_speculative_tokens": 7}'
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "torch_dtype": "bfloat16", "num_hidden_layers": 1, "layer_types": ["sliding_attention"],
//!  "sliding_window": 2048}
//! ```
//!
//! ## Versions
//!
//! Those of each row, read in 13 versions from 0.18.0 to 0.33.0. If the version is not stated, a
//! condition that some versions lack is a warning.
//!
//! ## Source
//!
//! vLLM `model_executor/models/`, `v1/worker/gpu/spec_decode/dflash/speculator.py`,
//! `config/speculative.py`, `config/vllm.py`; the rows are in
//! `schemas/lint/src/rules/refused/vllm_configs.json`.

use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, refused::refused_configs};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL46",
    name: "vllm-config-refused",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    refused_configs(context)
}

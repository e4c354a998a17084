//! # VL12: num-speculative-tokens-not-positive
//!
//! The number of draft tokens is below one.
//!
//! ## What it does
//!
//! Looks for `num_speculative_tokens` below one.
//!
//! ## Why is this bad?
//!
//! vLLM does not start: to turn speculation off, omit its configuration.
//!
//! ## What vLLM does
//!
//! `Expected num_speculative_tokens to be greater than zero (0).`, or
//! `Input should be greater than 0`.
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 0}'
//! ```
//!
//! A method in a variable does not hide other findings:
//!
//! ```launch bad
//! vllm serve target --speculative-config "{\"method\": \"$METHOD\", \"num_speculative_tokens\": 0}"
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --max-model-len 8192
//! ```
//!
//! ## Versions
//!
//! All versions with `--speculative-config`.
//!
//! ## Source
//!
//! vLLM `config/speculative.py`.

use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL12",
    name: "num-speculative-tokens-not-positive",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation().filter(|config| !config.is_legacy)?;
    let tokens = config.num_speculative_tokens.filter(|tokens| *tokens < 1)?;
    let place = context.launch.vllm_key_place("num_speculative_tokens").unwrap_or(config.span);
    Some(
        Finding::new(place, format!("{tokens} draft tokens are not a number that vllm takes"), "at least 1")
            .help("draft at least one token, or take the speculative configuration out"),
    )
}

//! # VL26: simulated-by-vllm
//!
//! Acceptance is simulated: the output is meaningless.
//!
//! ## What it does
//!
//! Looks for `"rejection_sample_method": "synthetic"`.
//!
//! ## Why is this bad?
//!
//! Draft tokens are accepted at random and not by the target. The method exists for timing, and
//! must not be left on.
//!
//! ## What vLLM does
//!
//! It runs. Without exactly one of `synthetic_acceptance_rates` and `synthetic_acceptance_length`
//! it does not start.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3, "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.5}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
//! ```
//!
//! ## Versions
//!
//! From 0.19 on.
//!
//! ## Source
//!
//! vLLM `config/speculative.py`.

use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL26",
    name: "simulated-by-vllm",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    config.text("rejection_sample_method").filter(|method| *method == "synthetic")?;
    let place = config.keys.get("rejection_sample_method")?.span;
    Some(
        Finding::new(place, "synthetic acceptance makes the output up", "for timing only")
            .help("take `rejection_sample_method` out, and the synthetic rates or length with it"),
    )
}

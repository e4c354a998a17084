//! # VL18: rejection-sample-method
//!
//! vLLM has no such way to accept tokens.
//!
//! ## What it does
//!
//! Looks for a `rejection_sample_method` that is none of vLLM's.
//!
//! ## Why is this bad?
//!
//! vLLM does not start.
//!
//! ## What vLLM does
//!
//! `1 validation error for SpeculativeConfig: rejection_sample_method: Input should be 'standard', 'synthetic', 'block' or 'fly'`
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3, "rejection_sample_method": "greedy"}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3, "rejection_sample_method": "block"}'
//! ```
//!
//! ## Versions
//!
//! 0.33.0. Names of older versions (`strict`, `probabilistic`) are not judged; for other versions this is a warning.
//!
//! ## Source
//!
//! vLLM `config/speculative.py` of 0.33.0.

use crate::{
    diagnostic::Severity,
    rules::{Applies, Check, Context, Finding, Rule},
    version::EngineVersion,
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "VL18",
    name: "rejection-sample-method",
    severity: Severity::Error,
    applies: Applies::Vllm,
    file: include_str!("vl18_rejection_sample_method.rs"),
    check: Check::One(check),
};

/// The version that was read.
const READ: EngineVersion = EngineVersion::new(0, 33, 0);

const METHODS: [&str; 4] = ["standard", "synthetic", "block", "fly"];

/// Those of older versions.
const OLDER: [&str; 2] = ["strict", "probabilistic"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let method = config.text("rejection_sample_method")?;
    if METHODS.contains(&method) || OLDER.contains(&method) {
        return None;
    }
    let shown: String = method.chars().take(60).collect();
    let place = context.launch.vllm_key_place("rejection_sample_method").unwrap_or(config.span);
    let finding = Finding::new(place, format!("vllm has no rejection_sample_method `{shown}`"), "not known")
        .help(format!("write one of {}", METHODS.join(", ")));
    let is_other = context.resolved.version_given && context.version() != READ;
    Some(if is_other { finding.at_most(Severity::Warning) } else { finding })
}

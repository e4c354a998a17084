//! # VL18: rejection-sample-method
//!
//! vLLM does not have this method of accepting tokens.
//!
//! ## What it does
//!
//! Looks for a `rejection_sample_method` that vLLM does not have.
//!
//! ## Why is this bad?
//!
//! vLLM does not start.
//!
//! ## What vLLM does
//!
//! `1 validation error for SpeculativeConfig: rejection_sample_method: Input should be 'standard',
//! 'synthetic', 'block' or 'fly'`
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
//! The names were read from all versions from 0.19 to 0.33.0: `strict` and `probabilistic` up to
//! 0.20, `standard` from 0.21, `block` from 0.25 and `fly` from 0.33 on.
//!
//! ## Source
//!
//! vLLM `config/speculative.py` of 0.33.0.

use schemas::{diagnostic::Severity, flags::Speculative, text::shortened, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL18",
    name: "rejection-sample-method",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The first version with a list of names.
const FIRST: EngineVersion = EngineVersion::new(0, 19, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let method = config.text("rejection_sample_method")?;
    let version = context.version();
    if version < FIRST || Speculative::RejectionSampleMethod.words_in(version).any(|known| known == method) {
        return None;
    }
    let shown = shortened(method);
    let known = Speculative::RejectionSampleMethod.words_in(version).collect::<Vec<_>>().join(", ");
    let place = context.launch.vllm_key_place("rejection_sample_method").unwrap_or(config.span);
    Some(
        Finding::new(place, format!("vllm {version} has no rejection_sample_method `{shown}`"), "not known")
            .by_version()
            .help(format!("write one of {known}")),
    )
}

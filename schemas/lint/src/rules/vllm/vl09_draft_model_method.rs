//! # VL09: draft-model-method
//!
//! Draft models are not implemented in these versions.
//!
//! ## What it does
//!
//! Looks for the method `draft_model` on 0.10 to 0.14, given explicitly or by default.
//!
//! ## Why is this bad?
//!
//! vLLM does not start.
//!
//! ## What vLLM does
//!
//! `NotImplementedError: Speculative decoding with draft model is not supported yet.`
//!
//! ## Example
//!
//! ```launch bad version:0.11.0
//! vllm serve target --speculative-config '{"method": "draft_model", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.11.0
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! ## Versions
//!
//! 0.10.0 to 0.14, according to the documentation.
//!
//! ## Source
//!
//! vLLM documentation 0.10.0 to 0.14.0.

use schemas::{diagnostic::Severity, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, vllm::method_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL09",
    name: "draft-model-method",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

const FIRST: EngineVersion = EngineVersion::new(0, 10, 0);
const FIXED_IN: EngineVersion = EngineVersion::new(0, 15, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let version = context.version();
    let judged = context.resolved.version_given && (FIRST..FIXED_IN).contains(&version);
    (judged && config.gives("model") && method_of(&config) == Some("draft_model")).then(|| {
        Finding::new(config.span, format!("vllm {version} has no draft models"), "not implemented")
            .help("use a trained head (eagle3), ngram, or another version")
    })
}

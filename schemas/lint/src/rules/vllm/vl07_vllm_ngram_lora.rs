//! # VL07: vllm-ngram-lora
//!
//! n-gram speculation and LoRA fail together under load in these versions.
//!
//! ## What it does
//!
//! Looks for `--enable-lora` with the method `ngram`, up to 0.9.
//!
//! ## Why is this bad?
//!
//! With several requests at once the engine crashes.
//!
//! ## What vLLM does
//!
//! The number of tokens that LoRA counts and the number that is verified differ.
//!
//! ## Example
//!
//! ```launch bad version:0.9.1
//! vllm serve target --enable-lora --speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.9.1
//! vllm serve target --speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'
//! ```
//!
//! ## Versions
//!
//! Reported for 0.9.1; fixed after 0.9.2, in July 2025 or later.
//!
//! ## Source
//!
//! vLLM issue #20284, PR #21068.

use schemas::{diagnostic::Severity, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL07",
    name: "vllm-ngram-lora",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The first version that is not checked.
const FIXED_IN: EngineVersion = EngineVersion::new(0, 10, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    if !context.resolved.version_given || context.version() >= FIXED_IN {
        return None;
    }
    let config = context.launch.vllm_speculation()?;
    let lora = context.launch.argument("enable-lora")?;
    (config.method.as_deref() == Some("ngram")).then(|| {
        Finding::new(lora.span, "LoRA and ngram speculation fail together when several requests run", "not with ngram")
            .related(Some(config.span), "here")
            .help("take `--enable-lora` or the speculation out")
    })
}

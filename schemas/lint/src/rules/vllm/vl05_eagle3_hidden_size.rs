//! # VL05: eagle3-hidden-size
//!
//! The EAGLE-3 head's width differs from the target's, which old versions cannot load.
//!
//! ## What it does
//!
//! Compares the hidden sizes of target and draft under `eagle3`, up to 0.9.
//!
//! ## Why is this bad?
//!
//! vLLM does not start.
//!
//! ## What vLLM does
//!
//! A matrix product of the wrong shape while the model is profiled.
//!
//! ## Example
//!
//! ```launch bad version:0.9.0
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 5}'
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 8192}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 6144, "target_hidden_size": 8192}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.9.0
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 5}'
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096}
//! ```
//!
//! ## Versions
//!
//! Reported for 0.9.0.1; later versions read `target_hidden_size`; the first of them is unknown.
//!
//! ## Source
//!
//! vLLM issues #19174, #18906.

use schemas::{diagnostic::Severity, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL05",
    name: "eagle3-hidden-size",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The first version that is not checked.
const FIXED_IN: EngineVersion = EngineVersion::new(0, 10, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    if config.method.as_deref() != Some("eagle3") || !context.resolved.version_given || context.version() >= FIXED_IN {
        return None;
    }
    let (target, own) = (context.target_config()?.hidden_size?, context.draft_config()?.hidden_size?);
    (target != own).then(|| {
        let message =
            format!("vllm {} cannot load a head of width {own} for a target of width {target}", context.version());
        Finding::new(config.span, message, "another hidden size")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help("use vllm 0.10 or later, or a head of the target's hidden size")
    })
}

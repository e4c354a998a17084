//! # VL05: eagle3-hidden-size
//!
//! The EAGLE-3 head is for hidden states of another width than the target's.
//!
//! ## What it does
//!
//! Under `eagle3`, compares the target's hidden size with the head's `target_hidden_size`, or with
//! its `hidden_size` if it does not have the former; up to 0.9 with its `hidden_size` in any case.
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
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 5}'
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 8192}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096, "draft_vocab_size": 32000}
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
//! All versions. Reported for 0.9.0.1; later versions read `target_hidden_size`; the first of them
//! is unknown.
//!
//! ## Source
//!
//! vLLM issues #19174, #18906.

use schemas::{diagnostic::Severity, model::DraftKind, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, support::draft_width};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL05",
    name: "eagle3-hidden-size",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The first version that is known to read `target_hidden_size`.
const FIXED_IN: EngineVersion = EngineVersion::new(0, 10, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    config.method.as_deref().filter(|method| *method == "eagle3")?;
    if !context.resolved.version_given || context.version() >= FIXED_IN {
        // Of another kind of draft other rules speak.
        let is_head = context.draft_kind() == Some(DraftKind::Eagle3);
        return is_head.then(|| draft_width(context, config.span)).flatten();
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

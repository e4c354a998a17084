//! # VL29: eagle3-target-in-vllm
//!
//! The target's class does not return hidden states for the draft in this version.
//!
//! ## What it does
//!
//! Compares the target's architecture, with `eagle3` and `dflash`, with the classes of vLLM's
//! registry that lack the interface `SupportsEagle3`, from 0.11 on. Architectures that are not in
//! the registry are not checked, and neither is a head whose config says that it reads only the
//! last layer's states (`use_aux_hidden_state`).
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What vLLM does
//!
//! It loads both models and stops: `RuntimeError: Model does not support EAGLE3 interface but
//! aux_hidden_state_outputs was requested`. Up to 0.21 some families are rejected earlier:
//! `Eagle3 is only supported for [...] models`.
//!
//! ## Example
//!
//! ```launch bad version:0.15.0
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```target
//! {"architectures": ["Qwen3NextForCausalLM"]}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```target
//! {"architectures": ["Qwen3NextForCausalLM"]}
//! ```
//!
//! ```launch good version:0.15.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
//! ```
//! ```target
//! {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"}
//! ```
//!
//! ## Versions
//!
//! Read in 17 versions from 0.11.0 to 0.33.0; between two of them a class may or may not have
//! gained the interface.
//!
//! ## Source
//!
//! vLLM `model_executor/models/registry.py` and the classes in it; issue #33329, PRs #26485 and
//! #36527.

use schemas::{diagnostic::Severity, flags::Key};

use super::eagle3_targets::{has_states_since, lacks_states};
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, vllm::method_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL29",
    name: "eagle3-target-in-vllm",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation().filter(|config| !config.is_legacy)?;
    let method = method_of(&config).filter(|method| matches!(*method, "eagle3" | "dflash"))?;
    let architecture = context.target_config()?.architecture()?;
    if !lacks_states(architecture, context.version()) || reads_the_last_layer(context) {
        return None;
    }
    // The wrapped classes of Transformers return them.
    let may_be_wrapped = context.launch.argument("model-impl").is_some() || !context.launch.is_complete();
    let message =
        format!("{method} cannot run on {architecture} in vllm {}: the class hands out no states", context.version());
    let finding = Finding::new(config.span, message, "not with this target")
        .related(context.span(Key::ModelPath), architecture)
        .vllm_says("RuntimeError: Model does not support EAGLE3 interface")
        .on_facts("target", context.target)
        .by_version();
    let finding = match has_states_since(architecture) {
        Some(since) => finding.help(format!("use vllm {since} or later, or MTP or ngram")),
        None => finding
            .help("use ngram, a draft model of the same vocabulary, or MTP where the checkpoint has layers for it"),
    };
    let is_open = may_be_wrapped || context.launch.may_be_fork();
    Some(if is_open { finding.at_most(Severity::Warning) } else { finding })
}

/// Whether the head's config states that it reads no states of other layers.
fn reads_the_last_layer(context: &Context<'_>) -> bool {
    context
        .draft_config()
        .is_some_and(|draft| draft.eagle_config.as_ref().and_then(|eagle| eagle.use_aux_hidden_state) == Some(false))
}

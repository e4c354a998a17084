//! # SD012: eagle3-target-unsupported
//!
//! The target's class cannot pass its hidden states to an EAGLE-3 head.
//!
//! ## What it does
//!
//! Compares the target's architecture, under EAGLE3, with the classes that have no
//! `set_eagle3_layers_to_capture` in any version read. Architectures that are not in sglang at all,
//! or that gained support later, are not checked.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It stops with `AttributeError: … object has no attribute 'set_eagle3_layers_to_capture'`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path mistralai/Mixtral-8x7B-Instruct-v0.1 --speculative-algorithm EAGLE3 \
//!   --speculative-draft-model-path my/mixtral-eagle3 --max-running-requests 16
//! ```
//! ```target
//! {"architectures": ["MixtralForCausalLM"], "hidden_size": 4096}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE3 \
//!   --speculative-draft-model-path AngelSlim/Qwen3-8B_eagle3 --max-running-requests 16
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096}
//! ```
//!
//! ## Versions
//!
//! The classes of 0.5.23; older versions support fewer.
//!
//! ## Source
//!
//! sglang `models/`, `speculative/spec_aux_hidden_state.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use super::families;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD012",
    name: "eagle3-target-unsupported",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let architecture = context.target_config()?.architecture()?;
    if !families::is_closed_to_eagle3(architecture) {
        return None;
    }
    let key = Key::SpeculativeAlgorithm;
    let message = format!("EAGLE3 cannot run on {architecture}: the class does not expose its hidden states");
    Some(
        Finding::new(context.value_place(key), message, "not with this target")
            .related(context.span(Key::ModelPath), architecture)
            .sglang_says(format!(
                "AttributeError: '{architecture}' object has no attribute 'set_eagle3_layers_to_capture'"
            ))
            .on_facts("target", context.target)
            .by_version()
            .help("use STANDALONE with a smaller model of the same vocabulary, NGRAM, or an EAGLE-1/2 head"),
    )
}

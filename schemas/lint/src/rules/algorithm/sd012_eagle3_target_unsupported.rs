//! # SD012: eagle3-target-unsupported
//!
//! The target's class cannot pass its hidden states to an EAGLE-3 head.
//!
//! ## What it does
//!
//! Compares the target's architecture, under EAGLE3, with the classes that have no
//! `set_eagle3_layers_to_capture` in this version. It is a warning if a later version has it, since
//! a branch may have it earlier.
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
//! The classes of each release from 0.4.7 to 0.5.23 (`sglang_hooks.tsv`).
//!
//! ## Source
//!
//! sglang `models/`, `model_executor/model_runner.py`, sglang pull request #13297.

use schemas::{algorithm::Algorithm, diagnostic::Severity, model::ModelConfig};

use super::hooks::{Hook, not_handed_out};
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
    if context.draft_config().is_some_and(reads_the_last_layer) {
        return None;
    }
    let instead = "use STANDALONE with a smaller model of the same vocabulary, NGRAM, or an EAGLE-1/2 head";
    not_handed_out(context, Hook::Eagle3States, "hidden states", "set_eagle3_layers_to_capture", instead)
}

/// Whether the head's config states that it reads no states of other layers.
fn reads_the_last_layer(draft: &ModelConfig) -> bool {
    draft.eagle_config.as_ref().and_then(|eagle| eagle.use_aux_hidden_state) == Some(false)
}

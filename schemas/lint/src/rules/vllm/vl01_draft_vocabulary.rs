//! # VL01: draft-vocabulary
//!
//! The draft model's vocabulary differs from the target's.
//!
//! ## What it does
//!
//! Compares the vocabulary sizes of target and draft if the draft is a separate whole model
//! (`draft_model`).
//!
//! ## Why is this bad?
//!
//! A draft model's token ids are used as the target's: with another vocabulary they mean other
//! words, or none.
//!
//! ## What vLLM does
//!
//! `AssertionError` on the vocabulary sizes at start, or an index out of range.
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "draft_model", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```target
//! {"architectures": ["Qwen2ForCausalLM"], "vocab_size": 152064}
//! ```
//! ```draft
//! {"architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936}
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "draft_model", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```target
//! {"architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936}
//! ```
//! ```draft
//! {"architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936}
//! ```
//!
//! Versions with `use_heterogeneous_vocab` draft only the tokens that both have:
//!
//! ```launch good
//! vllm serve target --speculative-config '{"model": "draft", "num_speculative_tokens": 3, "use_heterogeneous_vocab": true}'
//! ```
//! ```target
//! {"architectures": ["Qwen2ForCausalLM"], "vocab_size": 152064}
//! ```
//! ```draft
//! {"architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936}
//! ```
//!
//! ## Versions
//!
//! All versions that run draft models.
//!
//! ## Source
//!
//! vLLM issues #5203, #14939, `config/speculative.py`; specreason issue #10.

use schemas::{diagnostic::Severity, model::DraftKind};
use serde_json::Value as Json;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL01",
    name: "draft-vocabulary",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The key that allows the vocabularies to differ.
const ANY_VOCABULARY: &str = "use_heterogeneous_vocab";

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    // Heads share the target's embedding, and include a map if their own vocabulary is smaller.
    if config.method.as_deref().is_some_and(|method| method != "draft_model") {
        return None;
    }
    if config.keys.get(ANY_VOCABULARY).is_some_and(|key| key.value != Some(Json::Bool(false))) {
        return None;
    }
    let draft = context.draft_config()?;
    if context.draft_kind() != Some(DraftKind::Standalone) {
        return None;
    }
    let (target, own) = (context.target_config()?.vocab_size?, draft.vocab_size?);
    (target != own).then(|| {
        let message = format!("the draft model has a vocabulary of {own} tokens, the target of {target}");
        Finding::new(config.span, message, "another vocabulary")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help("take a draft model with the target's tokenizer, or a trained head (eagle3)")
    })
}

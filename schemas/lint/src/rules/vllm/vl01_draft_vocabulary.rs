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
//! A head for another target is a warning:
//!
//! ```launch bad
//! vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 3}'
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "draft_vocab_size": 32000, "num_hidden_layers": 1}
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

use launch::VllmSpeculation;
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
    if config.method.as_deref().is_some_and(|method| matches!(method, "eagle" | "eagle3")) {
        return of_head(context, &config);
    }
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

/// A head that was trained for another vocabulary than the target's: its number of tokens is that
/// of its own target, even if it proposes fewer.
fn of_head(context: &Context<'_>, config: &VllmSpeculation) -> Option<Finding> {
    let is_head = matches!(context.draft_kind()?, DraftKind::Eagle | DraftKind::Eagle3);
    let (target, own) = (context.target_config()?.vocab_size?, context.draft_config()?.vocab_size?);
    (is_head && target != own).then(|| {
        let message = format!("the head was trained for a vocabulary of {own} tokens, but the target has {target}");
        Finding::new(config.span, message, "another vocabulary")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .at_most(Severity::Warning)
            .help("use a head that was trained for this target")
    })
}

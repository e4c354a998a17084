//! # SD014: draft-tie-word-embeddings
//!
//! The draft's config ties the head of a separate vocabulary to the embedding.
//!
//! ## What it does
//!
//! Looks for `tie_word_embeddings: true` in the config of an EAGLE-3 draft whose `draft_vocab_size`
//! differs from its `vocab_size`.
//!
//! ## Why is this bad?
//!
//! The trained head is ignored, and the embedding used in its place has a different number of rows
//! and is then replaced by the target's.
//!
//! ## What SGLang does
//!
//! `lm_head` is the embedding; acceptance collapses or shapes do not fit. Transformers ties them on
//! loading, too.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 128256, "draft_vocab_size": 32000,
//!  "tie_word_embeddings": true, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! `"tie_word_embeddings": false` in the draft's config.json:
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 128256, "draft_vocab_size": 32000,
//!  "tie_word_embeddings": false, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! All. SpecForge has written `false` since its PR #140.
//!
//! ## Source
//!
//! sglang `models/llama_eagle3.py`; SpecForge PR #140.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD014",
    name: "draft-tie-word-embeddings",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let draft = context.draft_config()?;
    let (own, all) = (draft.draft_vocab_size?, draft.vocab_size?);
    if draft.tie_word_embeddings != Some(true) || own == all {
        return None;
    }
    let message =
        format!("the draft ties its head of {own} tokens to an embedding of {all}: the trained head is ignored");
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "tie_word_embeddings is true")
            .note("there is no error at startup: acceptance collapses")
            .on_facts("draft", context.draft)
            .help("set `\"tie_word_embeddings\": false` in the draft's config.json"),
    )
}

//! # NR22: embedding-not-shared
//!
//! The target's class does not expose its embedding to an EAGLE head.
//!
//! ## What it does
//!
//! Looks for EAGLE or EAGLE3 with a draft model, and a target whose class has no
//! `get_embed_and_head` in this version: wrappers of vision-language models, and families that
//! gained it later. It is a warning if a later version has it, since a branch may have it earlier.
//!
//! ## Why is this bad?
//!
//! An EAGLE head shares embedding and head with the target, and gets them from the target's class.
//!
//! ## What SGLang does
//!
//! It stops with `AttributeError: … object has no attribute 'get_embed_and_head'`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["Qwen3VLMoeForConditionalGeneration"], "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.12
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["Qwen3VLMoeForConditionalGeneration"], "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! The classes of each release from 0.4.7 to 0.5.23 (`sglang_hooks.tsv`).
//!
//! ## Source
//!
//! sglang `models/`, `speculative/eagle_worker.py`, sglang issue #17935, sglang pull request
//! #13297.

use schemas::{algorithm::Algorithm, diagnostic::Severity};

use super::hooks::{Hook, lacks, not_handed_out};
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR22",
    name: "embedding-not-shared",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let class = context.target_config()?.architecture()?;
    let is_head = match context.algorithm()? {
        Algorithm::Eagle => true,
        // Without its states it stops before.
        Algorithm::Eagle3 => lacks(class, Hook::Eagle3States, context.version()).is_none(),
        _ => false,
    };
    // Assistants of Gemma 4 run on the target's cache, with an algorithm of their own.
    let draft = context.draft_name()?;
    if !is_head || draft.value.to_ascii_lowercase().contains("assistant") {
        return None;
    }
    let instead = "use STANDALONE with a smaller model of the same vocabulary, or NGRAM";
    not_handed_out(context, Hook::Embedding, "embedding", "get_embed_and_head", instead)
}

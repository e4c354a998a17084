//! # SD004: eagle-with-eagle3-draft
//!
//! An EAGLE-3 head is run as EAGLE, which accepts nothing.
//!
//! ## What it does
//!
//! Looks at the draft under `--speculative-algorithm EAGLE` (or NEXTN): a class with `Eagle3` in
//! its name, a vocabulary of its own (`draft_vocab_size`), an `eagle_config`, tensors `d2t` or
//! `t2d`, or an `fc` over more than two hidden states make it an EAGLE-3 head.
//!
//! ## Why is this bad?
//!
//! It runs without any error and every draft token is rejected: accept length exactly 1.00, and
//! slower than without speculation.
//!
//! ## What SGLang does
//!
//! The target passes one hidden state instead of three. Since that is as wide as the embedding, the
//! head skips its `fc` layer and continues. The target's output head also replaces the draft's own.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path moonshotai/Kimi-K2.5 --speculative-algorithm EAGLE --max-running-requests 32 \
//!   --speculative-draft-model-path lightseekorg/kimi-k2.5-eagle3
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 7168, "vocab_size": 163840,
//!  "max_position_embeddings": 262144, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path moonshotai/Kimi-K2.5 --speculative-algorithm EAGLE3 --max-running-requests 32 \
//!   --speculative-draft-model-path lightseekorg/kimi-k2.5-eagle3
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 7168, "vocab_size": 163840,
//!  "max_position_embeddings": 262144, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! All; a pull request that would detect it was closed without being merged, and 0.5.23 has no
//! check.
//!
//! ## Source
//!
//! sglang PR #21272, `models/llama_eagle3.py`.

use schemas::{
    algorithm::Algorithm,
    diagnostic::{Safety, Severity},
    flags::Key,
    model::DraftKind,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD004",
    name: "eagle-with-eagle3-draft",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle)?;
    if context.draft_kind()? != DraftKind::Eagle3 {
        return None;
    }
    let key = Key::SpeculativeAlgorithm;
    let message =
        "the draft is an EAGLE-3 head but runs as EAGLE: every draft token will be rejected (accept length 1.00)";
    let finding = Finding::new(context.value_place(key), message, "an EAGLE-1/2 head is expected")
        .related(context.span(Key::SpeculativeDraftModelPath), "this is an EAGLE-3 head")
        .note("there is no error at startup: the head skips its `fc` layer and drafts from the wrong features")
        .on_facts("draft", context.draft)
        .help(format!("write `{}`", context.line(key, "EAGLE3")));
    Some(finding.fix(Safety::Unsafe, "run the head as EAGLE3", context.set(key, "EAGLE3")))
}

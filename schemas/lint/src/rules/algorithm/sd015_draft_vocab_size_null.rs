//! # SD015: draft-vocab-size-null
//!
//! The head of the draft's own checkpoint is not used, the target's is.
//!
//! ## What it does
//!
//! Looks for an EAGLE-3 draft whose weights have an `lm_head.weight` and whose config.json has no
//! `draft_vocab_size`.
//!
//! ## Why is this bad?
//!
//! Without `draft_vocab_size` the target's output head is shared with the draft. A head that was
//! trained along with the draft is then lost, and fewer tokens are accepted. A draft that was
//! trained with the target's own head is fine as it is.
//!
//! ## What SGLang does
//!
//! It uses `vocab_size` as the draft's vocabulary and borrows the target's head. If the key is
//! missing rather than null, some versions fail with an `AttributeError` instead.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "vocab_size": 512, "torch_dtype": "bfloat16"}
//! ```
//! ```draft-tensors
//! lm_head.weight BF16 128x64
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "vocab_size": 512, "draft_vocab_size": 128,
//!  "torch_dtype": "bfloat16"}
//! ```
//! ```draft-tensors
//! lm_head.weight BF16 128x64
//! d2t I64 128
//! ```
//!
//! ## Versions
//!
//! The target's head is borrowed in 0.5.2 and later.
//!
//! ## Source
//!
//! sglang `models/llama_eagle3.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD015",
    name: "draft-vocab-size-null",
    severity: Severity::Info,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let facts = context.draft.filter(|facts| !facts.partial && context.version() >= V0_5_2)?;
    let draft = context.draft_config()?;
    let own_class = draft.architecture() == Some("LlamaForCausalLMEagle3");
    if !own_class || draft.draft_vocab_size.is_some() || draft.tie_word_embeddings == Some(true) {
        return None;
    }
    let rows = facts.tensors.as_ref()?.find("lm_head.weight")?.shape.first()?;
    let message = format!("the target's output head is used, not the draft's own of {rows} tokens");
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "no `draft_vocab_size` in its config")
            .by_version()
            .help(format!(
                "write `\"draft_vocab_size\": {rows}` into the draft's config.json, unless it was trained on the target's head"
            )),
    )
}

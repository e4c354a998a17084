//! # SD013: draft-lm-head-missing
//!
//! The draft's config declares a separate output head that its weights do not have.
//!
//! ## What it does
//!
//! Looks for `lm_head.weight` among the tensors of an EAGLE-3 draft whose config has
//! `draft_vocab_size` and no tied embedding.
//!
//! ## Why is this bad?
//!
//! The head keeps its random initial values: the accept length is 1.00, and requests still return
//! HTTP 200.
//!
//! ## What SGLang does
//!
//! It builds a head of `draft_vocab_size` rows and never reports that no weight was loaded into it.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "vocab_size": 512, "draft_vocab_size": 512,
//!  "torch_dtype": "bfloat16"}
//! ```
//! ```draft-tensors
//! fc.weight BF16 64x192
//! ```
//!
//! ## Use instead
//!
//! Ship the head, or omit `draft_vocab_size` so that the target's is borrowed:
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "vocab_size": 512, "torch_dtype": "bfloat16"}
//! ```
//! ```draft-tensors
//! fc.weight BF16 64x192
//! ```
//!
//! ## Versions
//!
//! All; a check was proposed and closed (PR #27908). The target's head is borrowed since 0.5.2.
//!
//! ## Source
//!
//! sglang issue #27829, `models/llama_eagle3.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD013",
    name: "draft-lm-head-missing",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let draft = context.draft_config()?;
    let tensors = context.draft?.tensors.as_ref()?;
    let rows = draft.draft_vocab_size?;
    if draft.tie_word_embeddings == Some(true) || tensors.find("lm_head.weight").is_some() {
        return None;
    }
    let message = format!("the draft has no `lm_head.weight` for its {rows} tokens: its head stays random");
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "no output head in its weights")
            .note("there is no error at startup: accept length will be 1.00")
            .help(
                "export the draft with its `lm_head.weight`, or remove `draft_vocab_size` from its config.json so that \
                 the target's head is used",
            ),
    )
}

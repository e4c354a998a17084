//! # SD043: d2t-missing
//!
//! An EAGLE-3 head with its own vocabulary has no map to the target's.
//!
//! ## What it does
//!
//! Looks for the tensor `d2t` in an EAGLE-3 draft whose `draft_vocab_size` is smaller than its
//! `vocab_size`.
//!
//! ## Why is this bad?
//!
//! Without the map the draft's token 17 is used as the target's token 17, which is a different one.
//!
//! ## What SGLang does
//!
//! This is not checked: the draft's ids are used unchanged, and nearly everything is rejected.
//! `t2d` is not read at all.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "vocab_size": 512, "draft_vocab_size": 128,
//!  "torch_dtype": "bfloat16"}
//! ```
//! ```draft-tensors
//! fc.weight BF16 64x192
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
//! fc.weight BF16 64x192
//! lm_head.weight BF16 128x64
//! d2t I64 128
//! ```
//!
//! ## Versions
//!
//! All versions with EAGLE3.
//!
//! ## Source
//!
//! sglang `models/llama_eagle3.py` (followed in the code, not run).

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD043",
    name: "d2t-missing",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let draft = context.draft_config()?;
    let (own, all) = (draft.draft_vocab_size?, draft.vocab_size?);
    let tensors = context.draft?.tensors.as_ref()?;
    if own >= all || tensors.find("d2t").is_some() {
        return None;
    }
    let message = format!("the draft has {own} of {all} tokens and no `d2t` to say which: its ids mean other tokens");
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "no map of its tokens")
            .note("there is no error at startup: nearly every draft token is rejected")
            .help("export the draft with its tensor `d2t` (offsets: target id = draft id + d2t[draft id])"),
    )
}

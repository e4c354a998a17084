//! # SD044: d2t-shape
//!
//! The length of an EAGLE-3 head's map differs from its vocabulary size.
//!
//! ## What it does
//!
//! Compares the length of the tensor `d2t` with `draft_vocab_size`.
//!
//! ## Why is this bad?
//!
//! Tokens beyond the map have no meaning, or the map belongs to another head.
//!
//! ## What SGLang does
//!
//! Nothing checks it: an index out of range on the device, or wrong tokens.
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
//! d2t I64 120
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
    code: "SD044",
    name: "d2t-shape",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let own = context.draft_config()?.draft_vocab_size?;
    let map = context.draft?.tensors.as_ref()?.find("d2t")?;
    if map.shape == [own] {
        return None;
    }
    let message = format!("the draft's `d2t` has the shape {:?}, and its vocabulary {own} tokens", map.shape);
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "map and vocabulary differ")
            .note("nothing is checked at startup: an index out of range on the device, or wrong tokens")
            .help(format!("export the draft with a `d2t` of {own} entries, or correct `draft_vocab_size`")),
    )
}

//! # SD148: block-draft-width
//!
//! The block draft is for hidden states of another width than the target's.
//!
//! ## What it does
//!
//! Under DFLASH and DSPARK, compares the draft's `hidden_size` (or its `target_hidden_size`) with
//! the target's.
//!
//! ## Why is this bad?
//!
//! The draft reads the target's hidden states and looks its tokens up in the target's embeddings.
//! With another width neither fits: the draft is for another model.
//!
//! ## What SGLang does
//!
//! It fails in the first draft pass: `RuntimeError: mat1 and mat2 shapes cannot be multiplied`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 5120, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "hidden_size": 4096, "block_size": 16, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "hidden_size": 4096, "block_size": 16, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! Since the algorithms were added; read in 0.5.23. Drafts with an own `target_hidden_size` are
//! compared by it.
//!
//! ## Source
//!
//! sglang `models/dflash.py`, `models/dspark.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, support::draft_width};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD148",
    name: "block-draft-width",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.algorithm().filter(|one| matches!(one, Algorithm::Dflash | Algorithm::Dspark))?;
    let finding = draft_width(context, context.value_place(Key::SpeculativeDraftModelPath))?;
    Some(finding.sglang_says("RuntimeError: mat1 and mat2 shapes cannot be multiplied"))
}

//! # VL33: vllm-block-draft-width
//!
//! The block draft is for hidden states of another width than the target's.
//!
//! ## What it does
//!
//! For `dflash` and `dspark` with a separate draft, compares the draft's `target_hidden_size`, or
//! else its `hidden_size`, with the target's `hidden_size`.
//!
//! ## Why is this bad?
//!
//! The draft reads the target's hidden states. With another width its first product fails: the
//! draft is for another model.
//!
//! ## What vLLM does
//!
//! It fails while it starts: `RuntimeError: mat1 and mat2 shapes cannot be multiplied`.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "dflash", "model": "draft", "num_speculative_tokens": 15}'
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 5120}
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "hidden_size": 4096, "block_size": 16}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --speculative-config '{"method": "dflash", "model": "draft", "num_speculative_tokens": 15}'
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096}
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "hidden_size": 4096, "block_size": 16}
//! ```
//!
//! ## Versions
//!
//! Since the methods were added (0.20, 0.25); read in 0.33.0.
//!
//! ## Source
//!
//! vLLM `model_executor/models/qwen3_dflash.py` of 0.33.0.

use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, support::draft_width, vllm::method_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL33",
    name: "vllm-block-draft-width",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    method_of(&config).filter(|method| matches!(*method, "dflash" | "dspark"))?;
    let finding = draft_width(context, config.span)?;
    Some(finding.vllm_says("RuntimeError: mat1 and mat2 shapes cannot be multiplied"))
}

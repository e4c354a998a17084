//! # NR02: mla-backend-draft
//!
//! The target's attention backend supports MLA only, and the draft has no separate backend.
//!
//! ## What it does
//!
//! Looks for trtllm_mla, flashmla or cutlass_mla as the attention backend with an EAGLE-3 draft of
//! the Llama class, without a separate backend for the draft.
//!
//! ## Why is this bad?
//!
//! The draft inherits the backend; a backend for compressed keys and values only cannot run
//! ordinary heads.
//!
//! ## What SGLang does
//!
//! It stops while the draft's attention backend is built.
//!
//! ## Example
//!
//! ```launch bad version:0.5.12
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend trtllm_mla --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"]}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.12
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend trtllm_mla --speculative-draft-attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"]}
//! ```
//!
//! ## Versions
//!
//! Reported for about 0.5.10; the flag for the draft is in 0.5.9 and later.
//!
//! ## Source
//!
//! sglang issue #23490.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR02",
    name: "mla-backend-draft",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Backends for compressed keys and values only.
const MLA_ONLY: [&str; 3] = ["trtllm_mla", "flashmla", "cutlass_mla"];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let backend = context.launch.text(Key::AttentionBackend).filter(|backend| MLA_ONLY.contains(&backend.value))?;
    let own = Key::SpeculativeDraftAttentionBackend;
    let draft = context.draft_config()?;
    let llama = draft.architecture().is_some_and(|class| class.starts_with("LlamaForCausalLMEagle"));
    if !context.target_config()?.is_mla() || draft.is_mla() || !llama || !context.is_absent(own) {
        return None;
    }
    let message = format!("{} cannot run the draft, which has ordinary heads", backend.value);
    Some(
        Finding::new(backend.span, message, "for compressed keys and values only")
            .related(context.span(Key::SpeculativeDraftModelPath), "ordinary heads")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .by_version()
            .help(format!("add `{}`", context.line(own, context.other_backend()))),
    )
}

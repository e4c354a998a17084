//! # SD062: draft-context-quality
//!
//! Prompts can be longer than the draft was trained for, and its proposals are poor beyond that
//! length.
//!
//! ## What it does
//!
//! Compares the draft's context length with the longest sequence, where the engine accepts a longer
//! one. It is information if only the variable that allows it is set: the author knows the draft's
//! length.
//!
//! ## Why is this bad?
//!
//! A draft that was trained at 2,048 tokens has never seen a longer text: beyond that length few of
//! its tokens are accepted, and decoding can become slower than without speculation.
//!
//! ## What SGLang does
//!
//! It runs; the accept length drops with the length of the prompt.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 sglang serve --model-path target --speculative-algorithm EAGLE3 \
//!   --speculative-draft-model-path draft --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --context-length 2048 \
//!   --speculative-draft-model-path draft --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! All versions; where the check at start is an error instead, see SD060.
//!
//! ## Source
//!
//! sglang issues #6783, #12349; EAGLE issue #311.

use schemas::{diagnostic::Severity, flags::Key};

use super::draft_length::Short;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD062",
    name: "draft-context-quality",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let short = Short::from_context(context).filter(|short| short.allowed)?;
    let (draft, length) = (short.draft, short.context);
    let place = context.value_place(Key::SpeculativeDraftModelPath);
    let message = format!("beyond {draft} tokens the draft proposes poorly, and sequences can have {length}");
    let finding = Finding::new(place, message, format!("trained for {draft} tokens"))
        .related(short.request, format!("up to {length}"))
        .on_facts("target", context.target)
        .on_facts("draft", context.draft)
        .help(format!(
            "keep to short prompts or `{}`, take a draft for long ones, or measure at your lengths (`spectune \
                 sweep`)",
            context.line(Key::ContextLength, &draft.to_string())
        ));
    Some(if short.is_by_variable { finding.at_most(Severity::Info) } else { finding })
}

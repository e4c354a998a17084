//! # SD050: eagle-hidden-size
//!
//! The EAGLE head has another hidden size than the target.
//!
//! ## What it does
//!
//! Compares `hidden_size` of target and draft under EAGLE, for a draft that is not an EAGLE-3 head
//! (which SD004 reports).
//!
//! ## Why is this bad?
//!
//! The input of the head's `fc` is the target's embedding and hidden state, concatenated. With
//! another width they do not fit.
//!
//! ## What SGLang does
//!
//! `RuntimeError: mat1 and mat2 shapes cannot be multiplied` when the draft's graphs are captured.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9 also:NR11
//! sglang serve --model-path meta-llama/Llama-3.1-70B-Instruct --tp 8 --speculative-algorithm EAGLE --dtype bfloat16 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE-LLaMA3-Instruct-8B --max-running-requests 8
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "vocab_size": 128256}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle"], "hidden_size": 4096, "vocab_size": 128256}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path meta-llama/Llama-3.1-70B-Instruct --tp 8 --speculative-algorithm EAGLE --dtype bfloat16 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE-LLaMA3-Instruct-70B --max-running-requests 8
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "vocab_size": 128256}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle"], "hidden_size": 8192, "vocab_size": 128256}
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `models/llama_eagle.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, model::DraftKind};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD050",
    name: "eagle-hidden-size",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle)?;
    let draft = context.draft_config()?;
    if context.draft_kind() == Some(DraftKind::Eagle3) {
        return None;
    }
    let (target, draft) = (context.target_config()?.hidden_size?, draft.hidden_size?);
    if target == draft {
        return None;
    }
    let message = format!("the draft's hidden size is {draft}, the target's {target}: the head does not fit");
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, format!("hidden size {draft}"))
            .related(context.span(Key::ModelPath), format!("hidden size {target}"))
            .sglang_says("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help("use a head that was trained for this target"),
    )
}

//! # SD005: eagle3-with-eagle1-draft
//!
//! An EAGLE-1/2 head is run as EAGLE3, which fails on the shapes.
//!
//! ## What it does
//!
//! Looks at the draft under `--speculative-algorithm EAGLE3`: a class such as
//! `LlamaForCausalLMEagle`, or an `fc` over the embedding and one hidden state, makes it an
//! EAGLE-1/2 head.
//!
//! ## Why is this bad?
//!
//! The engine crashes when it captures the draft's graphs or at the first request.
//!
//! ## What SGLang does
//!
//! The target passes three hidden states, so `fc` receives four times the hidden size instead of
//! twice: `RuntimeError: mat1 and mat2 shapes cannot be multiplied`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path meta-llama/Llama-2-7b-chat-hf --speculative-algorithm EAGLE3 --max-running-requests 32 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE-llama2-chat-7B
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle"], "hidden_size": 4096, "vocab_size": 32000, "torch_dtype": "float16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path meta-llama/Llama-2-7b-chat-hf --speculative-algorithm EAGLE --max-running-requests 32 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE-llama2-chat-7B
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle"], "hidden_size": 4096, "vocab_size": 32000, "torch_dtype": "float16"}
//! ```
//!
//! ## Versions
//!
//! All versions with EAGLE3.
//!
//! ## Source
//!
//! sglang `models/llama_eagle.py`, `speculative/eagle_worker_v2.py` (followed in the code, not
//! run).

use schemas::{
    algorithm::Algorithm,
    diagnostic::{Safety, Severity},
    flags::Key,
    model::DraftKind,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD005",
    name: "eagle3-with-eagle1-draft",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    if context.draft_kind()? != DraftKind::Eagle {
        return None;
    }
    let key = Key::SpeculativeAlgorithm;
    let message =
        "the draft is an EAGLE-1/2 head but runs as EAGLE3: its `fc` layer gets hidden states of the wrong width";
    let finding = Finding::new(context.value_place(key), message, "an EAGLE-3 head is expected")
        .related(context.span(Key::SpeculativeDraftModelPath), "this is an EAGLE-1/2 head")
        .sglang_says("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
        .on_facts("draft", context.draft)
        .help(format!("write `{}`, or name an EAGLE-3 head", context.line(key, "EAGLE")));
    Some(finding.fix(Safety::Unsafe, "run the head as EAGLE", context.set(key, "EAGLE")))
}

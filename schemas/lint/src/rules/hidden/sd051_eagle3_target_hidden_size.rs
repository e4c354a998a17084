//! # SD051: eagle3-target-hidden-size
//!
//! The EAGLE-3 head expects hidden states of another width than the target's.
//!
//! ## What it does
//!
//! Under EAGLE3, compares the target's `hidden_size` with the draft's `target_hidden_size`, or with
//! its `hidden_size` if it does not have the former.
//!
//! ## Why is this bad?
//!
//! The input of the head's `fc` is several hidden states of the target, concatenated. With another
//! width they do not fit.
//!
//! ## What SGLang does
//!
//! `RuntimeError: mat1 and mat2 shapes cannot be multiplied`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path Qwen/Qwen3-32B --speculative-algorithm EAGLE3 --max-running-requests 8 \
//!   --speculative-draft-model-path AngelSlim/Qwen3-8B_eagle3
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 5120, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! A head for this target; its own hidden size may differ if it gives `target_hidden_size`:
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path meta-llama/Llama-3.3-70B-Instruct --speculative-algorithm EAGLE3 --max-running-requests 8 \
//!   --speculative-draft-model-path yuhuili/EAGLE3-LLaMA3.3-Instruct-70B --tp 8
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "torch_dtype": "float16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 6144, "target_hidden_size": 8192, "torch_dtype": "float16",
//!  "num_attention_heads": 48, "num_key_value_heads": 8}
//! ```
//!
//! ## Versions
//!
//! All versions with EAGLE3.
//!
//! ## Source
//!
//! sglang `models/llama_eagle3.py`; vLLM issue #18906.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, model::DraftKind};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD051",
    name: "eagle3-target-hidden-size",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let (facts, draft) = (context.draft?, context.draft_config()?);
    if context.draft_kind() != Some(DraftKind::Eagle3) {
        return None;
    }
    let target = context.target_config()?.hidden_size?;
    // If the config is only partly known, the field that explains the difference may exist.
    let own = || draft.hidden_size.filter(|own| !facts.partial || *own == target);
    let expected = draft.target_hidden_size.or_else(own)?;
    if expected == target {
        return None;
    }
    let message = format!("the draft expects hidden states of width {expected}, and the target's are {target} wide");
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, format!("expects {expected}"))
            .related(context.span(Key::ModelPath), format!("hidden size {target}"))
            .sglang_says("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help("use a head that was trained for this target"),
    )
}

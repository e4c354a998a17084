//! # NR14: draft-config-not-loadable
//!
//! The draft's config.json is in a form that SGLang cannot load.
//!
//! ## What it does
//!
//! Looks at drafts whose config was written by the speculators library (`speculators_model_type`),
//! whose `model_type` is vLLM's own `eagle`, or whose class is that of DeepSpec's EAGLE-3 heads
//! (`Qwen3Eagle3Model`).
//!
//! ## Why is this bad?
//!
//! The server does not start. Checkpoints of the first two forms are meant for vLLM, which converts
//! them; DeepSpec's heads have Qwen3's attention and read five layers, which neither server builds.
//!
//! ## What SGLang does
//!
//! transformers does not know the model type, and the classes and fields that SGLang expects are
//! missing or elsewhere.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "torch_dtype": "bfloat16"}
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --speculative-draft-model-path deepseek-ai/eagle3_qwen3_8b_ttt7 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["Qwen3Eagle3Model"], "model_type": "qwen3", "num_hidden_layers": 1, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! Open: 0.5.23 reads neither form.
//!
//! ## Source
//!
//! sglang issues #18216, #25673; `utils/hf_transformers/config.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, model::DEEPSPEC_EAGLE3};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR14",
    name: "draft-config-not-loadable",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The model type of vLLM's EAGLE heads, which no other library has.
const VLLM: &str = "eagle";

fn check(context: &Context<'_>) -> Option<Finding> {
    context.algorithm().filter(|algorithm| matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3))?;
    let draft = context.draft_config()?;
    let form = if draft.speculators_model_type.is_some() {
        "the speculators library's"
    } else if draft.model_type.as_deref() == Some(VLLM) {
        "vLLM's"
    } else if draft.architecture() == Some(DEEPSPEC_EAGLE3) {
        return Some(
            Finding::new(
                context.value_place(Key::SpeculativeDraftModelPath),
                format!("the draft's class is DeepSpec's {DEEPSPEC_EAGLE3}, which sglang does not have"),
                "made for DeepSpec",
            )
            .on_facts("draft", context.draft)
            .help("use another EAGLE-3 head for this target"),
        );
    } else {
        return None;
    };
    let message = format!("the draft's config.json is in {form} form, which sglang cannot load");
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "made for vLLM")
            .on_facts("draft", context.draft)
            .help("use a draft made for sglang, or convert its config.json and weights to a class such as LlamaForCausalLMEagle3"),
    )
}

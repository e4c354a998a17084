//! # SD071: dtype-missing-becomes-fp16
//!
//! The draft's config names no dtype, so it is loaded in float16.
//!
//! ## What it does
//!
//! Without `--dtype`, looks for a draft whose config.json has neither `dtype` nor `torch_dtype`,
//! with a target that is loaded in a dtype other than float16.
//!
//! ## Why is this bad?
//!
//! As with SD070: the target's hidden states do not match the draft's weights, and the engine
//! crashes when it captures its CUDA graphs.
//!
//! ## What SGLang does
//!
//! A missing dtype counts as float32, and float32 is loaded in float16 (Gemma: bfloat16). Then:
//! `Capture cuda graph failed: expected mat1 and mat2 to have the same dtype, but got:
//! c10::BFloat16 != c10::Half`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --speculative-draft-model-path my/qwen3-8b-eagle3 --attention-backend fa3
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --speculative-draft-model-path my/qwen3-8b-eagle3 --attention-backend fa3 --dtype bfloat16
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048}
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `configs/model_config.py`, `_get_and_verify_dtype`.

use schemas::diagnostic::Severity;

use super::loaded::LoadedDtype;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD071",
    name: "dtype-missing-becomes-fp16",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let loaded = LoadedDtype::apart(context)?;
    if context.draft_config()?.weights_dtype().is_some() {
        return None;
    }
    let message = format!(
        "the draft's config has no dtype, so it is loaded in {}, but the target in {}: {}",
        loaded.draft,
        loaded.target,
        loaded.end(context)
    );
    Some(
        loaded
            .finding(context, message, "no dtype in its config.json".into())
            .note("a config without dtype counts as float32, and float32 is loaded in float16"),
    )
}

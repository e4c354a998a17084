//! # SD070: dtype-mismatch
//!
//! Target and draft are loaded in different dtypes.
//!
//! ## What it does
//!
//! Without `--dtype`, each checkpoint is loaded in the dtype that its own config.json names
//! (`dtype` or `torch_dtype`). The rule compares the two. A STANDALONE draft is a separate model
//! and may differ.
//!
//! ## Why is this bad?
//!
//! The target's hidden states and its embedding are fed to the draft as they are. The engine
//! crashes when it captures its CUDA graphs. The EAGLE-3 heads published for Llama 3.1 are float16,
//! the model is bfloat16.
//!
//! ## What SGLang does
//!
//! `Capture cuda graph failed: expected mat1 and mat2 to have the same dtype, but got:
//! c10::BFloat16 != c10::Half`. Without graphs the same error appears at the first request.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B --attention-backend fa3
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048, "torch_dtype": "float16"}
//! ```
//!
//! ```launch bad version:0.5.9 toml
//! engine = "sglang"
//! model_path = "meta-llama/Llama-3.1-8B-Instruct"
//! speculative_algorithm = "EAGLE3"
//! speculative_draft_model_path = "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B"
//! max_running_requests = 16
//! attention_backend = "fa3"
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048, "torch_dtype": "float16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B --attention-backend fa3 --dtype float16
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048, "torch_dtype": "float16"}
//! ```
//!
//! ```launch good version:0.5.9
//! SGLANG_ARGS=(
//!    --sglang-speculative-algorithm EAGLE3
//!    --sglang-speculative-draft-model-path /root/EAGLE3-head
//!    --sglang-dtype bfloat16
//! )
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048, "torch_dtype": "float16"}
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! slime's guide to speculative decoding; sglang issue #3824, `configs/model_config.py`; SpecForge
//! issue #348.

use schemas::diagnostic::Severity;

use super::loaded::LoadedDtype;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD070",
    name: "dtype-mismatch",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let loaded = LoadedDtype::apart(context)?;
    let stated = context.draft_config()?.weights_dtype()?;
    let message =
        format!("the draft is loaded in {} and the target in {}: {}", loaded.draft, loaded.target, loaded.end(context));
    let finding = loaded.finding(context, message, format!("loaded in {}", loaded.draft));
    Some(if stated == loaded.draft {
        finding
    } else {
        finding.note(format!("the draft's config says {stated}, which sglang loads in {}", loaded.draft))
    })
}

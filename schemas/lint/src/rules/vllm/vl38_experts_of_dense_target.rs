//! # VL38: experts-of-dense-target
//!
//! Expert parallelism is requested for a target without experts.
//!
//! ## What it does
//!
//! Looks for `--enable-expert-parallel` where the target's config has no experts.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What vLLM does
//!
//! `ValueError: Number of experts in the model must be greater than 0 when expert parallelism is
//! enabled.`
//!
//! ## Example
//!
//! ```launch bad version:0.30.0
//! vllm serve org/model --tensor-parallel-size 4 --enable-expert-parallel
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "num_attention_heads": 64}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.30.0
//! vllm serve org/model --tensor-parallel-size 4 --enable-expert-parallel
//! ```
//! ```target
//! {"architectures": ["Qwen3MoeForCausalLM"], "num_attention_heads": 64, "num_experts": 128}
//! ```
//!
//! ## Versions
//!
//! All versions that were read, 0.8.5 to 0.33.0.
//!
//! ## Source
//!
//! vLLM `config/model.py`, `_verify_with_expert_parallelism`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL38",
    name: "experts-of-dense-target",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// Classes all of whose checkpoints are dense.
const DENSE: [&str; 14] = [
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Gemma3ForConditionalGeneration",
    "LlamaForCausalLM",
    "MiMoForCausalLM",
    "MistralForCausalLM",
    "Phi3ForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3ForCausalLM",
    "Qwen3VLForConditionalGeneration",
    "Qwen3_5ForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "SeedOssForCausalLM",
];

fn check(context: &Context<'_>) -> Option<Finding> {
    let flag = context.launch.argument("enable-expert-parallel").filter(|flag| !flag.in_branch)?;
    let config = context.target_config()?;
    let class = config.architecture().filter(|class| DENSE.contains(class))?;
    let is_off = context.launch.argument("no-enable-expert-parallel").is_some() || !flag.values.is_empty();
    if config.routed_experts().is_some_and(|experts| experts > 0) || is_off {
        return None;
    }
    Some(
        Finding::new(flag.span, "expert parallelism is requested for a target without experts", "no experts")
            .related(context.span(Key::ModelPath), class.to_owned())
            .vllm_says(
                "ValueError: Number of experts in the model must be greater than 0 when expert parallelism is enabled.",
            )
            .on_facts("target", context.target)
            .help("take `--enable-expert-parallel` out"),
    )
}

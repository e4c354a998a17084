//! # VL37: target-heads
//!
//! The target's attention heads cannot be split over this many GPUs.
//!
//! ## What it does
//!
//! Divides the heads of the target's config by `--tensor-parallel-size`.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What vLLM does
//!
//! `ValueError: Total number of attention heads (64) must be divisible by tensor parallel size
//! (3).` Expert parallelism does not change this: attention is split all the same.
//!
//! ## Example
//!
//! ```launch bad version:0.30.0
//! vllm serve org/model --tensor-parallel-size 3
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "num_attention_heads": 64, "num_key_value_heads": 8}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.30.0
//! vllm serve org/model --tensor-parallel-size 4
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "num_attention_heads": 64, "num_key_value_heads": 8}
//! ```
//!
//! ## Versions
//!
//! All versions that were read, 0.8.5 to 0.33.0.
//!
//! ## Source
//!
//! vLLM `config/model.py`, `verify_with_parallel_config`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, platform::platform_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL37",
    name: "target-heads",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let ranks = context.launch.count(Key::TpSize).filter(|ranks| ranks.value > 1)?;
    let heads = context.target_config()?.num_attention_heads.filter(|heads| *heads > 0)?;
    // Plugins of a platform have configurations of their own.
    if heads.is_multiple_of(ranks.value) || platform_of(context).is_some_and(|platform| !platform.is_gpu()) {
        return None;
    }
    let fits = (1..ranks.value).rev().find(|fewer| heads.is_multiple_of(*fewer)).unwrap_or(1);
    let message = format!("the target's {heads} attention heads cannot be split over {} GPUs", ranks.value);
    Some(
        Finding::new(ranks.span, message, format!("does not divide {heads}"))
            .related(context.span(Key::ModelPath), format!("{heads} heads"))
            .vllm_says(format!(
                "ValueError: Total number of attention heads ({heads}) must be divisible by tensor parallel size ({}).",
                ranks.value
            ))
            .on_facts("target", context.target)
            .help(format!("write `{}`", context.line(Key::TpSize, &fits.to_string()))),
    )
}

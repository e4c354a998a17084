//! # VL41: cache-format-of-target
//!
//! The format of the cache is for another kind of attention than the target's.
//!
//! ## What it does
//!
//! Looks for `fp8_ds_mla`, a format of sparse latent attention, on targets without latent
//! attention, and for `nvfp4` on targets with it.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What vLLM does
//!
//! It finds no attention backend for `fp8_ds_mla`; for the other pair: `ValueError: nvfp4 KV cache
//! is not supported with MLA (Multi-head Latent Attention) backends.`
//!
//! ## Example
//!
//! ```launch bad version:0.30.0
//! vllm serve org/model --kv-cache-dtype fp8_ds_mla
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "num_attention_heads": 64}
//! ```
//!
//! ```launch bad version:0.30.0
//! vllm serve org/model --kv-cache-dtype nvfp4
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512, "qk_rope_head_dim": 64}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.30.0
//! vllm serve org/model --kv-cache-dtype fp8
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "num_attention_heads": 64}
//! ```
//!
//! ## Versions
//!
//! `nvfp4`: from 0.21.0 on.
//!
//! ## Source
//!
//! vLLM `config/vllm.py`, `validate_nvfp4_kv_cache_with_mla`; vllm#42587.

use schemas::{diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL41",
    name: "cache-format-of-target",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The first version read that has `nvfp4` and checks it.
const CHECKED: EngineVersion = EngineVersion::new(0, 21, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    let flag = context.launch.argument("kv-cache-dtype").filter(|flag| !flag.in_branch)?;
    let format = flag.values.first()?.value.known()?;
    let config = context.target_config()?;
    let finding = match format {
        "fp8_ds_mla" => {
            let class = config.architecture().filter(|class| IS_PLAIN.iter().any(|plain| class.starts_with(plain)))?;
            Finding::new(
                flag.span,
                format!("`{format}` is a format of latent attention, which {class} lacks"),
                "for latent attention",
            )
            .help("write `--kv-cache-dtype fp8`")
        }
        "nvfp4" if config.is_mla() && context.version() >= CHECKED => {
            Finding::new(flag.span, "a cache in NVFP4 does not hold latent attention", "not for latent attention")
                .vllm_says(
                    "ValueError: nvfp4 KV cache is not supported with MLA (Multi-head Latent Attention) backends.",
                )
                .by_version()
                .help("write `--kv-cache-dtype fp8`")
        }
        _ => return None,
    };
    Some(finding.related(context.span(Key::ModelPath), "the target").on_facts("target", context.target))
}

/// Starts of the names of classes without latent attention.
const IS_PLAIN: [&str; 8] = ["Gemma", "Glm4Moe", "GptOss", "Llama", "MiniMaxM2", "Mistral", "Qwen2", "Qwen3"];

//! # SD196: backend-and-gpu
//!
//! The attention backend does not run on this GPU.
//!
//! ## What it does
//!
//! Compares the attention backends with the GPU that `--gpu-memory` gives, by model or by an amount
//! of memory that only GPUs of one architecture have, or else with the only GPU that the text
//! around the launch names (a warning).
//!
//! ## Why is this bad?
//!
//! The server does not start, or crashes when the backend is built.
//!
//! ## What SGLang does
//!
//! - fa3: `AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90.` Latent attention
//!   needs SM 9.0.
//! - trtllm_mla, cutedsl_mla, cutlass_mla: `ValueError: TRTLLM MLA backend is only supported on
//!   Blackwell GPUs (SM100/SM12x).`
//! - trtllm_mha: `ValueError: TRTLLM MHA backend for decode is only supported on Hopper (SM90),
//!   Blackwell (SM100) and (SM120) GPUs.`; up to 0.5.9 on SM 10 only.
//! - aiter and wave run on AMD only; NVIDIA's backends are not available on AMD.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23 memory:183359
//! sglang serve --model-path target --attention-backend fa3 --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch bad version:0.5.23 memory:81920
//! sglang serve --model-path deepseek-ai/DeepSeek-V3 --tp 8 --attention-backend fa3 --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1, "kv_lora_rank": 512}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23 memory:183359
//! sglang serve --model-path target --attention-backend triton --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Read in 0.5.6, 0.5.9, 0.5.13 to 0.5.19 and 0.5.23. Up to 0.5.18 prompts run on `trtllm_mha` on
//! SM 10.0 only.
//!
//! ## Source
//!
//! sglang `layers/attention/attention_registry.py`, `arg_groups/attention_hook.py`,
//! `server_args.py`.

use launch::resolve::uses_mla;
use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
    gpu::{
        Architecture::{self, Cdna, Sm},
        architecture_of, models_of,
    },
    version::EngineVersion,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, peers::lacks, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD196",
    name: "backend-and-gpu",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

const KEYS: [Key; 4] = [
    Key::AttentionBackend,
    Key::PrefillAttentionBackend,
    Key::DecodeAttentionBackend,
    Key::SpeculativeDraftAttentionBackend,
];

/// Backends with kernels for NVIDIA GPUs only.
const NVIDIA: [&str; 11] = [
    "cutedsl_mla",
    "cutlass_mla",
    "dual_chunk_flash_attn",
    "fa3",
    "fa4",
    "flashinfer",
    "flashmla",
    "hpc_ops",
    "tokenspeed_mla",
    "trtllm_mha",
    "trtllm_mla",
];

fn check(context: &Context<'_>) -> Vec<Finding> {
    // A memory that no known architecture has says nothing, whatever the text names.
    let given = context.gpu_memory;
    let Some(architecture) = given.map_or(context.architecture(), architecture_of) else { return Vec::new() };
    let gpus = given.map_or_else(|| "the GPU that the text names".to_owned(), models_of);
    let latent = context.target_config().is_some_and(uses_mla);
    let look = |key: Key| {
        let backend = context.launch.text(key)?;
        let runs_prompts = match key {
            Key::PrefillAttentionBackend => true,
            Key::AttentionBackend => lacks(context.launch, Key::PrefillAttentionBackend),
            _ => false,
        };
        let needs = needs(backend.value, architecture, latent, context.version())
            .or_else(|| needs_for_prompts(backend.value, architecture, context.version()).filter(|_| runs_prompts))?;
        let message = format!("{} needs {needs}, and {gpus} has {architecture}", backend.value);
        let finding = Finding::new(backend.span, message, "not on this GPU");
        // The launch may be for another GPU than the one that the text names.
        let finding = if given.is_some() { finding } else { finding.at_most(Severity::Warning) };
        Some(
            finding.by_version().help(format!("write `{}`, which runs on every GPU", context.line(key, "triton"))).fix(
                Safety::Unsafe,
                "use triton, which runs on every GPU",
                context.set(key, "triton"),
            ),
        )
    };
    KEYS.into_iter().filter_map(look).collect()
}

/// The GPU that a backend needs, if this one does not satisfy it.
fn needs(backend: &str, gpu: Architecture, latent: bool, version: EngineVersion) -> Option<&'static str> {
    let nvidia = NVIDIA.contains(&backend);
    match (backend, gpu) {
        (_, Cdna(_)) if nvidia => Some("an NVIDIA GPU"),
        ("aiter" | "wave", Sm(..)) => Some("an AMD GPU"),
        ("fa3", Sm(8, _)) if latent => Some("SM 9.0 for latent attention"),
        ("fa3", Sm(major, _)) if major != 8 && major != 9 => Some("SM 8.0 to 9.0"),
        ("hpc_ops", Sm(major, _)) if major != 9 => Some("SM 9.0"),
        ("trtllm_mla" | "cutedsl_mla" | "tokenspeed_mla" | "cutlass_mla", Sm(major, _)) if major < 10 => {
            Some("a Blackwell GPU (SM 10.0 or later)")
        }
        ("trtllm_mha", Sm(major, _)) if major < 9 => Some("SM 9.0 or later"),
        ("trtllm_mha", Sm(major, _)) if major != 10 && version <= V0_5_9 => Some("SM 10.0 in this version"),
        _ => None,
    }
}

/// The GPU that a backend needs for prompts in addition, if this one does not satisfy it.
fn needs_for_prompts(backend: &str, gpu: Architecture, version: EngineVersion) -> Option<&'static str> {
    match (backend, gpu) {
        ("trtllm_mha", Sm(major, _)) if major != 10 && version <= V0_5_18 => {
            Some("SM 10.0 for prompts in this version")
        }
        _ => None,
    }
}

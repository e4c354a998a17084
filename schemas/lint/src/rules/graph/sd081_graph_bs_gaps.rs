//! # SD081: graph-bs-gaps
//!
//! flashinfer pads batches to captured sizes, which can end in an illegal memory access.
//!
//! ## What it does
//!
//! If speculation runs with CUDA graphs on flashinfer (as given, or by default, as it is with topk
//! above 1), looks for batch sizes below the largest captured one that have no graph and so are
//! padded up to the next.
//!
//! ## Why is this bad?
//!
//! The draft's buffers for the padded rows contain values of earlier batches. The engine crashes
//! while it is serving, most often when the number of running requests shrinks, as at the end of a
//! rollout.
//!
//! ## What SGLang does
//!
//! `CUDA error: an illegal memory access was encountered` in the draft stage or in verify.
//!
//! ## Example
//!
//! ```launch bad version:0.5.2
//! sglang serve --model-path meta-llama/Llama-2-7b-chat-hf --speculative-algorithm EAGLE --max-running-requests 48 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE-llama2-chat-7B \
//!   --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 32
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096, "torch_dtype": "float16"}
//! ```
//!
//! ```launch bad version:0.5.15.post1
//! SGLANG_ARGS=(
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-speculative-draft-model-path /root/sglang-EAGLE-llama2-chat-7B
//!    --sglang-speculative-num-steps 5
//!    --sglang-speculative-eagle-topk 8
//!    --sglang-speculative-num-draft-tokens 32
//!    --sglang-max-running-requests 48
//! )
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096, "torch_dtype": "float16"}
//! ```
//!
//! ## Use instead
//!
//! Another backend, or capture every size:
//!
//! ```launch good version:0.5.2
//! sglang serve --model-path meta-llama/Llama-2-7b-chat-hf --speculative-algorithm EAGLE --max-running-requests 48 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE-llama2-chat-7B \
//!   --attention-backend fa3 --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 32
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096, "torch_dtype": "float16"}
//! ```
//!
//! ```launch good version:0.5.2
//! sglang serve --model-path meta-llama/Llama-2-7b-chat-hf --speculative-algorithm EAGLE --max-running-requests 48 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE-llama2-chat-7B \
//!   --cuda-graph-bs $(seq 1 48) --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 32
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096, "torch_dtype": "float16"}
//! ```
//!
//! ## Versions
//!
//! The main cause was fixed by PR #10892 (in 0.5.6), another by PR #18647 (in 0.5.12). Crashes of
//! this kind are still reported for later versions (#28569, #32691). From 0.5.12 on the finding is
//! information, except for slime.
//!
//! ## Source
//!
//! sglang issues #9521, #9888, #8336, #6309, #9481; slime's guide to speculative decoding.

use launch::resolve::uses_mla;
use schemas::{
    diagnostic::{Safety, Severity},
    engines::Engine,
    flags::Key,
    gpu::Architecture,
};

use super::padding::{Captured, advised_line};
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, known::is_named_latent, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD081",
    name: "graph-bs-gaps",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Where PR #10892 started to reset the positions of padded rows.
const MENDED: Edge = Edge::new(V0_5_2, V0_5_6);

fn check(context: &Context<'_>) -> Option<Finding> {
    let captured = Captured::from_context(context)?;
    let (main, decode) = (Key::AttentionBackend, Key::DecodeAttentionBackend);
    let written = context.span(decode).or(context.span(main));
    let known = written.is_some() || context.is_absent(main);
    let flashinfer = context.resolved.attention_backend.as_ref()?.value == "flashinfer";
    // Latent attention has its own kernels under the same name.
    let other_kernels = match context.target_config() {
        Some(config) => uses_mla(config),
        None => is_named_latent(context),
    };
    let other_draft = context.launch.has(Key::SpeculativeDraftAttentionBackend)
        && context.launch.text(Key::SpeculativeDraftAttentionBackend)?.value != "flashinfer";
    let never_pads = context.launch.has(Key::DisableCudaGraphPadding) && MENDED.side(context.version()) == Side::After;
    if !known || !flashinfer || other_kernels || other_draft || never_pads {
        return None;
    }
    let (batch, size) = captured.first_gap(context.requests_per_worker().unwrap_or(usize::MAX))?;
    let after = MENDED.side(context.version()) == Side::After;
    let message = if after {
        "flashinfer pads batches to captured CUDA graph sizes: crashes (illegal memory access) are still reported"
    } else {
        "flashinfer pads batches to captured CUDA graph sizes: illegal memory access in the draft stage"
    };
    let place = match written {
        Some(_) => context.value_place(if context.launch.has(decode) { decode } else { main }),
        None => context.launch.anchor,
    };
    let label = if written.is_some() { "pads with stale rows" } else { "runs on flashinfer by default" };
    let key = if context.launch.has(decode) { decode } else { main };
    let finding = Finding::new(place, message, label)
        .related(context.span(Key::CudaGraphBs), "a list with gaps")
        .sglang_says("CUDA error: an illegal memory access was encountered")
        .note(format!("a batch of {batch} runs as one of {size}, the next captured size"));
    let finding = if after {
        finding.note(
            "sglang #9888 and #9521 describe it; the main cause is mended in 0.5.6 and later (PR #10892), but crashes \
             are reported for later versions too (#28569, #32691)",
        )
    } else {
        finding.note("sglang #9888, #9521, #8336, #6309, #9481; the main cause is mended in 0.5.6 (PR #10892)")
    };
    let runs_fa3 = match context.architecture() {
        Some(Architecture::Sm(major, _)) => matches!(major, 8 | 9),
        Some(Architecture::Cdna(_)) => false,
        None => context.gpu_memory.is_none_or(|memory| (60 * 1024..160 * 1024).contains(&memory)),
    };
    let (first, second) = if runs_fa3 { ("fa3", "triton") } else { ("triton", "fa3") };
    // Since the second cause is mended too, crashes are rare. slime shrinks its batches at the end
    // of every rollout.
    let is_rare = context.version() >= V0_5_12_0 && context.launch.engine != Engine::Slime;
    let finding = if is_rare { finding.at_most(Severity::Info) } else { finding };
    Some(
        finding
            .maybe_note(MENDED.doubt(context.version()))
            .by_version()
            .help(format!(
                "{} `{}` (or {second}), or capture every size: `{}`",
                context.add_or_write(key),
                context.line(key, first),
                advised_line(context, captured.largest(), false)
            ))
            .fix(Safety::Unsafe, format!("use {first}"), context.set(key, first)),
    )
}

//! # SD106: backend-flex
//!
//! The attention backend cannot run speculation.
//!
//! ## What it does
//!
//! Looks for attention backends without the kernels of a draft: flex_attention, torch_native,
//! cutlass_mla, dual_chunk_flash_attn, wave and some others; fa4 before 0.5.12.
//!
//! ## Why is this bad?
//!
//! The server does not start, or crashes when the draft's attention backend is built.
//!
//! ## What SGLang does
//!
//! - flex_attention, from 0.5.6 on: `AssertionError: Speculative decoding is currently not
//!   supported with Flex Attention backend`.
//! - torch_native with NGRAM: accepted, then it crashes during warm-up.
//! - Others: `ValueError: EAGLE is not supported in decode attention backend torch_native`. On
//!   torch_native, CUDA graphs are turned off as well.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend flex_attention \
//!   --max-running-requests 16 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend torch_native \
//!   --max-running-requests 16 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend triton \
//!   --max-running-requests 16 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! The backends with a draft were read from 0.5.2, 0.5.6, 0.5.9, 0.5.12.post1 and 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/draft_utils.py`, `arg_groups/attention_hook.py`; issue #36352.

use schemas::{
    algorithm::Algorithm,
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD106",
    name: "backend-flex",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Backends on which no known version can draft.
const NEVER: &[&str] = &["cutlass_mla", "dual_chunk_flash_attn", "torch_native", "wave"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let version = context.version();
    let main = context.launch.text(Key::AttentionBackend).filter(|_| context.resolved.speculative);
    if let Some(flex) = main.as_ref().filter(|backend| backend.value == "flex_attention") {
        let finding = Finding::new(flex.span, "flex_attention cannot run speculation", "without speculation only")
            .sglang_says("AssertionError: Speculative decoding is currently not supported with Flex Attention backend");
        return Some(advised(context, Key::AttentionBackend, finding));
    }
    let ngram = context.algorithm() == Some(Algorithm::Ngram);
    if let Some(native) = main.as_ref().filter(|backend| ngram && backend.value == "torch_native") {
        let finding = Finding::new(native.span, "torch_native cannot verify what NGRAM drafts", "dies in the warm-up")
            .note("it is accepted, and the first request of the warm-up fails (sglang #36352)")
            .by_version();
        return Some(advised(context, Key::AttentionBackend, finding));
    }
    context.tree_algorithm()?;
    // The draft's own backend takes precedence; of a split backend, the decode half drafts.
    let keys = [Key::SpeculativeDraftAttentionBackend, Key::DecodeAttentionBackend, Key::AttentionBackend];
    let key = keys.into_iter().find(|key| context.launch.has(*key))?;
    let backend = context.launch.text(key)?;
    let edge = (backend.value == "fa4").then_some(Edge::new(V0_5_9, V0_5_12));
    let side = match edge {
        Some(edge) => edge.side(version),
        None if NEVER.contains(&backend.value) => Side::Before,
        None => return None,
    };
    if side == Side::After {
        return None;
    }
    let name = backend.value;
    let finding =
        Finding::new(backend.span, format!("{name} cannot run the draft in sglang {version}"), "no draft on it")
            .sglang_says(format!("ValueError: EAGLE is not supported in decode attention backend {name}"))
            .maybe_note((name == "torch_native").then(|| "CUDA graphs are turned off as well".to_owned()))
            .maybe_note(edge.and_then(|edge| edge.doubt(version)))
            .by_version();
    let finding = advised(context, key, finding);
    Some(if side == Side::Between { finding.at_most(Severity::Warning) } else { finding })
}

fn advised(context: &Context<'_>, key: Key, finding: Finding) -> Finding {
    finding
        .related(context.span(Key::SpeculativeAlgorithm), "needs a draft's kernels")
        .help(format!("write `{}`, or triton or flashinfer", context.line(key, "fa3")))
        .fix(Safety::Unsafe, "use triton, which runs on every GPU", context.set(key, "triton"))
}

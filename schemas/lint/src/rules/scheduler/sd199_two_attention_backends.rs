//! # SD199: two-attention-backends
//!
//! Prefill and decode have different attention backends, under which these versions do not
//! speculate.
//!
//! ## What it does
//!
//! Compares `--prefill-attention-backend` with `--decode-attention-backend`, each of which falls
//! back to `--attention-backend`, up to 0.5.1. If one of the two is the engine's default, it is
//! unknown and nothing is reported.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `AssertionError: Currently HybridAttentionBackend does not support speculative decoding.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.1
//! python3 -m sglang.launch_server --model-path target --speculative-algorithm EAGLE --attention-backend trtllm_mla \
//!   --prefill-attention-backend flashinfer --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.2
//! python3 -m sglang.launch_server --model-path target --speculative-algorithm EAGLE --attention-backend trtllm_mla \
//!   --prefill-attention-backend flashinfer --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch good version:0.5.1
//! python3 -m sglang.launch_server --model-path target --speculative-algorithm EAGLE --attention-backend flashinfer \
//!   --prefill-attention-backend flashinfer --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! From 0.4.9.post5, which added the two flags, to 0.5.1.post3. Read in 0.5.1, 0.5.1.post3 and
//! 0.5.2.
//!
//! ## Source
//!
//! sglang `model_executor/model_runner.py`; issue #9330, PR #9573.

use schemas::{diagnostic::Severity, flags::Key, text::Located};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD199",
    name: "two-attention-backends",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    if context.version() >= V0_5_2 {
        return None;
    }
    let algorithm = context.algorithm()?;
    let prefill = backend(context, Key::PrefillAttentionBackend)?;
    let decode = backend(context, Key::DecodeAttentionBackend)?;
    if prefill.value == decode.value {
        return None;
    }
    let message =
        format!("{} does not run with {} for prefill and {} for decode", algorithm.name(), prefill.value, decode.value);
    Some(
        Finding::new(prefill.span, message, "prefill")
            .related(Some(decode.span), "decode")
            .related(context.span(Key::SpeculativeAlgorithm), "speculates")
            .sglang_says("AssertionError: Currently HybridAttentionBackend does not support speculative decoding.")
            .by_version()
            .help("use one backend for both, or sglang 0.5.2 or later"),
    )
}

/// The backend of a phase, if the launch sets it.
fn backend<'a>(context: &Context<'a>, own: Key) -> Option<Located<&'a str>> {
    let key = if context.launch.has(own) { own } else { Key::AttentionBackend };
    context.launch.text(key)
}

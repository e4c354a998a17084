//! # SD154: logits-memory
//!
//! The logits of one verify pass are large.
//!
//! ## What it does
//!
//! Computes captured batch × draft tokens × vocabulary × 4 bytes, and reports them from 1 GiB on.
//!
//! ## Why is this bad?
//!
//! They are outside the static memory fraction, and sampling makes copies of them: scaled, as
//! probabilities, renormalised.
//!
//! ## What SGLang does
//!
//! It captures the largest batch with all its rows. Nothing accounts for the copies.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5 --max-running-requests 512 \
//!   --cuda-graph-max-bs-decode 512 --attention-backend fa3
//! ```
//!
//! ```target partial
//! {"architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5 --max-running-requests 64 \
//!   --cuda-graph-max-bs-decode 64 --attention-backend fa3
//! ```
//!
//! ```target partial
//! {"architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936}
//! ```
//!
//! ## Versions
//!
//! All.
//!
//! ## Source
//!
//! Derived from sglang `speculative/eagle_info.py` and `layers/logits_processor.py`.

use launch::resolve::readable;
use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD154",
    name: "logits-memory",
    severity: Severity::Info,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Logits of at least this many bytes are reported.
const LARGE: u64 = 1 << 30;

fn check(context: &Context<'_>) -> Option<Finding> {
    context.algorithm()?;
    let resolved = context.resolved;
    let rows = resolved.num_draft_tokens.as_ref()?.value;
    let batch = resolved.capture_sizes.as_ref()?.value.last().copied()?;
    let vocabulary = context.target_config()?.vocab_size?;
    let bytes = rows.checked_mul(batch)?.checked_mul(vocabulary)?.checked_mul(4)?;
    let bytes = u64::try_from(bytes).ok().filter(|bytes| *bytes >= LARGE)?;
    let message = format!(
        "the logits of one verify take {}: {batch} requests × {rows} rows × {vocabulary} tokens × 4 bytes",
        readable(bytes)
    );
    Some(
        Finding::new(context.value_place(Key::SpeculativeNumDraftTokens), message, "outside the static share")
            .note("sampling makes copies of them: scaled, as probabilities, renormalised")
            .help(format!("capture smaller batches (`{}`), or verify fewer rows", context.flag(Key::CudaGraphMaxBs))),
    )
}

//! # SD076: fa3-e5m2
//!
//! fa3 does not support this KV cache dtype: triton runs instead.
//!
//! ## What it does
//!
//! Looks for `--attention-backend fa3` with `--kv-cache-dtype fp8_e5m2`.
//!
//! ## Why is this bad?
//!
//! The backend that runs is not the one that was requested, so triton's limits apply instead of
//! fa3's.
//!
//! ## What SGLang does
//!
//! It changes the backend to triton, with a line in the log.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --kv-cache-dtype fp8_e5m2 --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --kv-cache-dtype fp8_e4m3 --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! As read in 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/overrides.py`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD076",
    name: "fa3-e5m2",
    severity: Severity::Info,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let backend = context.launch.text(Key::AttentionBackend).filter(|backend| backend.value == "fa3")?;
    let dtype = context.launch.text(Key::KvCacheDtype).filter(|dtype| dtype.value == "fp8_e5m2")?;
    context.resolved.speculative.then(|| {
        Finding::new(backend.span, "triton runs instead of fa3, which does not support fp8_e5m2", "becomes triton")
            .related(Some(dtype.span), "not with fa3")
            .help(format!("write `{}` to keep fa3", context.line(Key::KvCacheDtype, "fp8_e4m3")))
    })
}

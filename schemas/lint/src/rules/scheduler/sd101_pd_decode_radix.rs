//! # SD101: pd-decode-radix
//!
//! The prefix cache of a decode engine does not support this algorithm.
//!
//! ## What it does
//!
//! Looks for `--disaggregation-decode-enable-radix-cache` with an algorithm other than EAGLE,
//! EAGLE3 or DSPARK; up to 0.5.22 with any algorithm.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: --disaggregation-decode-enable-radix-cache is incompatible with speculative
//! decoding (--speculative-algorithm NGRAM)`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --disaggregation-mode decode --disaggregation-decode-enable-radix-cache --max-running-requests 16 \
//!   --speculative-algorithm NGRAM --attention-backend fa3
//! ```
//!
//! ```launch bad version:0.5.22
//! sglang serve --model-path target --disaggregation-mode decode --disaggregation-decode-enable-radix-cache --max-running-requests 16 \
//!   --speculative-algorithm EAGLE --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --disaggregation-mode decode --disaggregation-decode-enable-radix-cache --max-running-requests 16 \
//!   --speculative-algorithm EAGLE --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Since the flag was added, between 0.5.9 and 0.5.11. EAGLE, EAGLE3 and DSPARK are accepted from
//! 0.5.23 on; read in 0.5.15 to 0.5.20, 0.5.22 and 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`; PR #39150.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::V0_5_23};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD101",
    name: "pd-decode-radix",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let place = context.span(Key::DisaggregationDecodeEnableRadixCache)?;
    let algorithm = context.algorithm()?;
    let takes_some = context.version() >= V0_5_23;
    if takes_some && matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3 | Algorithm::Dspark) {
        return None;
    }
    let message = format!("a decode engine has no prefix cache under {}", algorithm.name());
    let label = if takes_some { "EAGLE, EAGLE3 and DSPARK only" } else { "without speculation only" };
    Some(
        Finding::new(place, message, label)
            .related(context.span(Key::SpeculativeAlgorithm), "here")
            .help(format!("take `{}` out", context.flag(Key::DisaggregationDecodeEnableRadixCache))),
    )
}

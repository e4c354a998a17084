//! # SD101: pd-decode-radix
//!
//! The prefix cache of a decode engine does not support this algorithm.
//!
//! ## What it does
//!
//! Looks for `--disaggregation-decode-enable-radix-cache` with another algorithm than EAGLE, EAGLE3 or DSPARK.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It raises a ValueError that names the algorithms it takes.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --disaggregation-mode decode --disaggregation-decode-enable-radix-cache --max-running-requests 16 \
//!   --speculative-algorithm NGRAM --attention-backend fa3
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
//! Since the flag came, between 0.5.9 and 0.5.12.post1.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use crate::{
    diagnostic::Severity,
    flags::Key,
    resolve::Algorithm,
    rules::{Applies, Check, Context, Finding, Rule},
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "SD101",
    name: "pd-decode-radix",
    severity: Severity::Error,
    applies: Applies::Sglang,
    file: include_str!("sd101_pd_decode_radix.rs"),
    check: Check::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let place = context.span(Key::DisaggregationDecodeEnableRadixCache)?;
    let algorithm = context.algorithm()?;
    if matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3 | Algorithm::Dspark) {
        return None;
    }
    let message = format!("a decode engine has no prefix cache under {}", algorithm.name());
    Some(
        Finding::new(place, message, "EAGLE, EAGLE3 and DSPARK only")
            .related(context.span(Key::SpeculativeAlgorithm), "here")
            .help(format!("take `{}` out", context.flag(Key::DisaggregationDecodeEnableRadixCache))),
    )
}

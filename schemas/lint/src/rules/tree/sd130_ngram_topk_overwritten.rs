//! # SD130: ngram-topk-overwritten
//!
//! NGRAM replaces topk with its own breadth.
//!
//! ## What it does
//!
//! Looks for `--speculative-eagle-topk` under NGRAM that differs from
//! `--speculative-ngram-max-bfs-breadth` (default: 10).
//!
//! ## Why is this bad?
//!
//! The requested value is not the one that runs.
//!
//! ## What SGLang does
//!
//! It silently overwrites topk with the breadth, and steps with draft tokens // topk.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --speculative-eagle-topk 1 --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --speculative-ngram-max-bfs-breadth 1 \
//!   --attention-backend fa3
//! ```
//!
//! ## Versions
//!
//! As read in 0.5.6 to 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD130",
    name: "ngram-topk-overwritten",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The default breadth.
const BREADTH: usize = 10;

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Ngram)?;
    let topk = context.launch.count(Key::SpeculativeEagleTopk)?;
    let key = Key::SpeculativeNgramMaxBfsBreadth;
    let breadth = match context.launch.has(key) {
        true => context.launch.count(key)?.value,
        false => BREADTH,
    };
    if breadth == topk.value {
        return None;
    }
    let message = format!("NGRAM runs with topk {breadth}, its breadth, not with {}", topk.value);
    Some(
        Finding::new(topk.span, message, "overwritten")
            .related(context.span(key), "this counts")
            .help(format!("write `{}` for that breadth", context.line(key, &topk.value.to_string()))),
    )
}

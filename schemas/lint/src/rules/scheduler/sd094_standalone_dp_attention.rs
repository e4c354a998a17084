//! # SD094: standalone-dp-attention
//!
//! STANDALONE and NGRAM cannot run with DP attention.
//!
//! ## What it does
//!
//! Looks for `--enable-dp-attention` with STANDALONE or NGRAM.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: Currently standalone speculative decoding does not support dp attention.`, and the
//! same for ngram.
//!
//! ## Example
//!
//! ```launch bad version:0.5.15
//! sglang serve --model-path target --tp-size 8 --dp-size 8 --enable-dp-attention --speculative-algorithm NGRAM --max-running-requests 16 \
//!   --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.15
//! sglang serve --model-path target --tp-size 8 --speculative-algorithm NGRAM --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ## Versions
//!
//! As read in 0.5.9 to 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD094",
    name: "standalone-dp-attention",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let name = match context.algorithm()? {
        Algorithm::Standalone => "standalone",
        Algorithm::Ngram => "ngram",
        _ => return None,
    };
    let place = context.span(Key::EnableDpAttention)?;
    Some(
        Finding::new(place, format!("{name} speculation does not run with DP attention"), "not with this algorithm")
            .related(context.span(Key::SpeculativeAlgorithm), "here")
            .sglang_says(format!("Currently {name} speculative decoding does not support dp attention."))
            .help(format!("take `{}` out", context.flag(Key::EnableDpAttention))),
    )
}

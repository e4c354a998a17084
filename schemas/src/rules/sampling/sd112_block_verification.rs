//! # SD112: block-verification
//!
//! Block verification runs with EAGLE, EAGLE3, DFLASH and DSPARK only.
//!
//! ## What it does
//!
//! Looks for `--speculative-use-block-verification` with another algorithm.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It raises a ValueError. Where it runs, it turns rejection sampling on.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --speculative-use-block-verification --max-running-requests 16 \
//!   --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-use-block-verification --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Since the flag came; read in 0.5.23.
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
    code: "SD112",
    name: "block-verification",
    severity: Severity::Error,
    applies: Applies::Sglang,
    file: include_str!("sd112_block_verification.rs"),
    check: Check::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let place = context.span(Key::SpeculativeUseBlockVerification)?;
    let algorithm = context.algorithm()?;
    if matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3 | Algorithm::Dflash | Algorithm::Dspark) {
        return None;
    }
    let message = format!("block verification does not run with {}", algorithm.name());
    Some(
        Finding::new(place, message, "EAGLE, EAGLE3, DFLASH and DSPARK only")
            .related(context.span(Key::SpeculativeAlgorithm), "here")
            .help(format!("take `{}` out", context.flag(Key::SpeculativeUseBlockVerification))),
    )
}

//! # SD144: block-size-and-tokens
//!
//! The number of draft tokens contradicts the block size.
//!
//! ## What it does
//!
//! Under DFLASH the number of draft tokens must equal `--speculative-dflash-block-size`; under
//! DSPARK it must be `--speculative-dspark-block-size` + 1.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It raises a ValueError that names both numbers.
//! (`speculative_num_draft_tokens must be >= 2 (= gamma + 1)`)
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DSPARK --speculative-draft-model-path draft --max-running-requests 16 \
//!   --speculative-dspark-block-size 7 --speculative-num-draft-tokens 7 --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DSPARK --speculative-draft-model-path draft --max-running-requests 16 \
//!   --speculative-dspark-block-size 7 --speculative-num-draft-tokens 8 --attention-backend fa3
//! ```
//!
//! ## Versions
//!
//! Since the algorithms were added; read in 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD144",
    name: "block-size-and-tokens",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let (key, more) = match context.algorithm()? {
        Algorithm::Dflash => (Key::SpeculativeDflashBlockSize, 0),
        Algorithm::Dspark => (Key::SpeculativeDsparkBlockSize, 1),
        _ => return None,
    };
    let block = context.launch.count(key)?;
    let tokens = context.launch.count(Key::SpeculativeNumDraftTokens)?;
    let expected = block.value.checked_add(more)?;
    if tokens.value == expected {
        return None;
    }
    let message = format!("a block of {} is {expected} draft tokens, not {}", block.value, tokens.value);
    Some(
        Finding::new(tokens.span, message, format!("has to be {expected}"))
            .related(Some(block.span), "the block")
            .help(format!("write `{}`", context.line(Key::SpeculativeNumDraftTokens, &expected.to_string()))),
    )
}

//! # SD140: dflash-block
//!
//! A DFLASH block has no token, or is longer than the window that the draft sees.
//!
//! ## What it does
//!
//! Looks at `--speculative-dflash-block-size` below 1, and at a `--speculative-draft-window-size`
//! below the block.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: DFLASH requires --speculative-dflash-block-size to be positive, got 0.` or
//! `--speculative-draft-window-size must be >= --speculative-num-draft-tokens (block_size).`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --speculative-dflash-block-size 0 --attention-backend fa3
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --speculative-dflash-block-size 16 --speculative-draft-window-size 8 --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --speculative-dflash-block-size 16 --speculative-draft-window-size 1024 --attention-backend fa3
//! ```
//!
//! ## Versions
//!
//! Since DFLASH was added; read in 0.5.12 to 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD140",
    name: "dflash-block",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Dflash)?;
    let (block, window) = (Key::SpeculativeDflashBlockSize, Key::SpeculativeDraftWindowSize);
    if let Some(size) = context.launch.integer(block).filter(|size| size.value <= 0) {
        return Some(
            Finding::new(size.span, format!("a block of {} is not possible", size.value), "has to be positive")
                .sglang_says(format!(
                    "DFLASH requires --speculative-dflash-block-size to be positive, got {}.",
                    size.value
                ))
                .help(format!("write `{}`, or take it out to follow the draft's config", context.line(block, "16"))),
        );
    }
    // A window below 1 is reported by SD145.
    let size = context.launch.count(window).filter(|size| size.value > 0)?;
    let tokens = context.resolved.num_draft_tokens.as_ref()?.value;
    (size.value < tokens).then(|| {
        let message = format!("the draft sees {} tokens, and a block has {tokens}", size.value);
        Finding::new(size.span, message, "shorter than a block")
            .related(context.span(block).or_else(|| context.span(Key::SpeculativeNumDraftTokens)), "the block")
            .sglang_says(format!(
                "--speculative-draft-window-size must be >= --speculative-num-draft-tokens (block_size). \
                 window_size={}, block_size={tokens}.",
                size.value
            ))
            .on_facts("draft", context.draft)
            .help(format!("write a window of {tokens} or more, such as `{}`", context.line(window, "1024")))
    })
}

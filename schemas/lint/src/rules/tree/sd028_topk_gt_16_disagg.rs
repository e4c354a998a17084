//! # SD028: topk-gt-16-disagg
//!
//! The transfer between prefill and decode has no room for this many branches.
//!
//! ## What it does
//!
//! Looks for topk above 16 with disaggregated prefill and decode.
//!
//! ## Why is this bad?
//!
//! The metadata that a prefill engine transfers has room for 16 of the first proposals.
//!
//! ## What SGLang does
//!
//! A comment in the source says `speculative_eagle_topk should not be greater than 16 currently`;
//! nothing checks it.
//!
//! ## Example
//!
//! ```launch bad version:0.5.15
//! sglang serve --model-path target --speculative-algorithm EAGLE --disaggregation-mode prefill --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 20 --speculative-num-draft-tokens 32
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.15
//! sglang serve --model-path target --speculative-algorithm EAGLE --disaggregation-mode prefill --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 16 --speculative-num-draft-tokens 32
//! ```
//!
//! ## Versions
//!
//! 0.5.9 to 0.5.23.
//!
//! ## Source
//!
//! sglang `disaggregation/utils.py`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD028",
    name: "topk-gt-16-disagg",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Number of proposals that the transferred metadata can hold.
const ROOM: usize = 16;

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let mode = context.launch.disaggregation_mode()?;
    let topk = context.launch.count(Key::SpeculativeEagleTopk).filter(|topk| topk.value > ROOM)?;
    let message = format!("topk {} is more than the {ROOM} that prefill can hand to decode", topk.value);
    Some(
        Finding::new(topk.span, message, "the rest has no room")
            .related(Some(mode.span), "first proposals are sent")
            .help(format!("write `{}` or less", context.line(Key::SpeculativeEagleTopk, "16"))),
    )
}

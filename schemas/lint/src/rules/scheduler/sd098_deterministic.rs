//! # SD098: deterministic
//!
//! UNO cannot run deterministically.
//!
//! ## What it does
//!
//! Looks for `--enable-deterministic-inference` under UNO.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It raises a ValueError.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm UNO --uno-lora-path lora --speculative-num-draft-tokens 4 --max-running-requests 16 \
//!   --enable-deterministic-inference --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --enable-deterministic-inference --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Since UNO was added; read in 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/validation_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD098",
    name: "deterministic",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Uno)?;
    let place = context.span(Key::EnableDeterministicInference)?;
    Some(
        Finding::new(place, "UNO does not run deterministically", "not with UNO")
            .related(context.span(Key::SpeculativeAlgorithm), "here")
            .help(format!("take `{}` out, or use EAGLE", context.flag(Key::EnableDeterministicInference))),
    )
}

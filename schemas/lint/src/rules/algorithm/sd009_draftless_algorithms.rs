//! # SD009: draftless-algorithms
//!
//! The algorithm needs a draft path and has none, or has one and takes none.
//!
//! ## What it does
//!
//! Looks at DFLASH without a draft path, and at UNO with one or without its LoRA.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! - DFLASH: `DFLASH speculative decoding requires setting --speculative-draft-model-path.`
//! - UNO: `UNO reuses the target model and does not accept --speculative-draft-model-path.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm UNO --uno-lora-path lora --speculative-num-draft-tokens 4 \
//!   --speculative-draft-model-path draft --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3
//! ```
//!
//! ## Versions
//!
//! As read in 0.5.23; DFLASH has behaved the same since it was added.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD009",
    name: "draftless-algorithms",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let draft = Key::SpeculativeDraftModelPath;
    let algorithm = context.value_place(Key::SpeculativeAlgorithm);
    match context.algorithm()? {
        Algorithm::Dflash if context.is_absent(draft) => Some(
            Finding::new(algorithm, "DFLASH has no draft model", "drafts blocks with a separate model")
                .sglang_says("DFLASH speculative decoding requires setting --speculative-draft-model-path.")
                .help(format!("add `{}`", context.line(draft, "…"))),
        ),
        Algorithm::Uno if context.launch.has(draft) => Some(
            Finding::new(context.place(draft), "UNO takes no draft model", "the target drafts with a LoRA")
                .sglang_says("UNO reuses the target model and does not accept --speculative-draft-model-path.")
                .help(format!("take `{}` out", context.flag(draft))),
        ),
        Algorithm::Uno if context.is_absent(Key::UnoLoraPath) => Some(
            Finding::new(algorithm, "UNO has no LoRA to draft with", "the target drafts with a LoRA")
                .help(format!("add `{}`", context.line(Key::UnoLoraPath, "…"))),
        ),
        _ => None,
    }
}

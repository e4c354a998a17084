//! # SD045: token-map-eagle3
//!
//! A token map is given for an EAGLE-3 head, which has its own.
//!
//! ## What it does
//!
//! Looks for `--speculative-token-map` under `--speculative-algorithm EAGLE3`.
//!
//! ## Why is this bad?
//!
//! The map has no effect, contrary to what the launch suggests.
//!
//! ## What SGLang does
//!
//! It warns `Speculative token map specified, but EAGLE3 models already have this. Ignoring the
//! specified token map.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --speculative-token-map thunlp/LLaMA3-Instruct-8B-FR-Spec/freq_32768.pt --max-running-requests 16
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//!
//! ## Versions
//!
//! All versions with EAGLE3.
//!
//! ## Source
//!
//! sglang `speculative/eagle_worker_v2.py`.

use schemas::{
    algorithm::Algorithm,
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD045",
    name: "token-map-eagle3",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let key = Key::SpeculativeTokenMap;
    let place = context.span(key)?;
    Some(
        Finding::new(place, "the token map is ignored: an EAGLE-3 head has its own", "no effect")
            .related(context.span(Key::SpeculativeAlgorithm), "EAGLE3")
            .sglang_says(
                "Speculative token map specified, but EAGLE3 models already have this. Ignoring the specified token map.",
            )
            .help(format!("remove `{}`", context.flag(key)))
            .fix(Safety::Safe, "remove the token map", context.remove(key)),
    )
}

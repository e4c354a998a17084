//! # SD033: specv2-topk
//!
//! The overlapped worker of 0.5.9 drafts chains only.
//!
//! ## What it does
//!
//! Looks for `SGLANG_ENABLE_SPEC_V2` with topk above 1 on 0.5.6 to 0.5.9.
//!
//! ## Why is this bad?
//!
//! The server does not start, or crashes in its first batches.
//!
//! ## What SGLang does
//!
//! 0.5.9: `Spec v2 currently only supports topk = 1 for speculative decoding.` 0.5.6 has no check
//! and crashes on tensor sizes.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! SGLANG_ENABLE_SPEC_V2=1 sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! SGLANG_ENABLE_SPEC_V2=1 sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! 0.5.4 to 0.5.10, of which those before 0.5.8 do not say so and fail with a shape (sglang#14077);
//! 0.5.11 falls back to the other worker, from 0.5.15.post1 on it runs.
//!
//! ## Source
//!
//! sglang issues #13352, #14077; PRs #26866, #26972, #27463.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD033",
    name: "specv2-topk",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const VARIABLE: &str = "SGLANG_ENABLE_SPEC_V2";

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let version = context.version();
    if !(V0_5_4..V0_5_11).contains(&version) {
        return None;
    }
    let variable = context.switched_on(VARIABLE)?;
    let topk = context.launch.count(Key::SpeculativeEagleTopk).filter(|topk| topk.value > 1)?;
    let message = format!("the overlapped worker of sglang {version} cannot draft with topk {}", topk.value);
    Some(
        Finding::new(topk.span, message, "chains only")
            .related(Some(variable), "asks for the overlapped worker")
            .sglang_says("Spec v2 currently only supports topk = 1 for speculative decoding.")
            .by_version()
            .help(format!("write `{}`, or take {VARIABLE} out", context.line(Key::SpeculativeEagleTopk, "1"))),
    )
}

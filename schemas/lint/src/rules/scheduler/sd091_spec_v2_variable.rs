//! # SD091: spec-v2-variable
//!
//! The variable that selected the overlapped worker is no longer read.
//!
//! ## What it does
//!
//! Looks for `SGLANG_ENABLE_SPEC_V2` from 0.5.15.post1 on.
//!
//! ## Why is this bad?
//!
//! It has no effect: the overlapped worker is the only one. Setting it to 0 does not avoid it.
//!
//! ## What SGLang does
//!
//! 0.5.15.post1 warns that it has been removed; in 0.5.23 nothing reads it.
//! `--disable-overlap-schedule` selects the synchronous path.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! SGLANG_ENABLE_SPEC_V2=1 sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --disable-overlap-schedule --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! 0.5.15.post1 and later.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`, `environ.py`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD091",
    name: "spec-v2-variable",
    severity: Severity::Info,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const VARIABLE: &str = "SGLANG_ENABLE_SPEC_V2";

fn check(context: &Context<'_>) -> Option<Finding> {
    let variable = context.launch.environment.get(VARIABLE)?;
    if context.version() < V0_5_15 || !context.resolved.speculative {
        return None;
    }
    let message = format!("sglang {} does not read {VARIABLE}", context.version());
    Some(
        Finding::new(variable.span, message, "does nothing")
            .related(context.span(Key::SpeculativeAlgorithm), "overlapped by default")
            .by_version()
            .help(format!("take it out; `{}` is what turns overlap off", context.flag(Key::DisableOverlapSchedule))),
    )
}

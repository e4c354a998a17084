//! # SD201: variable-not-read
//!
//! SGLang does not read this environment variable: a typo, or a variable of an older version.
//!
//! ## What it does
//!
//! Looks up the variables `SGLANG_…` of the launch's environment in a table of those that each
//! version reads. An unknown name is reported only if it resembles a known one, since plugins and
//! scripts have their own.
//!
//! ## Why is this bad?
//!
//! The setting has no effect.
//!
//! ## What SGLang does
//!
//! It ignores unknown variables. For some that are gone it warns, as `Environment variable
//! SGLANG_SCHEDULER_DECREASE_PREFILL_IDLE is deprecated.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! SGLANG_RAGGED_VERFIY_MODE=compact sglang serve --model-path target
//! ```
//!
//! ```launch bad version:0.5.23
//! SGLANG_PREFILL_DELAYER_MAX_DELAY_PASSES=20 sglang serve --model-path target
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! SGLANG_RAGGED_VERIFY_MODE=compact sglang serve --model-path target --prefill-delayer-max-delay-passes 20
//! ```
//!
//! ## Versions
//!
//! The variables were read from {sglang versions}. If the version is not stated, a variable that is
//! gone is only information. `SGLANG_ENABLE_SPEC_V2` has its own rule (SD091).
//!
//! ## Source
//!
//! sglang `environ.py` and all other Python files.

use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, variables::not_read};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD201",
    name: "variable-not-read",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    not_read(context, "SGLANG_", &["SGLANG_ENABLE_SPEC_V2"])
}

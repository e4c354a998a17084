//! # SD193: known-crash
//!
//! The server is known to crash with this configuration in these versions.
//!
//! ## What it does
//!
//! Looks the launch up in a table of crashes that were reported or read in the source: algorithm,
//! target, flags, GPU and versions of each.
//!
//! ## Why is this bad?
//!
//! The configuration passes the engine's own checks, but the engine crashes anyway: at start, or
//! hours later under load. If it happens at every start and the version is known, it is an error,
//! otherwise a warning.
//!
//! ## What SGLang does
//!
//! The finding quotes SGLang's message, and names the versions and the issues.
//!
//! ## Example
//!
//! ```launch bad version:0.5.19
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft \
//!   --disaggregation-mode decode --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ```launch bad version:0.5.16
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-adaptive --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.21
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft \
//!   --disaggregation-mode decode --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ```launch good version:0.5.16
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-adaptive --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 7
//! ```
//!
//! ## Versions
//!
//! Those of each row. If the version is not stated, a row is a warning that lists the versions with
//! the fault.
//!
//! ## Source
//!
//! `schemas/lint/src/rules/known/faults.json`, which names the issues of each row.

use schemas::diagnostic::Severity;

use crate::rules::{
    Applies, Context, Definition, Finding, RuleCheck,
    known::{Harm, met},
};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD193",
    name: "known-crash",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    met(context, Harm::Crash)
}

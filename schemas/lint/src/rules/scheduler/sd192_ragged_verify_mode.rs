//! # SD192: ragged-verify-mode
//!
//! `SGLANG_RAGGED_VERIFY_MODE` has an unknown value.
//!
//! ## What it does
//!
//! Compares the variable in the launch's environment with static, cap-accept and compact.
//!
//! ## Why is this bad?
//!
//! The server does not start with any algorithm, although only DSPARK uses the variable.
//!
//! ## What SGLang does
//!
//! `ValueError: invalid SGLANG_RAGGED_VERIFY_MODE='off'; expected one of 'static', 'cap-accept',
//! 'compact'`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! SGLANG_RAGGED_VERIFY_MODE=off sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! SGLANG_RAGGED_VERIFY_MODE=static sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! The variable was added in 0.5.16; read in 0.5.15 to 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/ragged_verify.py`, `speculative/spec_info.py`.

use schemas::{defaults::stated, diagnostic::Severity, flags::Key, text::shortened};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD192",
    name: "ragged-verify-mode",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const VARIABLE: &str = "SGLANG_RAGGED_VERIFY_MODE";

const MODES: [&str; 3] = ["static", "cap-accept", "compact"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let mode = context.launch.variable(VARIABLE)?;
    if MODES.contains(&mode.value) || !context.resolved.speculative || context.version() < V0_5_16 {
        return None;
    }
    let shown = shortened(mode.value);
    Some(
        Finding::new(mode.span, format!("`{shown}` is not a mode of ragged verification"), "not known")
            .related(context.span(Key::SpeculativeAlgorithm), "looks at the variable")
            .sglang_says(format!("invalid {VARIABLE}='{shown}'; expected one of 'static', 'cap-accept', 'compact'"))
            .by_version()
            .help(format!("write {VARIABLE}={}, which is the default", stated(VARIABLE, context.version())?)),
    )
}

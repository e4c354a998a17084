//! # SD190: simulated-acceptance
//!
//! Acceptance is simulated: the output has no meaning.
//!
//! ## What it does
//!
//! Looks for `SGLANG_SIMULATE_ACC_LEN` above 0 in the launch's environment.
//!
//! ## Why is this bad?
//!
//! Drafts are accepted whatever the target says. It is there to time rounds; a server that users or a trainer talk to returns
//! rubbish.
//!
//! ## What SGLang does
//!
//! It overwrites acceptance; in its default mode it emits token 100 again and again.
//!
//! ## Example
//!
//! ```launch bad version:0.5.15
//! SGLANG_SIMULATE_ACC_LEN=3 sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.15
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! All versions that know the variable.
//!
//! ## Source
//!
//! sglang `speculative/eagle_utils.py`.

use crate::{
    diagnostic::Severity,
    flags::Key,
    rules::{Applies, Check, Context, Finding, Rule},
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "SD190",
    name: "simulated-acceptance",
    severity: Severity::Error,
    applies: Applies::Sglang,
    file: include_str!("sd190_simulated_acceptance.rs"),
    check: Check::One(check),
};

const VARIABLE: &str = "SGLANG_SIMULATE_ACC_LEN";

fn check(context: &Context<'_>) -> Option<Finding> {
    let value = context.launch.variable(VARIABLE)?;
    let simulates = value.value.parse::<f64>().is_ok_and(|length| length > 0.0);
    if !simulates || !context.resolved.speculative {
        return None;
    }
    let message = format!("{VARIABLE} makes acceptance up: the output has no meaning");
    Some(
        Finding::new(value.span, message, "for timing only")
            .related(context.span(Key::SpeculativeAlgorithm), "drafts are accepted whatever they are")
            .help(format!("take {VARIABLE} out of the environment")),
    )
}

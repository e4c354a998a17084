//! # SD121: adaptive-steps
//!
//! The number of steps is none of those that adaptive speculation chooses from.
//!
//! ## What it does
//!
//! Looks at `--speculative-num-steps` with `--speculative-adaptive` and without a configuration of its own: the candidates
//! are then 0, 1, 3, 5 and 7.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `--speculative-num-steps=4 is not in the adaptive config candidate_steps [0, 1, 3, 5, 7]. Pass one of those values.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-adaptive --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-adaptive --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3
//! ```
//!
//! ## Versions
//!
//! Since the flag came; read in 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/adaptive_spec_params.py`.

use crate::{
    diagnostic::Severity,
    flags::Key,
    rules::{Applies, Check, Context, Finding, Rule},
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "SD121",
    name: "adaptive-steps",
    severity: Severity::Error,
    applies: Applies::Sglang,
    file: include_str!("sd121_adaptive_steps.rs"),
    check: Check::One(check),
};

/// The union of the default configuration's candidates.
const CANDIDATES: [usize; 5] = [0, 1, 3, 5, 7];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let adaptive = context.span(Key::SpeculativeAdaptive)?;
    let steps = context.launch.count(Key::SpeculativeNumSteps)?;
    if CANDIDATES.contains(&steps.value) || !context.is_absent(Key::SpeculativeAdaptiveConfig) {
        return None;
    }
    let given = steps.value;
    Some(
        Finding::new(steps.span, format!("adaptive speculation does not choose {given} steps"), "0, 1, 3, 5 or 7")
            .related(Some(adaptive), "chooses from its candidates")
            .engine_says(format!(
                "--speculative-num-steps={given} is not in the adaptive config candidate_steps [0, 1, 3, 5, 7]. Pass one \
                 of those values."
            ))
            .by_version(context)
            .help(format!("write `{}`", context.line(Key::SpeculativeNumSteps, "3"))),
    )
}

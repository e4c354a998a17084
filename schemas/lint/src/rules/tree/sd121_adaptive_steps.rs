//! # SD121: adaptive-steps
//!
//! The number of steps is not among the candidates of adaptive speculation.
//!
//! ## What it does
//!
//! Looks at `--speculative-num-steps` with `--speculative-adaptive` and without a separate
//! configuration: the candidates are then 0, 1, 3, 5 and 7 (without 5 up to 0.5.19, and without 0
//! up to 0.5.13).
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `--speculative-num-steps=4 is not in the adaptive config candidate_steps [0, 1, 3, 5, 7]. Pass
//! one of those values.`
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
//! The candidates were read in all versions from 0.5.12 to 0.5.23; the check exists from 0.5.13 on.
//!
//! ## Source
//!
//! sglang `speculative/adaptive_spec_params.py`.

use schemas::{diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD121",
    name: "adaptive-steps",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The union of the default configuration's candidates.
fn candidates(version: EngineVersion) -> &'static [usize] {
    if version >= V0_5_20 {
        &[0, 1, 3, 5, 7]
    } else if version >= V0_5_14 {
        &[0, 1, 3, 7]
    } else {
        &[1, 3, 7]
    }
}

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let adaptive = context.span(Key::SpeculativeAdaptive)?;
    let steps = context.launch.count(Key::SpeculativeNumSteps)?;
    let candidates = candidates(context.version());
    let listed = candidates.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let own = !context.is_absent(Key::SpeculativeAdaptiveConfig);
    if candidates.contains(&steps.value) || own || context.version() < V0_5_13 {
        return None;
    }
    let given = steps.value;
    Some(
        Finding::new(
            steps.span,
            format!("adaptive speculation does not choose {given} steps"),
            format!("one of {listed}"),
        )
        .related(Some(adaptive), "chooses from its candidates")
        .sglang_says(format!(
            "--speculative-num-steps={given} is not in the adaptive config candidate_steps [{listed}]. Pass one of \
                 those values."
        ))
        .by_version()
        .help(format!("write `{}`", context.line(Key::SpeculativeNumSteps, "3"))),
    )
}

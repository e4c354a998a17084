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
//! Drafts are accepted regardless of the target. The variable exists to time rounds; a server for
//! users or a trainer would return rubbish.
//!
//! ## What SGLang does
//!
//! It overwrites acceptance; in its default mode it emits token 100 over and over. DFLASH does not
//! read the variable before 0.5.17: timings there use real acceptance, and the finding is a
//! warning.
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
//! All versions that have the variable; of DFLASH, read in 0.5.13 to 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/eagle_utils.py`, `speculative/dflash_worker_v2.py`; PR #31603.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::V0_5_17};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD190",
    name: "simulated-acceptance",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const VARIABLE: &str = "SGLANG_SIMULATE_ACC_LEN";

fn check(context: &Context<'_>) -> Option<Finding> {
    let value = context.launch.variable(VARIABLE)?;
    let simulates = value.value.parse::<f64>().is_ok_and(|length| length > 0.0);
    if !simulates || !context.resolved.speculative {
        return None;
    }
    if context.algorithm() == Some(Algorithm::Dflash) && context.version() < V0_5_17 {
        let message = format!("DFLASH does not look at {VARIABLE} in this version: acceptance is real");
        return Some(
            Finding::new(value.span, message, "without effect")
                .related(context.span(Key::SpeculativeAlgorithm), "here")
                .help("use sglang 0.5.17 or later to time simulated acceptance, or take it out")
                .at_most(Severity::Warning),
        );
    }
    let message = format!("{VARIABLE} makes acceptance up: the output has no meaning");
    Some(
        Finding::new(value.span, message, "for timing only")
            .related(context.span(Key::SpeculativeAlgorithm), "drafts are accepted whatever they are")
            .help(format!("take {VARIABLE} out of the environment")),
    )
}

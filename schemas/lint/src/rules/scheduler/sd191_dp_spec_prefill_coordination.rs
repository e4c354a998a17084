//! # SD191: dp-spec-prefill-coordination
//!
//! The coordination of prefill and speculation among DP ranks does not run with this algorithm.
//!
//! ## What it does
//!
//! Looks for `SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION` in the launch's environment with an
//! algorithm other than EAGLE, EAGLE3 and (from 0.5.22 on) DSPARK, or with one MTP layer per step.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: DP spec/prefill coordination requires single-layer EAGLE, EAGLE3 or DSPARK`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION=1 sglang serve --model-path target --speculative-algorithm NGRAM \
//!   --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION=1 sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! The variable was added in 0.5.21; read in 0.5.20 to 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD191",
    name: "dp-spec-prefill-coordination",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const VARIABLE: &str = "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION";

fn check(context: &Context<'_>) -> Option<Finding> {
    let variable = context.switched_on(VARIABLE).filter(|_| context.version() >= V0_5_21)?;
    let algorithm = context.algorithm()?;
    let has_dspark = context.version() >= V0_5_22;
    let says = if has_dspark {
        "DP spec/prefill coordination requires single-layer EAGLE, EAGLE3 or DSPARK"
    } else {
        "DP spec/prefill coordination requires single-layer EAGLE or EAGLE3"
    };
    let (who, key) = match algorithm {
        Algorithm::Dspark if !has_dspark => (algorithm.name(), Key::SpeculativeAlgorithm),
        Algorithm::Eagle | Algorithm::Eagle3 | Algorithm::Dspark => {
            ("an MTP layer for each step", Some(Key::EnableMultiLayerEagle).filter(|key| context.launch.has(*key))?)
        }
        other => (other.name(), Key::SpeculativeAlgorithm),
    };
    Some(
        Finding::new(variable, format!("ranks cannot coordinate prefill and speculation with {who}"), "not with this")
            .related(context.span(key), "this")
            .sglang_says(says)
            .by_version()
            .help(format!("take {VARIABLE} out of the environment")),
    )
}

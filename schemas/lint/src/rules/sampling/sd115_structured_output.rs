//! # SD115: structured-output
//!
//! Structured output has hung or crashed the scheduler of this version under EAGLE.
//!
//! ## What it does
//!
//! Looks for `--grammar-backend`, which implies structured output, under EAGLE and EAGLE3 before
//! 0.5.16. The outlines backend is reported by NR07.
//!
//! ## Why is this bad?
//!
//! A request with a JSON schema or a constrained tool call can hang, or crash the scheduler
//! together with every request in flight.
//!
//! ## What SGLang does
//!
//! Several faults in how a grammar follows and rolls back drafts; plain requests run.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --grammar-backend xgrammar
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --grammar-backend xgrammar
//! ```
//!
//! ## Versions
//!
//! Reported from 0.4.3 to 0.5.14, the last of them as fixed in 0.5.16. Faults that need a certain
//! schema or parser may remain.
//!
//! ## Source
//!
//! sglang issues #3724, #9187, #18605, #24283, #29660.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD115",
    name: "structured-output",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The version that the last report names as fixed.
const REPAIRED: EngineVersion = EngineVersion::new(0, 5, 16);

fn check(context: &Context<'_>) -> Option<Finding> {
    context.algorithm().filter(|algorithm| matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3))?;
    let backend = context.launch.text(Key::GrammarBackend)?;
    let version = context.version();
    if matches!(backend.value, "none" | "outlines") || version >= REPAIRED {
        return None;
    }
    let message = format!("structured output can hang or end the scheduler under EAGLE in sglang {version}");
    Some(
        Finding::new(backend.span, message, "structured output")
            .related(context.span(Key::SpeculativeAlgorithm), "drafts that a grammar may reject")
            .by_version()
            .help("use sglang 0.5.16 or later, or try your schemas under load before you rely on them"),
    )
}

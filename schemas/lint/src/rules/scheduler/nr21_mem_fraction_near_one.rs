//! # NR21: mem-fraction-near-one
//!
//! The static fraction leaves no memory for the draft.
//!
//! ## What it does
//!
//! Looks for `--mem-fraction-static` of at least 0.95 with a draft model, if `--max-total-tokens`
//! does not limit the KV pool.
//!
//! ## Why is this bad?
//!
//! Weights and KV cache of the target fill the fraction; the draft's graphs, activations and
//! buffers must fit into the rest.
//!
//! ## What SGLang does
//!
//! Up to 0.5.12 the draft's model runner fails when it allocates its memory; later versions size
//! the KV cache after the draft, and run out of memory under load.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --mem-fraction-static 0.96 --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --speculative-draft-model-path draft --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --mem-fraction-static 0.85 --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --speculative-draft-model-path draft --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! An error up to 0.5.12.post1, a warning in later versions.
//!
//! ## Source
//!
//! sglang PR #3582 (comment), issue #36829.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR21",
    name: "mem-fraction-near-one",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Fractions from here on have failed.
const TOO_MUCH: f64 = 0.95;

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    // This number may limit the KV pool below the fraction, which is then not filled.
    if context.launch.has(Key::MaxTotalTokens) {
        return None;
    }
    let share =
        context.launch.number(Key::MemFractionStatic).filter(|share| (TOO_MUCH..=1.0).contains(&share.value))?;
    let message = format!("a static share of {} leaves no memory for the draft's buffers and graphs", share.value);
    let finding = Finding::new(share.span, message, "of the whole GPU")
        .related(context.span(Key::SpeculativeAlgorithm), "a second model in addition to the target")
        .by_version()
        .help(format!("write `{}` or less", context.line(Key::MemFractionStatic, "0.88")));
    Some(if context.version() > V0_5_12 { finding.at_most(Severity::Warning) } else { finding })
}

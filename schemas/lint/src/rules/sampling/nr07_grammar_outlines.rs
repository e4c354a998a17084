//! # NR07: grammar-outlines
//!
//! The outlines grammar backend cannot roll back rejected drafts.
//!
//! ## What it does
//!
//! Looks for `--grammar-backend outlines` together with any speculation.
//!
//! ## Why is this bad?
//!
//! A request with structured output (JSON schema, regular expression) fails; plain requests run.
//!
//! ## What SGLang does
//!
//! `OutlinesGrammar` has no rollback, and the verifier expects packed masks: the first structured
//! request ends the scheduler.
//!
//! ## Example
//!
//! ```launch bad version:0.5.12
//! sglang serve --model-path target --grammar-backend outlines --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --grammar-backend xgrammar --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang issue #24413.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR07",
    name: "grammar-outlines",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let backend = context.launch.text(Key::GrammarBackend).filter(|backend| backend.value == "outlines")?;
    if !context.resolved.speculative {
        return None;
    }
    let key = Key::GrammarBackend;
    Some(
        Finding::new(backend.span, "outlines cannot run under speculation: structured requests fail", "no rollback")
            .related(context.span(Key::SpeculativeAlgorithm), "drafts are rejected here")
            .help(format!("write `{}`, or llguidance", context.line(key, "xgrammar")))
            .fix(Safety::Unsafe, "use xgrammar", context.set(key, "xgrammar")),
    )
}

//! # NR08: dp-attention-old
//!
//! DP attention cannot run with EAGLE in versions before 0.4.7.
//!
//! ## What it does
//!
//! Looks for `--enable-dp-attention` with EAGLE, EAGLE3 or NEXTN before 0.4.7.
//!
//! ## Why is this bad?
//!
//! The server hangs at start or in the first batches.
//!
//! ## What SGLang does
//!
//! No check: ranks with and without work wait for each other.
//!
//! ## Example
//!
//! ```launch bad version:0.4.6
//! sglang serve --model-path target --tp-size 8 --dp-size 8 --enable-dp-attention --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.4.7
//! sglang serve --model-path target --tp-size 8 --dp-size 8 --enable-dp-attention --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Before 0.4.7, which contains PR #6081.
//!
//! ## Source
//!
//! sglang issues #4783, #4847, #6296; PR #6081.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR08",
    name: "dp-attention-old",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let place = context.span(Key::EnableDpAttention)?;
    let version = context.version();
    (version < V0_4_7).then(|| {
        Finding::new(place, format!("sglang {version} hangs with DP attention and speculation"), "not with a draft")
            .related(context.span(Key::SpeculativeAlgorithm), "drafts on every rank")
            .by_version()
            .help(format!("take `{}` out, or use sglang 0.4.7 or later", context.flag(Key::EnableDpAttention)))
    })
}

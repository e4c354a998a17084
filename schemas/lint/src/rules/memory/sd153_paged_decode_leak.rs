//! # SD153: paged-decode-leak
//!
//! Pages larger than one token leak under speculation in this version.
//!
//! ## What it does
//!
//! Looks for pages larger than one token with speculation in versions between 0.5.2 and 0.5.6.
//!
//! ## Why is this bad?
//!
//! Slots of rejected drafts are not freed. After hours the cache is full of unused slots, and the
//! engine runs out of memory.
//!
//! ## What SGLang does
//!
//! Nothing until the cache is full; then requests are retracted, and in the end it stops.
//!
//! ## Example
//!
//! ```launch bad version:0.5.5
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32 \
//!   --attention-backend fa3 --page-size 64
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.5
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32 \
//!   --attention-backend fa3 --page-size 1
//! ```
//!
//! ## Versions
//!
//! Reported on 0.5.5 and fixed by PR #13826, which 0.5.6 has; in which version after 0.5.2 it
//! started is unknown. With topk above 1 the same was seen on 0.4.7 (#7112), which SD029 reports.
//!
//! ## Source
//!
//! sglang issues #13741 and #7112, PR #13826.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD153",
    name: "paged-decode-leak",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let version = context.version();
    let page = context.resolved.page_size.as_ref().filter(|page| page.value > 1)?.value;
    (version > V0_5_2 && version < V0_5_6).then(|| {
        let message = format!("with pages of {page} tokens, slots of refused drafts leak in sglang {version}");
        Finding::new(context.value_place(Key::PageSize), message, "the cache fills up over hours")
            .related(context.span(Key::SpeculativeAlgorithm), "under speculation")
            .by_version()
            .help(format!("write `{}`, or use 0.5.6 or later", context.line(Key::PageSize, "1")))
    })
}

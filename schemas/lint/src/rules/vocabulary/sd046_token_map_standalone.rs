//! # SD046: token-map-standalone
//!
//! A token map is given for a STANDALONE draft, whose head is not cut to it.
//!
//! ## What it does
//!
//! Looks for `--speculative-token-map` under `--speculative-algorithm STANDALONE`.
//!
//! ## Why is this bad?
//!
//! The draft proposes ids of the whole vocabulary, and the map interprets them as positions in its
//! short list: wrong tokens, or an index out of range.
//!
//! ## What SGLang does
//!
//! It silently loads the map and applies it to the ids.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm STANDALONE --speculative-draft-model-path draft \
//!   --speculative-token-map freq_32768.pt --max-running-requests 16
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm STANDALONE --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//!
//! ## Versions
//!
//! All versions with STANDALONE.
//!
//! ## Source
//!
//! sglang `speculative/standalone_worker_v2.py`, `speculative/eagle_worker_v2.py` (followed in the
//! code, not run).

use schemas::{
    algorithm::Algorithm,
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD046",
    name: "token-map-standalone",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Standalone)?;
    let key = Key::SpeculativeTokenMap;
    let place = context.span(key)?;
    let message = "the token map is applied to a draft whose head is not cut to it: its ids become other tokens";
    Some(
        Finding::new(place, message, "not with STANDALONE")
            .related(context.span(Key::SpeculativeAlgorithm), "drafts from its whole vocabulary")
            .note("nothing is checked at startup: wrong tokens, or an index out of range on the device")
            .help(format!("remove `{}`", context.flag(key)))
            .fix(Safety::Unsafe, "remove the token map", context.remove(key)),
    )
}

//! # SD008: standalone-no-draft-path
//!
//! STANDALONE is requested without a draft model.
//!
//! ## What it does
//!
//! Looks for `--speculative-draft-model-path` under `--speculative-algorithm STANDALONE`.
//!
//! ## Why is this bad?
//!
//! The target drafts for itself: this doubles the memory, and each draft step costs as much as the
//! target step that it is meant to save.
//!
//! ## What SGLang does
//!
//! Nothing checks it; the loader falls back to the target's path.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm STANDALONE \
//!   --max-running-requests 32
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm STANDALONE \
//!   --speculative-draft-model-path meta-llama/Llama-3.2-1B-Instruct --max-running-requests 32
//! ```
//!
//! ## Versions
//!
//! All versions with STANDALONE.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py` (no check there; followed in the code, not run).

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, support::missing};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD008",
    name: "standalone-no-draft-path",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Standalone)?;
    let key = Key::SpeculativeDraftModelPath;
    if !context.is_absent(key) {
        return None;
    }
    let message =
        "STANDALONE needs a draft model, but none is given: the target is loaded a second time as its own draft";
    Some(
        missing(context, key, message)
            .related(context.span(Key::SpeculativeAlgorithm), "needs a draft model")
            .note("there is no error at startup, only twice the memory and no speedup")
            .help(format!("add `{}`", context.line(key, "SMALLER_MODEL_WITH_THE_SAME_VOCABULARY"))),
    )
}

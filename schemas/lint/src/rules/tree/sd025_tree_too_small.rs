//! # SD025: tree-too-small
//!
//! The tree has more steps than its draft tokens can reach.
//!
//! ## What it does
//!
//! With topk above 1, compares `--speculative-num-draft-tokens` with `--speculative-num-steps` + 1.
//!
//! ## Why is this bad?
//!
//! A path below the root has at most draft tokens − 1 nodes. Draft steps beyond that depth are
//! computed in every round but can never be verified.
//!
//! ## What SGLang does
//!
//! It runs; a comment in older versions says that the additional tokens "will definitely be
//! discarded".
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 6 --speculative-eagle-topk 2 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! The same tree in fewer steps, or more draft tokens:
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 2 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 6 --speculative-eagle-topk 2 --speculative-num-draft-tokens 16
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang 0.4.7 and 0.5.2 `server_args.py` (the comment).

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use super::GivenShape;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD025",
    name: "tree-too-small",
    severity: Severity::Warning,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let shape = GivenShape::from_context(context)?;
    if shape.topk < 2 || shape.num_draft_tokens < 2 || shape.num_draft_tokens > shape.num_steps {
        return None;
    }
    let key = Key::SpeculativeNumSteps;
    let reach = (shape.num_draft_tokens - 1).to_string();
    let message = format!(
        "{} steps cannot be reached by {} draft tokens: the tree is at most {reach} deep",
        shape.num_steps, shape.num_draft_tokens
    );
    Some(
        Finding::new(context.value_place(key), message, "drafted in vain beyond that")
            .related(context.span(Key::SpeculativeNumDraftTokens), "the root counts")
            .note("a candidate is only kept with all its ancestors, so the deeper ones never are")
            .help(format!(
                "write `{}` for the same tree, or at least {} draft tokens",
                context.line(key, &reach),
                shape.num_steps.saturating_add(1)
            ))
            .fix(Safety::Safe, "drop the steps that cannot be reached", context.set(key, &reach)),
    )
}

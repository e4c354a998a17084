//! # SD118: chat-template
//!
//! The draft was trained with the model's own chat template, but this launch sets another.
//!
//! ## What it does
//!
//! Looks for `--chat-template` with an EAGLE or EAGLE3 draft.
//!
//! ## Why is this bad?
//!
//! A head has learnt the text of its training: the template, the system prompt, whether the model
//! thinks first. With another template fewer of its tokens are accepted, especially at the start of
//! an answer. Nothing else changes.
//!
//! ## What SGLang does
//!
//! It runs.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --chat-template own.jinja
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! All.
//!
//! ## Source
//!
//! SpecForge issue #296; EAGLE issue #132.

use schemas::{algorithm::Algorithm, diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD118",
    name: "chat-template",
    severity: Severity::Info,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.algorithm().filter(|algorithm| matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3))?;
    let draft = context.span(Key::SpeculativeDraftModelPath)?;
    // slime sends token ids.
    let template = context.span(Key::ChatTemplate).filter(|_| context.launch.engine != Engine::Slime)?;
    Some(
        Finding::new(
            template,
            "fewer drafts are accepted where the draft was trained with another template",
            "another",
        )
        .related(Some(draft), "trained with one template")
        .help("use the template that the draft was trained with, and measure with your own prompts"),
    )
}

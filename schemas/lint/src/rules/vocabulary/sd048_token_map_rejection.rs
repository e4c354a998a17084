//! # SD048: token-map-rejection
//!
//! Rejection sampling needs draft and target to share one vocabulary.
//!
//! ## What it does
//!
//! Looks for `--speculative-use-rejection-sampling` with a token map, or with a draft of a reduced
//! vocabulary.
//!
//! ## Why is this bad?
//!
//! Rejection sampling compares the two distributions token by token.
//!
//! ## What SGLang does
//!
//! `ValueError: --speculative-use-rejection-sampling requires the draft and target to share one
//! vocab, …`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-use-rejection-sampling --max-running-requests 16 \
//!   --speculative-token-map map/freq_32768.pt --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-use-rejection-sampling --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Since the flag was added; read in 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/eagle_worker_v2.py`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD048",
    name: "token-map-rejection",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let flag = Key::SpeculativeUseRejectionSampling;
    let place = context.span(flag)?;
    let reduced = || {
        let draft = context.draft_config()?;
        draft.draft_vocab_size.filter(|own| draft.vocab_size.is_some_and(|all| *own < all))
    };
    let reason = match (context.span(Key::SpeculativeTokenMap), reduced()) {
        (Some(_), _) => "a token map leaves tokens out".to_owned(),
        (None, Some(own)) => format!("the draft proposes {own} tokens only"),
        (None, None) => return None,
    };
    Some(
        Finding::new(place, format!("rejection sampling needs one vocabulary, and {reason}"), "compares distributions")
            .related(context.span(Key::SpeculativeTokenMap), "only these are proposed")
            .sglang_says(
                "ValueError: --speculative-use-rejection-sampling requires the draft and target to share one vocab",
            )
            .on_facts("draft", context.draft)
            .help(format!("take `{}` out", context.flag(flag))),
    )
}

//! # SD162: rl-drift
//!
//! The MTP layer that drafts is loaded into the trainer but not trained.
//!
//! ## What it does
//!
//! Looks for slime's `--mtp-num-layers` without `--enable-mtp-training` where the engines draft
//! with the target's own MTP layer.
//!
//! ## Why is this bad?
//!
//! The target changes with every update but the layer does not, so fewer and fewer of its tokens
//! are accepted.
//!
//! ## What SGLang does
//!
//! slime loads the layer into Megatron and freezes it.
//!
//! ## Example
//!
//! ```launch bad
//! SGLANG_ARGS=(
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-speculative-num-steps 3
//!    --sglang-speculative-eagle-topk 1
//!    --sglang-speculative-num-draft-tokens 4
//!    --sglang-max-running-requests 64
//!    --sglang-attention-backend fa3
//!    --mtp-num-layers 1
//! )
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! SGLANG_ARGS=(
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-speculative-num-steps 3
//!    --sglang-speculative-eagle-topk 1
//!    --sglang-speculative-num-draft-tokens 4
//!    --sglang-max-running-requests 64
//!    --sglang-attention-backend fa3
//!    --mtp-num-layers 1
//!    --enable-mtp-training
//! )
//! ```
//!
//! ## Versions
//!
//! slime of August 2026. Watch `rollout/spec_accept_length`: a short run may end before it matters.
//!
//! ## Source
//!
//! slime `docs/en/examples/glm4.7-30B-A3B.md`, `docs/en/advanced/speculative-decoding.md`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD162",
    name: "rl-drift",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle)?;
    let layers = context.launch.count(Key::MtpNumLayers).filter(|layers| layers.value > 0)?;
    let (draft, train) = (Key::SpeculativeDraftModelPath, Key::EnableMtpTraining);
    let trains = context.launch.engine == Engine::Slime && context.is_absent(Key::DebugRolloutOnly);
    if !trains || !context.is_absent(draft) || !context.is_absent(train) {
        return None;
    }
    Some(
        Finding::new(layers.span, "the MTP layer stays as it is while the target is trained", "loaded and frozen")
            .related(context.span(Key::SpeculativeAlgorithm), "drafts with it")
            .note("the further the target moves, the fewer drafts are accepted")
            .help(format!("add `{}`, or watch rollout/spec_accept_length", context.flag(train))),
    )
}

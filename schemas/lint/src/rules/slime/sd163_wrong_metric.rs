//! # SD163: wrong-metric
//!
//! The acceptance rate that slime reports is 0 with this SGLang.
//!
//! ## What it does
//!
//! Looks for slime launches that report metrics (`--use-wandb`, `--use-tensorboard`) with SGLang
//! 0.5.12 or later, which includes the version that slime pins.
//!
//! ## Why is this bad?
//!
//! `rollout/spec_accept_rate` reads 0 although drafts are accepted. `rollout/spec_accept_length` is
//! right.
//!
//! ## What SGLang does
//!
//! It reports the counts under other names (`spec_num_correct_drafts`, `spec_num_proposed_drafts`)
//! than slime reads (`spec_accept_token_num`, `spec_draft_token_num`). Its rate is correct drafts /
//! proposed drafts; its length is tokens / rounds, including the bonus token.
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
//!    --use-wandb
//! )
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! SGLANG_ARGS=(
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-speculative-num-steps 3
//!    --sglang-speculative-eagle-topk 1
//!    --sglang-speculative-num-draft-tokens 4
//!    --sglang-max-running-requests 64
//!    --sglang-attention-backend fa3
//!    --use-wandb
//! )
//! ```
//!
//! ## Versions
//!
//! The names changed between 0.5.9 and 0.5.12.post1. slime of August 2026 reads the old ones.
//!
//! ## Source
//!
//! sglang `managers/tokenizer_manager.py`; slime `slime/utils/types.py`.

use schemas::{diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD163",
    name: "wrong-metric",
    severity: Severity::Info,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let key = [Key::UseWandb, Key::UseTensorboard].into_iter().find(|key| context.launch.has(*key))?;
    let renamed = Edge::new(V0_5_9, V0_5_12).side(context.version()) == Side::After;
    if context.launch.engine != Engine::Slime || !context.resolved.speculative || !renamed {
        return None;
    }
    Some(
        Finding::new(
            context.place(key),
            "slime reports an acceptance rate of 0 with this sglang",
            "look at the length",
        )
        .related(context.span(Key::SpeculativeAlgorithm), "speculation is on")
        .note("slime reads counts that sglang 0.5.12 renamed; rollout/spec_accept_length is right")
        .by_version(),
    )
}

//! # SD175: slime-yaml-override
//!
//! The file of `--sglang-config` overrides the flags, and its contents are not checked here.
//!
//! ## What it does
//!
//! Looks for `--sglang-config` together with speculation flags.
//!
//! ## Why is this bad?
//!
//! A group's `overrides` take precedence over `--sglang-*`, and an unknown key is dropped with only
//! a line in the log: the flags given here may not be the ones that run.
//!
//! ## What SGLang does
//!
//! slime applies the overrides last.
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
//!    --sglang-config groups.yaml
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
//! )
//! ```
//!
//! ## Versions
//!
//! slime of August 2026.
//!
//! ## Source
//!
//! slime `slime/backends/sglang_utils/sglang_config.py`, `sglang_engine.py`.

use schemas::{diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD175",
    name: "slime-yaml-override",
    severity: Severity::Info,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let file = context.span(Key::SglangConfig)?;
    (context.launch.engine == Engine::Slime && context.resolved.speculative).then(|| {
        Finding::new(file, "the overrides in this file override the flags and were not checked", "wins")
            .related(context.span(Key::SpeculativeAlgorithm), "may be overridden")
            .note("a key that sglang does not know is dropped with a line in the log only")
    })
}

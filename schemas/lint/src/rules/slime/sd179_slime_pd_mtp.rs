//! # SD179: slime-pd-mtp
//!
//! MTP with separate prefill and decode engines has needed slime's own patches.
//!
//! ## What it does
//!
//! Looks for `--sglang-disaggregation-mode` with EAGLE or NEXTN in a slime script.
//!
//! ## Why is this bad?
//!
//! The first proposals that a prefill engine passes on could be out of range and crash the decode
//! engine (illegal memory access).
//!
//! ## What SGLang does
//!
//! slime's image contains patches that keep the proposals in range; an engine without them fails.
//!
//! ## Example
//!
//! ```launch bad
//! SGLANG_ARGS=(
//!    --sglang-disaggregation-mode decode
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-max-running-requests 64
//!    --sglang-attention-backend fa3
//! )
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! SGLANG_ARGS=(
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-max-running-requests 64
//!    --sglang-attention-backend fa3
//! )
//! ```
//!
//! ## Versions
//!
//! slime's patches for v0.5.15.post1 still have them.
//!
//! ## Source
//!
//! slime `docker/patch`.

use schemas::{diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD179",
    name: "slime-pd-mtp",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let mode = context.launch.disaggregation_mode()?;
    (context.launch.engine == Engine::Slime).then(|| {
        Finding::new(mode.span, "MTP over prefill and decode engines needs slime's patched sglang", "patched engines")
            .related(context.span(Key::SpeculativeAlgorithm), "first proposals are handed over")
            .help("run slime's own image, whose patches clamp the proposals")
    })
}

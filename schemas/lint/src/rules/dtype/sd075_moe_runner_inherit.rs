//! # SD075: moe-runner-inherit
//!
//! The draft's experts cannot run on `flashinfer_trtllm`.
//!
//! ## What it does
//!
//! Looks for `--speculative-moe-runner-backend flashinfer_trtllm` in the versions that reject it.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `AssertionError: Currently speculative MoE runner backend cannot be flashinfer_trtllm for risk
//! in some draft models.` Without the flag the draft uses the target's backend, or `auto` if that
//! is `flashinfer_trtllm`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --speculative-moe-runner-backend flashinfer_trtllm
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --moe-runner-backend flashinfer_trtllm
//! ```
//!
//! ## Versions
//!
//! Read in 0.5.9. Whether the other versions between 0.5.6 and 0.5.12.post1 reject it is unknown,
//! so a finding there is a warning.
//!
//! ## Source
//!
//! sglang 0.5.9 `server_args.py`; `arg_groups/overrides.py` for later versions.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD075",
    name: "moe-runner-inherit",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let key = Key::SpeculativeMoeRunnerBackend;
    let backend = context.launch.text(key).filter(|backend| backend.value == "flashinfer_trtllm")?;
    let version = context.version();
    let (came, went) = (Edge::new(V0_5_6, V0_5_9), Edge::new(V0_5_9, V0_5_12));
    if came.side(version) == Side::Before || went.side(version) == Side::After {
        return None;
    }
    let doubt = came.doubt(version).or_else(|| went.doubt(version));
    let known = doubt.is_none();
    let finding = Finding::new(backend.span, "the draft's experts cannot run on flashinfer_trtllm", "not for a draft")
        .sglang_says(
            "AssertionError: Currently speculative MoE runner backend cannot be flashinfer_trtllm for risk in some draft \
             models.",
        )
        .maybe_note(doubt)
        .by_version()
        .help(format!("remove `{}`: the draft takes a backend that it can run on", context.flag(key)))
        .fix(Safety::Unsafe, "let sglang choose", context.remove(key));
    Some(if known { finding } else { finding.at_most(Severity::Warning) })
}

//! # SD108: rocm-greedy
//!
//! On this device drafts are verified greedily, regardless of a request's temperature.
//!
//! ## What it does
//!
//! Looks for speculation on `--device cpu` or `xpu`, and on AMD GPUs if the launch implies them:
//! the attention backends `aiter` and `wave`, or `SGLANG_USE_AITER` in the environment. Rejection
//! sampling, requested or turned on by the engine, is fine.
//!
//! ## Why is this bad?
//!
//! Temperature and top-p have no effect: every answer is the greedy one. Reinforcement learning
//! then has nothing to learn from.
//!
//! ## What SGLang does
//!
//! The sampling kernel of verification exists for CUDA only. In 0.5.23 rejection sampling is turned
//! on automatically on AMD GPUs for EAGLE chains that draft from the whole vocabulary.
//!
//! ## Example
//!
//! ```launch bad version:0.5.15.post1
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend aiter \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.15.post1
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend aiter \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --speculative-use-rejection-sampling
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`, pull request #31214.

use schemas::{algorithm::Algorithm, diagnostic::Severity, engines::Engine, flags::Key, text::Span};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD108",
    name: "rocm-greedy",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Backends that run on AMD's GPUs only.
const OF_AMD: [&str; 2] = ["aiter", "wave"];

/// Set on AMD's GPUs only.
const VARIABLE: &str = "SGLANG_USE_AITER";

fn check(context: &Context<'_>) -> Option<Finding> {
    // spectune's own engine samples on every device.
    let algorithm = context.algorithm().filter(|_| context.launch.engine != Engine::Spectune)?;
    let (place, device) = device(context)?;
    let key = Key::SpeculativeUseRejectionSampling;
    let turned_on = context.launch.has(key) || context.launch.has(Key::SpeculativeUseBlockVerification);
    // This depends on the vocabularies, which may be unknown.
    let by_itself = device == "an AMD GPU" && algorithm == Algorithm::Eagle && context.version() >= V0_5_23;
    if turned_on || by_itself {
        return None;
    }
    let message = format!("drafts are verified greedily on {device}: temperature and top-p have no effect");
    let finding = Finding::new(place, message, "no sampling under speculation")
        .related(context.span(Key::SpeculativeAlgorithm), "this verifies")
        .by_version();
    let samples = context.version() >= V0_5_15 && matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3);
    Some(if samples {
        finding.help(format!("add `{}` (chains over one vocabulary), or send greedy requests", context.flag(key)))
    } else {
        finding.help("send greedy requests, or run without speculation")
    })
}

/// A device without the sampling kernel, with the span that implies it.
fn device(context: &Context<'_>) -> Option<(Span, &'static str)> {
    let launch = context.launch;
    match launch.text(Key::Device).map(|device| (device.span, device.value)) {
        Some((place, "cpu")) => return Some((place, "a CPU")),
        Some((place, "xpu")) => return Some((place, "XPU")),
        _ => {}
    }
    let backends = [Key::AttentionBackend, Key::DecodeAttentionBackend];
    let backend = backends.into_iter().filter_map(|key| launch.text(key)).find(|name| OF_AMD.contains(&name.value));
    let variable = || launch.variable(VARIABLE).filter(|value| !matches!(value.value, "" | "0" | "false"));
    backend
        .map(|backend| backend.span)
        .or_else(|| variable().map(|value| value.span))
        .map(|place| (place, "an AMD GPU"))
}

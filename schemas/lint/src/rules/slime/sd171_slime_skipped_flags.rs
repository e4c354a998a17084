//! # SD171: slime-skipped-flags
//!
//! slime does not pass this flag on: it sets the value itself.
//!
//! ## What it does
//!
//! Looks for `--sglang-` before flags that slime does not register: the model path, tensor
//! parallelism, ports, ranks, seeds and the like.
//!
//! ## Why is this bad?
//!
//! The flag is unknown to slime's parser and is left to Megatron, or ignored. miles, a descendant
//! of slime, registers `--sglang-tp-size` but overwrites it: with miles, or if it is unclear which
//! of the two is used, a number that differs from the one that runs is a warning.
//!
//! ## What SGLang does
//!
//! slime derives them: tensor parallelism is `--rollout-num-gpus-per-engine` over the pipeline
//! size, the model is `--hf-checkpoint`.
//!
//! ## Example
//!
//! ```launch bad
//! SGLANG_ARGS=(
//!    --sglang-random-seed 4
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
//!    --rollout-num-gpus-per-engine 4
//!    --sglang-speculative-algorithm EAGLE
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
//! slime `slime/backends/sglang_utils/arguments.py`; miles
//! `miles/backends/sglang_utils/arguments.py`.

use launch::Argument;
use schemas::{diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD171",
    name: "slime-skipped-flags",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

/// Flags that slime does not register, and what sets them instead.
const SKIPPED: [(&str, &str); 15] = [
    ("model-path", "`--hf-checkpoint`"),
    ("config", "`--sglang-config` for server groups"),
    ("trust-remote-code", "slime, which turns it on"),
    ("random-seed", "slime's own seed"),
    ("enable-memory-saver", "`--offload-rollout`"),
    ("tp-size", "`--rollout-num-gpus-per-engine` over the pipeline size"),
    ("tensor-parallel-size", "`--rollout-num-gpus-per-engine` over the pipeline size"),
    ("port", "slime"),
    ("nnodes", "slime"),
    ("node-rank", "slime"),
    ("dist-init-addr", "slime"),
    ("gpu-id-step", "slime"),
    ("base-gpu-id", "slime"),
    ("nccl-port", "slime"),
    ("skip-server-warmup", "slime, which turns it on"),
];

fn check(context: &Context<'_>) -> Vec<Finding> {
    if context.launch.engine != Engine::Slime {
        return Vec::new();
    }
    context.launch.arguments.iter().filter_map(|argument| look(context, argument)).collect()
}

/// Flags that miles, a descendant of slime, does register.
const OF_MILES: [&str; 2] = ["tp-size", "tensor-parallel-size"];

fn look(context: &Context<'_>, argument: &Argument) -> Option<Finding> {
    let written = argument.flag.value.as_str();
    let name = written.strip_prefix("--sglang-")?;
    // Slime uses this flag name for something else.
    let (_, setter) = SKIPPED.iter().find(|(skipped, _)| *skipped == name && name != "config")?;
    if OF_MILES.contains(&name) {
        return tensor_parallel(context, argument, setter);
    }
    let message = format!("`{written}` never reaches the engine: it is set by {setter}");
    Some(Finding::new(argument.flag.span, message, "not passed on").help(format!("take it out; it is set by {setter}")))
}

/// slime does not register tensor parallelism; miles accepts and overwrites it. It is unknown which
/// of the two starts the engine, so only a size that differs from the one that will run is
/// reported.
fn tensor_parallel(context: &Context<'_>, argument: &Argument, setter: &str) -> Option<Finding> {
    let written = argument.flag.value.as_str();
    let own: Option<usize> = argument.known().and_then(|value| value.parse().ok());
    let gpus = context.launch.count(Key::RolloutNumGpusPerEngine);
    let stages = context.launch.count(Key::PpSize).map_or(1, |stages| stages.value.max(1));
    let runs = gpus.map(|gpus| gpus.value / stages);
    if own.is_some() && own == runs {
        return None;
    }
    let message = format!("`{written}` does not decide: tensor parallelism is set by {setter}");
    Some(
        Finding::new(argument.flag.span, message, "overwritten, or not read")
            .related(gpus.map(|gpus| gpus.span), "this decides")
            .at_most(if own.is_some() { Severity::Warning } else { Severity::Info })
            .note("slime does not register it; miles does, and overwrites it")
            .help(format!("take it out; it is set by {setter}")),
    )
}

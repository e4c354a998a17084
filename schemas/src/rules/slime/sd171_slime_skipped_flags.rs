//! # SD171: slime-skipped-flags
//!
//! slime does not pass this flag on: it sets it itself.
//!
//! ## What it does
//!
//! Looks for `--sglang-` in front of flags that slime does not register: the model path, tensor parallelism, ports, ranks,
//! seeds and the like.
//!
//! ## Why is this bad?
//!
//! The word is unknown to slime's parser and is left to Megatron, or ignored.
//!
//! ## What SGLang does
//!
//! slime derives them: tensor parallelism is `--rollout-num-gpus-per-engine` over the pipeline size, the model is
//! `--hf-checkpoint`. miles takes `--sglang-tp-size` and replaces its value by `--rollout-num-gpus-per-engine`; where the text
//! does not tell the two apart, the finding is a warning.
//!
//! ## Example
//!
//! ```launch bad
//! SGLANG_ARGS=(
//!    --sglang-tp-size 4
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
//! slime `slime/backends/sglang_utils/arguments.py`; miles `miles/backends/sglang_utils/arguments.py`.

use crate::{
    diagnostic::Severity,
    flags::Key,
    launch::{Argument, Engine, Launch, Launcher},
    rules::{Applies, Check, Context, Finding, Rule},
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "SD171",
    name: "slime-skipped-flags",
    severity: Severity::Error,
    applies: Applies::Sglang,
    file: include_str!("sd171_slime_skipped_flags.rs"),
    check: Check::Several(check),
};

/// Flags that slime does not register, and what sets them.
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
    let look = |argument| look(context.launch, argument);
    context.launch.arguments.iter().filter_map(look).collect()
}

fn look(launch: &Launch, argument: &Argument) -> Option<Finding> {
    let written = argument.flag.value.as_str();
    let name = written.strip_prefix("--sglang-")?;
    // Slime has a flag of this very name for something else.
    let (_, setter) = SKIPPED.iter().find(|(skipped, _)| *skipped == name && name != "config")?;
    let of_miles_too = matches!(name, "tp-size" | "tensor-parallel-size");
    // miles takes the flag, and gives it the value of another.
    if of_miles_too
        && launch.launcher != Launcher::Slime
        && (launch.launcher == Launcher::Miles || agrees(launch, argument))
    {
        return None;
    }
    let message = format!("`{written}` never reaches the engine: it is set by {setter}");
    let found = Finding::new(argument.flag.span, message, "not passed on");
    let found = found.help(format!("take it out; it is set by {setter}"));
    Some(if launch.launcher == Launcher::Slime { found } else { found.at_most(Severity::Warning) })
}

/// Whether a flag for tensor parallelism says what slime and miles set anyway.
fn agrees(launch: &Launch, argument: &Argument) -> bool {
    let given = argument.values.first().and_then(|value| value.value.known());
    given.is_some() && launch.text(Key::RolloutNumGpusPerEngine).map(|value| value.value) == given
}

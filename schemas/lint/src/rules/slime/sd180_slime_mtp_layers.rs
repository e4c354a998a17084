//! # SD180: slime-mtp-layers
//!
//! MTP training without MTP layers.
//!
//! ## What it does
//!
//! Looks for slime's `--enable-mtp-training` without `--mtp-num-layers`, if the whole command line
//! of the trainer is visible.
//!
//! ## Why is this bad?
//!
//! slime does not start. The layers have to be in the checkpoint too: convert it to torch_dist with
//! `--mtp-num-layers 1` as well.
//!
//! ## What SGLang does
//!
//! slime asserts: `mtp_num_layers must be set when enable_mtp_training is set`.
//!
//! ## Example
//!
//! ```launch bad
//! python3 train.py --enable-mtp-training --sglang-speculative-algorithm EAGLE --sglang-speculative-num-steps 3 \
//!   --sglang-speculative-eagle-topk 1 --sglang-speculative-num-draft-tokens 4 --sglang-max-running-requests 64 \
//!   --sglang-attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! python3 train.py --enable-mtp-training --mtp-num-layers 1 --sglang-speculative-algorithm EAGLE --sglang-speculative-num-steps 3 \
//!   --sglang-speculative-eagle-topk 1 --sglang-speculative-num-draft-tokens 4 --sglang-max-running-requests 64 \
//!   --sglang-attention-backend fa3
//! ```
//!
//! ## Versions
//!
//! slime of August 2026.
//!
//! ## Source
//!
//! slime `slime/utils/arguments.py`, `docs/en/advanced/speculative-decoding.md`.

use launch::{Argument, Syntax};
use schemas::{diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD180",
    name: "slime-mtp-layers",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let (train, layers) = (Key::EnableMtpTraining, Key::MtpNumLayers);
    let place = context.span(train)?;
    // Flags alone are an excerpt, and model arguments usually come from one of slime's files, by a
    // word such as `${MODEL_ARGS[@]}`.
    let launch = context.launch;
    let excerpt = launch.arguments.iter().any(|argument| argument.span.join(launch.anchor) == argument.span);
    let whole = launch.syntax == Syntax::CommandLine && !excerpt && !launch.arguments.iter().any(stands_for_others);
    let none = match context.launch.has(layers) {
        true => context.launch.integer(layers).is_some_and(|layers| layers.value <= 0),
        false => whole && context.is_absent(layers),
    };
    (context.launch.engine == Engine::Slime && none).then(|| {
        Finding::new(place, "MTP training is on and the trained model has no MTP layer", "trains nothing")
            .related(context.span(layers), "none")
            .engine_says(Engine::Slime, "mtp_num_layers must be set when enable_mtp_training is set")
            .help(format!(
                "{} `{}`, here and where the checkpoint is converted",
                context.add_or_write(layers),
                context.line(layers, "1")
            ))
    })
}

fn stands_for_others(argument: &Argument) -> bool {
    argument.is_positional() && argument.values.iter().any(|word| word.value.known().is_none())
}

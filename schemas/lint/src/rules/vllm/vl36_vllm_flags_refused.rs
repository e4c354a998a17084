//! # VL36: vllm-flags-refused
//!
//! vLLM refuses these flags together, or this number with that one, and does not start.
//!
//! ## What it does
//!
//! Looks the launch up in a table of the conditions that vLLM checks at start: sizes of batches,
//! parallelism, experts, adapters, the scheduler. Conditions of the speculative configuration have
//! rules of their own.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What vLLM does
//!
//! The finding quotes its message.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --max-num-batched-tokens 128 --max-num-seqs 256
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --tensor-parallel-size 8 --enable-eplb
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve --port 8000 target --served-model-name name
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --enable-auto-tool-choice
//! ```
//!
//! ```launch bad version:0.31.0
//! vllm serve target --async-scheduling --speculative-config '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --max-num-batched-tokens 2048 --max-num-seqs 256
//! ```
//!
//! ```launch good version:0.33.0
//! vllm serve target -tp 8 -ep --enable-eplb
//! ```
//!
//! ## Versions
//!
//! Those of each row, read in 18 versions from 0.8.5 to 0.33.0. If the version is not stated, a
//! condition that some versions lack is a warning.
//!
//! ## Source
//!
//! vLLM `config/` and `engine/arg_utils.py`; the rows are in
//! `schemas/lint/src/rules/refused/vllm.json`.

use launch::{Argument, Syntax};
use schemas::{diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, refused::refused};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL36",
    name: "vllm-flags-refused",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::Several(check),
};

/// The first version that was read and refuses a model after flags.
const MODEL_FIRST: EngineVersion = EngineVersion::new(0, 17, 1);

fn check(context: &Context<'_>) -> Vec<Finding> {
    refused(context).into_iter().chain(name_without_model(context)).collect()
}

/// A name for the model, whose own place is not before all flags.
fn name_without_model(context: &Context<'_>) -> Option<Finding> {
    let launch = context.launch;
    let name = launch.argument("served-model-name")?;
    let is_serve = launch.program.last().and_then(|word| word.value.known()) == Some("serve");
    let is_before = |argument: &Argument| argument.is_positional();
    let by_flag = launch.argument("model").is_some() || launch.has(Key::Config);
    let is_complete = launch.syntax == Syntax::CommandLine && launch.callee.is_none() && launch.is_complete();
    if context.version() < MODEL_FIRST || !is_serve || by_flag || !is_complete || is_before(launch.arguments.first()?) {
        return None;
    }
    Some(
        Finding::new(name.flag.span, "vllm serve takes a name for the model only after the model itself", "refused")
            .vllm_says(
                "ValueError: `model` should be provided as the first positional argument when using `vllm serve`.",
            )
            .by_version()
            .help("write the model right after `vllm serve`"),
    )
}

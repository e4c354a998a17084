//! # SD170: slime-prefix
//!
//! A flag for the engine lacks slime's prefix.
//!
//! ## What it does
//!
//! Looks for flags that start with `--speculative-` in a slime launch.
//!
//! ## Why is this bad?
//!
//! slime passes on flags that start with `--sglang-`. A flag without this prefix never reaches the
//! engine, which then runs without it.
//!
//! ## What SGLang does
//!
//! It does not see the flag. slime's parser for the engine leaves it to Megatron's parser. An early
//! version of slime's guide printed `--speculative-draft-model-path` this way.
//!
//! ## Example
//!
//! ```launch bad
//! SGLANG_ARGS=(
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-speculative-num-steps 3
//!    --sglang-speculative-eagle-topk 1
//!    --sglang-speculative-num-draft-tokens 4
//!    --speculative-draft-model-path /your/draft/model/path
//!    --sglang-max-running-requests 128
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
//!    --sglang-speculative-draft-model-path /your/draft/model/path
//!    --sglang-max-running-requests 128
//! )
//! ```
//!
//! ## Versions
//!
//! All.
//!
//! ## Source
//!
//! slime `slime/backends/sglang_utils/arguments.py`; its guide was corrected in commit 277cb229.

use launch::Argument;
use schemas::{
    diagnostic::{Edit, Safety, Severity},
    engines::Engine,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD170",
    name: "slime-prefix",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    if context.launch.engine != Engine::Slime {
        return Vec::new();
    }
    context.launch.arguments.iter().filter_map(look).collect()
}

fn look(argument: &Argument) -> Option<Finding> {
    let written = argument.flag.value.as_str();
    let name = written.strip_prefix("--").filter(|name| name.starts_with("speculative-"))?;
    let prefixed = format!("--sglang-{name}");
    let message = format!("`{written}` never reaches the engine: slime passes on what begins with `--sglang-`");
    // Flag and value in one quoted word have no separate spans.
    let tied = argument.values.iter().any(|value| value.span == argument.flag.span);
    let edits = if tied { Vec::new() } else { vec![Edit { span: argument.flag.span, replacement: prefixed.clone() }] };
    Some(Finding::new(argument.flag.span, message, "no prefix").help(format!("write `{prefixed}`")).fix(
        Safety::Safe,
        "write slime's prefix",
        edits,
    ))
}

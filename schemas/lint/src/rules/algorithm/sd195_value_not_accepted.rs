//! # SD195: value-not-accepted
//!
//! The parser of this version rejects a flag's value.
//!
//! ## What it does
//!
//! Compares the values of each flag with the list and the type that the version's parser registers.
//! If the version is not stated, a value that an older version takes, with every flag of the
//! launch, is information.
//!
//! ## Why is this bad?
//!
//! The server does not start. It is the most common failure that needs no model: a value of another
//! engine or another version, or a typo.
//!
//! ## What SGLang does
//!
//! argparse stops: `error: argument --kv-cache-dtype: invalid choice: 'fp8' (choose from 'auto',
//! 'fp8_e5m2', …)`. For lists that plugins can extend (attention backends, quantisation methods,
//! load formats and some others) it is a warning.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --kv-cache-dtype fp8 --speculative-algorithm EAGLE --speculative-num-steps 3 \
//!   --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
//! ```
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --attention-backend dsa --speculative-algorithm EAGLE --speculative-num-steps 3 \
//!   --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --kv-cache-dtype fp8_e4m3 --speculative-algorithm EAGLE --speculative-num-steps 3 \
//!   --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
//! ```
//!
//! ## Versions
//!
//! The lists were read from {sglang versions}. Algorithms are checked by SD001.
//!
//! ## Source
//!
//! sglang `server_args.py`, `arg_groups/fields/`, `arg_groups/choices.py`.

use launch::Argument;
use schemas::{
    diagnostic::Severity,
    engines::Engine,
    flags::{self, Key},
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, accepted::refused};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD195",
    name: "value-not-accepted",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

/// Slime's own flags that start like the ones that it passes on.
const SLIMES_OWN: [&str; 3] = ["config", "router-", "server-concurrency"];

fn check(context: &Context<'_>) -> Vec<Finding> {
    if context.launch.engine == Engine::Spectune {
        return Vec::new();
    }
    context.launch.arguments.iter().filter_map(|argument| look(context, argument)).collect()
}

fn look(context: &Context<'_>, argument: &Argument) -> Option<Finding> {
    let slime = context.launch.engine == Engine::Slime;
    let name: &str = &context.launch.engine.flag_name(&argument.flag.value)?;
    let is_other = argument.key == Some(Key::SpeculativeAlgorithm)
        || (slime && SLIMES_OWN.iter().any(|own| name.starts_with(own)));
    if is_other || argument.is_positional() {
        return None;
    }
    refused(context, flags::sglang(), argument, name)
}

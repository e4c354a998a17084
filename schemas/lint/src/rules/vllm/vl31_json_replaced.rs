//! # VL31: json-replaced
//!
//! Keys given one by one replace the JSON of the same flag instead of adding to it.
//!
//! ## What it does
//!
//! Looks for a flag that is given both as JSON and key by key, as `--speculative-config '{…}'` with
//! `--speculative-config.method`.
//!
//! ## Why is this bad?
//!
//! vLLM collects the single keys in one object and appends it to the command line, where it
//! replaces the JSON: every key that only the JSON gives is lost. A speculative configuration that
//! is left without method and model is an error.
//!
//! ## What vLLM does
//!
//! The last value counts, which is the object of the single keys. The engine prints no message.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}' \
//!   --speculative-config.num_speculative_tokens 2
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --compilation-config '{"cudagraph_mode": "FULL"}' --compilation-config.max_cudagraph_capture_size 64
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
//! ```
//!
//! `--spec-method`, `--spec-model` and `--spec-tokens` are other flags, and are added to the JSON:
//!
//! ```launch good version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp"}' --spec-tokens 2
//! ```
//!
//! ## Versions
//!
//! Since keys can be given one by one; read in 0.10.2 to 0.33.0.
//!
//! ## Source
//!
//! vLLM `utils/argparse_utils.py`, `parse_args`.

use launch::Argument;
use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL31",
    name: "json-replaced",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let arguments = context.launch.arguments.iter().filter(|argument| !argument.in_branch);
    let whole = arguments.filter(|argument| argument.flag.value.starts_with("--") && key(argument).is_none());
    whole.filter_map(|whole| replaced(context, whole)).collect()
}

fn replaced(context: &Context<'_>, whole: &Argument) -> Option<Finding> {
    let name = flag(whole);
    let own = |argument: &&Argument| !argument.in_branch && flag(argument) == name && key(argument).is_some();
    let keys: Vec<&Argument> = context.launch.arguments.iter().filter(own).collect();
    let first = keys.first()?;
    let message = format!("`{}` replaces this `{}`: the keys of its JSON are lost", first.flag.value, whole.flag.value);
    let finding = Finding::new(whole.span, message, "not used")
        .related(Some(first.span), "this counts")
        .help("write all keys in the JSON, or all of them one by one");
    if name == "--speculative-config" && lacks_draft(context, &keys) {
        return Some(
            finding.vllm_says("ValueError: num_speculative_tokens was provided but without speculative model."),
        );
    }
    Some(finding.at_most(Severity::Warning))
}

/// Whether the single keys, and the flags that are added to them, give a number of tokens but
/// neither method nor model.
fn lacks_draft(context: &Context<'_>, keys: &[&Argument]) -> bool {
    let gives = |name: &str| keys.iter().any(|argument| key(argument).is_some_and(|key| key.replace('-', "_") == name));
    let apart = ["spec-method", "spec-model"].iter().any(|flag| context.launch.argument(flag).is_some());
    gives("num_speculative_tokens") && !gives("method") && !gives("model") && !apart && context.launch.is_complete()
}

/// A flag's name with dashes, without a key.
fn flag(argument: &Argument) -> String {
    let name = argument.flag.value.split('.').next().unwrap_or_default();
    name.replace('_', "-")
}

/// The key of a flag's JSON.
fn key(argument: &Argument) -> Option<&str> {
    argument.flag.value.split_once('.').map(|(_, key)| key)
}

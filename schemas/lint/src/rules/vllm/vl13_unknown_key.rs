//! # VL13: unknown-key
//!
//! This version of vLLM does not have the key, or none has.
//!
//! ## What it does
//!
//! Looks for keys of the speculative configuration that vLLM, or this version of it, does not have.
//!
//! ## Why is this bad?
//!
//! vLLM does not start: it rejects unknown keys, and also `tensor_parallel_size`, which is a flag
//! of the target.
//!
//! ## What vLLM does
//!
//! `1 validation error for SpeculativeConfig: Unexpected keyword argument`, or
//! `'tensor_parallel_size' is not a valid argument in the speculative_config. Please pass
//! 'draft_tensor_parallel_size' instead.`
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_token": 3}'
//! ```
//!
//! ```launch bad
//! vllm serve target --spec-method eagle3 --spec-model draft --spec-tokens 3 --speculative-config.tensor_parallel_size 1
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3, "disable_by_batch_size": 16}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
//! ```
//!
//! Dashes count as underscores:
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "mtp", "num-speculative-tokens": 3}'
//! ```
//!
//! ## Versions
//!
//! The keys were read from {vllm versions}. Before 0.10.0 this is a warning, and so is a name that
//! resembles no known one: an unread version, or a fork, may have it.
//!
//! ## Source
//!
//! vLLM `config/speculative.py`, `config/utils.py` and `engine/arg_utils.py` of 0.33.0.

use launch::VllmKey;
use schemas::{
    diagnostic::Severity,
    engines::Engine,
    flags::{self, Speculative},
    text::{distance, shortened},
    version::EngineVersion,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL13",
    name: "unknown-key",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::Several(check),
};

/// Other names of keys, as used elsewhere.
const ELSEWHERE: [(&str, &str); 4] = [
    ("tensor_parallel_size", "draft_tensor_parallel_size"),
    ("speculative_model", "model"),
    ("draft_model", "model"),
    ("num_spec_tokens", "num_speculative_tokens"),
];

/// Maximum edit distance at which a name counts as a typo of a key.
const SLIP: usize = 2;

/// Older versions may ignore unknown keys.
const STRICT_SINCE: EngineVersion = EngineVersion::new(0, 10, 0);

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(config) = context.launch.vllm_speculation() else { return Vec::new() };
    let lenient = context.version() < STRICT_SINCE;
    let found = config.keys.iter().filter_map(|(name, key)| look(context, name, key));
    found.map(|finding| if lenient { finding.at_most(Severity::Warning) } else { finding }).collect()
}

fn look(context: &Context<'_>, name: &str, key: &VllmKey) -> Option<Finding> {
    let version = context.version();
    let shown = shortened(name);
    // vLLM has it only to point users to another key.
    let is_trap = name == "tensor_parallel_size";
    if let Some(word) = Speculative::Key.word(name).filter(|_| !is_trap) {
        let message = match (word.since, word.until) {
            (_, Some(gone)) if gone <= version => format!("vllm {version} no longer has the key `{shown}`"),
            (Some(since), _) => {
                let before = flags::vllm().versions().iter().rev().find(|read| **read < since)?;
                if version > *before {
                    return None;
                }
                format!("vllm {version} does not have the key `{shown}` yet")
            }
            _ => return None,
        };
        let finding = Finding::new(key.span, message, "not in this version").by_version();
        return Some(finding.help("take it out, or use a version that has it"));
    }
    let finding =
        Finding::new(key.span, format!("the speculative configuration of vllm has no key `{shown}`"), "not known");
    Some(match meant(name) {
        Some(known) => finding.help(format!("write `{known}`")),
        None if context.launch.forks.any_of(Engine::Vllm) => return None,
        None => finding
            .at_most(Severity::Warning)
            .note("a version that was not read, or a fork, may have it")
            .help("take it out"),
    })
}

/// The key that a name was probably meant to be.
fn meant(name: &str) -> Option<&'static str> {
    let folded = name.to_ascii_lowercase();
    if let Some((_, known)) = ELSEWHERE.iter().find(|(other, _)| *other == folded) {
        return Some(known);
    }
    let near = Speculative::Key.words().map(|known| (distance(known.text, &folded), known.text)).min();
    near.filter(|(far, known)| *far <= SLIP && far * 2 < known.len()).map(|(_, known)| known)
}

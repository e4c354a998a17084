//! # VL11: unknown-method
//!
//! No version of vLLM knows the method.
//!
//! ## What it does
//!
//! Looks for a `method` that is none of vLLM's. Methods of layers that predict several tokens, whose names end with `_mtp`,
//! come with each model and are not judged.
//!
//! ## Why is this bad?
//!
//! vLLM does not start. Names are taken in lower case only, and some are called otherwise than in SGLang.
//!
//! ## What vLLM does
//!
//! `1 validation error for SpeculativeConfig: method: Input should be 'ngram', 'medusa', …`
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "EAGLE3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! NEXTN is SGLang's word for layers that predict several tokens:
//!
//! ```launch bad
//! vllm serve target --spec-method nextn --spec-tokens 1
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! What a variable holds in the JSON is not judged, and hides nothing else:
//!
//! ```launch good
//! vllm serve target --speculative-config "{\"method\": \"$METHOD\", \"num_speculative_tokens\": 3}"
//! ```
//!
//! ## Versions
//!
//! 0.10.0 and later; before, names that are not known were not refused in every case. A name that is far from all that
//! are known is a warning: a version that nobody read, or a fork, may have it.
//!
//! ## Source
//!
//! vLLM `config/speculative.py`, `SpeculativeMethod`.

use crate::{
    diagnostic::Severity,
    rules::{Applies, Check, Context, Finding, Rule},
    text::distance,
    version::EngineVersion,
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "VL11",
    name: "unknown-method",
    severity: Severity::Error,
    applies: Applies::Vllm,
    file: include_str!("vl11_unknown_method.rs"),
    check: Check::One(check),
};

/// The first version that is judged.
const FIRST: EngineVersion = EngineVersion::new(0, 10, 0);

/// The methods of all versions, those of single models left out.
const METHODS: [&str; 14] = [
    "eagle",
    "eagle3",
    "mtp",
    "draft_model",
    "ngram",
    "suffix",
    "medusa",
    "mlp_speculator",
    "dflash",
    "dflare",
    "dspark",
    "ngram_gpu",
    "custom_class",
    "extract_hidden_states",
];

/// What other engines call a method.
const ELSEWHERE: [(&str, &str); 3] = [("nextn", "mtp"), ("standalone", "draft_model"), ("draft", "draft_model")];

/// Farthest that a slip of the pen is taken for the method that was meant.
const SLIP: usize = 2;

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let method = config.method.filter(|method| !METHODS.contains(&method.as_str()) && !method.ends_with("_mtp"))?;
    if context.resolved.version_given && context.version() < FIRST {
        return None;
    }
    let shown: String = method.chars().take(60).collect();
    let place = context.launch.vllm_key_place("method").unwrap_or(config.span);
    let finding = Finding::new(place, format!("vllm has no method `{shown}`"), "not known");
    Some(match meant(&method) {
        Some(known) => finding.help(format!("write `\"method\": \"{known}\"`")),
        None => finding
            .at_most(Severity::Warning)
            .note("a version that was not read, or a fork, may have it")
            .help(format!("write one of {}", METHODS.join(", "))),
    })
}

/// The method that a name stands for.
fn meant(method: &str) -> Option<&'static str> {
    let folded = method.to_ascii_lowercase().replace('-', "_");
    if let Some((_, known)) = ELSEWHERE.iter().find(|(name, _)| *name == folded) {
        return Some(known);
    }
    let near = METHODS.iter().map(|known| (distance(known, &folded), *known)).min();
    near.filter(|(far, known)| *far <= SLIP && far * 2 < known.len()).map(|(_, known)| known)
}

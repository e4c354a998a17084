//! # VL16: prompt-lookup-bounds
//!
//! The minimum n-gram length is above the maximum.
//!
//! ## What it does
//!
//! Compares `prompt_lookup_min` with `prompt_lookup_max` under `ngram`.
//!
//! ## Why is this bad?
//!
//! vLLM does not start.
//!
//! ## What vLLM does
//!
//! `ValueError: prompt_lookup_min=5 must be <= prompt_lookup_max=3`
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 5, "prompt_lookup_max": 3}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 3, "prompt_lookup_max": 5}'
//! ```
//!
//! ## Versions
//!
//! As read in 0.33.0; older versions were not read.
//!
//! ## Source
//!
//! vLLM `config/speculative.py` of 0.33.0.

use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL16",
    name: "prompt-lookup-bounds",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    config.method.as_deref().filter(|method| ["ngram", "ngram_gpu"].contains(method))?;
    let (shortest, longest) = (config.integer("prompt_lookup_min")?, config.integer("prompt_lookup_max")?);
    (shortest > longest).then(|| {
        let place = context.launch.vllm_key_place("prompt_lookup_min").unwrap_or(config.span);
        let message = format!("n-grams of at least {shortest} tokens are not at most {longest} long");
        Finding::new(place, message, "min above max")
            .related(context.launch.vllm_key_place("prompt_lookup_max"), "the most")
            .help(format!("write a `prompt_lookup_min` of at most {longest}"))
    })
}

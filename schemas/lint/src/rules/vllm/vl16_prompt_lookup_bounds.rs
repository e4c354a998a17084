//! # VL16: prompt-lookup-bounds
//!
//! A number of a look-up is out of its bounds.
//!
//! ## What it does
//!
//! Compares `prompt_lookup_min` with `prompt_lookup_max` under `ngram`, and looks for lengths below
//! 1 there. Under `suffix`, looks for a `suffix_decoding_max_tree_depth` below 1, a
//! `suffix_decoding_min_token_prob` outside 0 to 1, and other numbers below 0.
//!
//! ## Why is this bad?
//!
//! vLLM does not start.
//!
//! ## What vLLM does
//!
//! `ValueError: prompt_lookup_min=5 must be <= prompt_lookup_max=3`, or of a single number
//! `prompt_lookup_max=0 must be > 0` (`Input should be greater than or equal to 1` in later
//! versions) and `suffix_decoding_min_token_prob=1.5 must be in [0, 1]`.
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 5, "prompt_lookup_max": 3}'
//! ```
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 0}'
//! ```
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "suffix", "num_speculative_tokens": 8, "suffix_decoding_min_token_prob": 1.5}'
//! ```
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "suffix", "num_speculative_tokens": 8, "suffix_decoding_max_tree_depth": 0}'
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
//! As read in 0.33.0, and in sources from 0.9 on for single numbers.
//!
//! ## Source
//!
//! vLLM `config/speculative.py` of 0.33.0.

use launch::VllmSpeculation;
use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL16",
    name: "prompt-lookup-bounds",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// A number that a method takes, with its bounds.
struct LookupBounds {
    key: &'static str,
    least: f64,
    most: Option<f64>,
}

const fn at_least(key: &'static str, least: f64) -> LookupBounds {
    LookupBounds { key, least, most: None }
}

/// The numbers of n-grams.
const OF_NGRAMS: [LookupBounds; 2] = [at_least("prompt_lookup_min", 1.0), at_least("prompt_lookup_max", 1.0)];

/// The numbers of suffixes.
const OF_SUFFIXES: [LookupBounds; 4] = [
    at_least("suffix_decoding_max_tree_depth", 1.0),
    at_least("suffix_decoding_max_cached_requests", 0.0),
    at_least("suffix_decoding_max_spec_factor", 0.0),
    LookupBounds { key: "suffix_decoding_min_token_prob", least: 0.0, most: Some(1.0) },
];

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let bounds: &[LookupBounds] = match config.method.as_deref()? {
        "ngram" | "ngram_gpu" => &OF_NGRAMS,
        "suffix" => &OF_SUFFIXES,
        _ => return None,
    };
    bounds.iter().find_map(|bounds| bounds.exceeded(context, &config)).or_else(|| crossed(context, &config))
}

impl LookupBounds {
    /// The number of the launch, if it is out of the bounds.
    fn exceeded(&self, context: &Context<'_>, config: &VllmSpeculation) -> Option<Finding> {
        let Self { key, least, most } = *self;
        let number = config.number(key)?;
        if number >= least && most.is_none_or(|most| number <= most) {
            return None;
        }
        let place = context.launch.vllm_key_place(key).unwrap_or(config.span);
        let range = match most {
            Some(most) => format!("from {least} to {most}"),
            None => format!("of at least {least}"),
        };
        let message = format!("`{key}` is {number}, and vllm takes a number {range}");
        Some(Finding::new(place, message, format!("not {range}")).help(format!("write a number {range}")))
    }
}

/// The shortest n-gram is longer than the longest.
fn crossed(context: &Context<'_>, config: &VllmSpeculation) -> Option<Finding> {
    let (shortest, longest) = (config.integer("prompt_lookup_min")?, config.integer("prompt_lookup_max")?);
    (shortest > longest).then(|| {
        let place = context.launch.vllm_key_place("prompt_lookup_min").unwrap_or(config.span);
        let message = format!("n-grams of at least {shortest} tokens are not at most {longest} long");
        Finding::new(place, message, "min above max")
            .related(context.launch.vllm_key_place("prompt_lookup_max"), "the most")
            .help(format!("write a `prompt_lookup_min` of at most {longest}"))
    })
}

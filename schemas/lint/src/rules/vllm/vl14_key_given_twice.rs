//! # VL14: key-given-twice
//!
//! A flag sets a key that the speculative configuration already contains.
//!
//! ## What it does
//!
//! Looks for `--spec-method`, `--spec-model` and `--spec-tokens` together with a
//! `--speculative-config` that has the key.
//!
//! ## Why is this bad?
//!
//! vLLM does not start, even if the two values are equal.
//!
//! ## What vLLM does
//!
//! `ValueError: --spec-tokens and --speculative-config['num_speculative_tokens'] are mutually
//! exclusive`
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --spec-tokens 3 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --spec-tokens 3 --speculative-config '{"method": "mtp"}'
//! ```
//!
//! ## Versions
//!
//! As read in 0.33.0; older versions were not read.
//!
//! ## Source
//!
//! vLLM `engine/arg_utils.py` of 0.33.0.

use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL14",
    name: "key-given-twice",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

const FLAGS: [(&str, &str); 3] =
    [("spec-method", "method"), ("spec-model", "model"), ("spec-tokens", "num_speculative_tokens")];

fn check(context: &Context<'_>) -> Option<Finding> {
    FLAGS.iter().find_map(|(flag, key)| {
        let own = context.launch.argument(flag).filter(|own| !own.in_branch)?;
        let other = context.launch.vllm_key_in_config(key)?;
        let message = format!("vllm takes either `--{flag}` or `{key}` of `--speculative-config`, and both are given");
        Some(
            Finding::new(own.span, message, "given twice")
                .related(Some(other), "here as well")
                .help(format!("take `--{flag}` or `{key}` out")),
        )
    })
}

//! # VL07: vllm-ngram-lora
//!
//! n-gram speculation and LoRA fail together under load.
//!
//! ## What it does
//!
//! Looks for `--enable-lora` with the method `ngram`.
//!
//! ## Why is this bad?
//!
//! With several requests at once the engine dies.
//!
//! ## What vLLM does
//!
//! The number of tokens that LoRA counts and the number that is verified differ.
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --enable-lora --speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'
//! ```
//!
//! ## Versions
//!
//! Reported for 0.9.1; whether later ones are free of it is not known.
//!
//! ## Source
//!
//! vLLM issue #20284.

use crate::{
    diagnostic::Severity,
    rules::{Applies, Check, Context, Finding, Rule},
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "VL07",
    name: "vllm-ngram-lora",
    severity: Severity::Error,
    applies: Applies::Vllm,
    file: include_str!("vl07_vllm_ngram_lora.rs"),
    check: Check::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let lora = context.launch.vllm_flag("--enable-lora")?;
    (config.method.as_deref() == Some("ngram")).then(|| {
        Finding::new(lora.span, "LoRA and ngram speculation fail together when several requests run", "not with ngram")
            .related(Some(config.span), "here")
            .help("take `--enable-lora` or the speculation out")
    })
}

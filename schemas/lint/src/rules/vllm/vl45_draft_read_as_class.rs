//! # VL45: draft-read-as-class
//!
//! The name of the draft has a dot and no slash, which these versions take for a Python class.
//!
//! ## What it does
//!
//! Looks for a method with a draft, or a draft alone, whose name contains a dot and no slash: a
//! folder below the working directory, as `Qwen3.6-27B-DFlash`.
//!
//! ## Why is this bad?
//!
//! vLLM replaces the method by `custom_class`, whatever was given, and imports the name in place of
//! loading the folder. The server does not start.
//!
//! ## What vLLM does
//!
//! `ImportError: Cannot import module 'Qwen3' for custom proposer 'Qwen3.6-27B-DFlash': No module named 'Qwen3'`
//!
//! ## Example
//!
//! ```launch bad version:0.25.1
//! vllm serve target --speculative-config '{"method": "dflash", "model": "Qwen3.6-27B-DFlash", "num_speculative_tokens": 7}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.25.1
//! vllm serve target --speculative-config '{"method": "dflash", "model": "./Qwen3.6-27B-DFlash", "num_speculative_tokens": 7}'
//! ```
//!
//! From 0.26 on a method that is given counts:
//!
//! ```launch good version:0.26.0
//! vllm serve target --speculative-config '{"method": "dflash", "model": "Qwen3.6-27B-DFlash", "num_speculative_tokens": 7}'
//! ```
//!
//! ## Versions
//!
//! 0.22 to 0.25, read in 0.21.0 to 0.26.0.
//!
//! ## Source
//!
//! vLLM `config/speculative.py`, `v1/spec_decode/custom_class_proposer.py`; PR #48754.

use launch::VllmSpeculation;
use schemas::{diagnostic::Severity, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL45",
    name: "draft-read-as-class",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

const SINCE: EngineVersion = EngineVersion::new(0, 22, 0);
const FIXED: EngineVersion = EngineVersion::new(0, 26, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation().filter(|config| !config.is_legacy)?;
    let model = config.model.as_deref().filter(|model| is_taken_for_class(model))?;
    if context.version() < SINCE || context.version() >= FIXED || may_be_class(&config, model) {
        return None;
    }
    let module = model.rsplit_once('.')?.0;
    let message = "a draft with a dot and no slash in its name is imported as a Python class in these versions";
    Some(
        Finding::new(config.keys.get("model").map_or(config.span, |key| key.span), message, "not a folder here")
            .by_version()
            .vllm_says(format!("ImportError: Cannot import module '{module}' for custom proposer '{model}'"))
            .help(format!("write `./{model}`, or the whole path")),
    )
}

/// Whether these versions take a name for a class.
fn is_taken_for_class(model: &str) -> bool {
    let is_address = ["http://", "https://", "file://"].iter().any(|scheme| model.starts_with(scheme));
    model.contains('.') && !model.contains('/') && !is_address
}

/// Whether a class may be meant: the method says so, or none is given and the name can be imported.
fn may_be_class(config: &VllmSpeculation, model: &str) -> bool {
    match config.method.as_deref() {
        Some(method) => method == "custom_class",
        None => config.may_give("method") || model.split('.').all(is_identifier),
    }
}

fn is_identifier(part: &str) -> bool {
    let starts = part.chars().next().is_some_and(|first| first.is_alphabetic() || first == '_');
    starts && part.chars().all(|sign| sign.is_alphanumeric() || sign == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_dot_and_no_slash_is_taken_for_a_class() {
        assert!(is_taken_for_class("Qwen3.6-27B-DFlash"));
        assert!(!is_taken_for_class("./Qwen3.6-27B-DFlash"));
        assert!(!is_taken_for_class("z-lab/Qwen3.6-27B-DFlash"));
        assert!(!is_taken_for_class("draft"));
    }

    #[test]
    fn a_class_may_be_meant_where_no_method_is_given() {
        let config = VllmSpeculation::default();
        assert!(may_be_class(&config, "package.Proposer"));
        assert!(!may_be_class(&config, "Qwen3.6-27B"));
        let eagle = VllmSpeculation { method: Some("eagle3".to_owned()), ..VllmSpeculation::default() };
        assert!(!may_be_class(&eagle, "package.Proposer"));
        let class = VllmSpeculation { method: Some("custom_class".to_owned()), ..VllmSpeculation::default() };
        assert!(may_be_class(&class, "Qwen3.6-27B"));
    }
}

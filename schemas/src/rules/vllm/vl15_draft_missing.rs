//! # VL15: draft-missing
//!
//! The method needs a draft, and none is given.
//!
//! ## What it does
//!
//! Looks for `eagle`, `eagle3`, `dflash` and `draft_model` with a number of draft tokens and without `model`.
//!
//! ## Why is this bad?
//!
//! vLLM does not start, unless the target is a checkpoint of speculators, which names its own target. Where the target's config
//! is not known, this is a warning.
//!
//! ## What vLLM does
//!
//! `ValueError: num_speculative_tokens was provided but without speculative model.`
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "eagle3", "num_speculative_tokens": 3}'
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"]}
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! Layers that predict several tokens lie in the target:
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//!
//! ## Versions
//!
//! As read in 0.33.0; older versions were not read.
//!
//! ## Source
//!
//! vLLM `config/speculative.py` and `transformers_utils/config.py` of 0.33.0.

use crate::{
    diagnostic::Severity,
    rules::{Applies, Check, Context, Finding, Rule},
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "VL15",
    name: "draft-missing",
    severity: Severity::Error,
    applies: Applies::Vllm,
    file: include_str!("vl15_draft_missing.rs"),
    check: Check::One(check),
};

/// Methods whose drafts are checkpoints of their own.
const METHODS: [&str; 4] = ["eagle", "eagle3", "dflash", "draft_model"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let method = config.method.as_deref().filter(|method| METHODS.contains(method))?;
    if !config.gives("num_speculative_tokens") || config.may_give("model") {
        return None;
    }
    let finding = Finding::new(config.span, format!("{method} is not told which draft to load"), "no model")
        .help("add `\"model\": \"DRAFT\"`");
    Some(if context.target_config().is_some() { finding } else { finding.at_most(Severity::Warning) })
}

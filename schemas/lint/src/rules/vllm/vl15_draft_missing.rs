//! # VL15: draft-missing
//!
//! The method needs a draft, but none is given.
//!
//! ## What it does
//!
//! Looks for methods whose drafts are separate checkpoints (`eagle`, `eagle3`, `dflash`, `medusa`,
//! `mlp_speculator` and `draft_model`, the default) with a number of draft tokens and without
//! `model`.
//!
//! ## Why is this bad?
//!
//! vLLM does not start, unless the target is a checkpoint of speculators, which names its own
//! target: its configuration replaces the given keys, which is a warning. If the target's config is
//! unknown, or known by its name only, this is a warning too.
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
//! Without a method, it is `draft_model`:
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"num_speculative_tokens": 3}'
//! ```
//!
//! A checkpoint of speculators has a configuration of its own:
//!
//! ```launch bad
//! vllm serve RedHatAI/Qwen3-8B-speculator.eagle3 --speculative-config '{"num_speculative_tokens": 3}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! Layers that predict several tokens are part of the target:
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//!
//! ## Versions
//!
//! As read in 0.11.2 to 0.33.0. 0.33.0 has neither `medusa` nor `mlp_speculator`.
//!
//! ## Source
//!
//! vLLM `config/speculative.py` and `transformers_utils/config.py` of 0.33.0.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, vllm::method_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL15",
    name: "draft-missing",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// Methods whose drafts are separate checkpoints.
const METHODS: [&str; 6] = ["eagle", "eagle3", "dflash", "draft_model", "medusa", "mlp_speculator"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation().filter(|config| !config.is_legacy)?;
    let method = method_of(&config).filter(|method| METHODS.contains(method))?;
    if !config.gives("num_speculative_tokens") || config.may_give("model") {
        return None;
    }
    if is_speculators(context) {
        let message =
            "the target is a checkpoint of speculators: its own speculative configuration replaces these keys";
        return Some(
            Finding::new(config.span, message, "replaced")
                .at_most(Severity::Warning)
                .help("take these keys out, or serve the target and give the checkpoint as its `model`"),
        );
    }
    let message = match config.method {
        Some(_) => format!("{method} has no draft model to load"),
        None => "neither a method nor a draft is given, so vLLM expects a draft model".to_owned(),
    };
    let finding = Finding::new(config.span, message, "no model")
        .vllm_says("ValueError: num_speculative_tokens was provided but without speculative model.")
        .help(format!(
            "add `{}`, or a method that needs none, as `{}` or `ngram`",
            context.config_pair("model", "\"DRAFT\""),
            context.config_pair("method", "\"mtp\"")
        ));
    // A checkpoint of speculators names its own target, and is given in place of the target.
    let may_be_speculators = context.target_config().is_none() && matches!(method, "eagle" | "eagle3" | "dflash");
    Some(if may_be_speculators { finding.at_most(Severity::Warning) } else { finding })
}

/// Whether the target is a checkpoint of speculators, by its config or its name.
fn is_speculators(context: &Context<'_>) -> bool {
    let by_config = context.target_config().is_some_and(|config| config.speculators_model_type.is_some());
    let name = context.launch.text(Key::ModelPath);
    by_config || name.is_some_and(|name| name.value.to_ascii_lowercase().contains("speculator"))
}

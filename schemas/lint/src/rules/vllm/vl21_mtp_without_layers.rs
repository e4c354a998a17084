//! # VL21: mtp-without-layers
//!
//! The target has no layers that predict several tokens.
//!
//! ## What it does
//!
//! Looks for the method `mtp` without a draft, if the target's class has no MTP layers in vLLM, or
//! if its config says that the checkpoint has none.
//!
//! ## Why is this bad?
//!
//! vLLM does not start: it looks for the draft in the target's own checkpoint.
//!
//! ## What vLLM does
//!
//! `NotImplementedError: Unsupported speculative method: 'mtp'`. For DeepSeek V4.1:
//! `ValueError: DeepSeek V4.1 has no classic-MTP draft`.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve meta-llama/Llama-3.1-8B-Instruct --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"]}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve Qwen/Qwen3.6-27B --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//! ```target
//! {"architectures": ["Qwen3_5ForConditionalGeneration"], "mtp_num_hidden_layers": 1}
//! ```
//!
//! ## Versions
//!
//! All versions with the method.
//!
//! ## Source
//!
//! vLLM `config/speculative.py`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL21",
    name: "mtp-without-layers",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// Prefixes of architectures for which no version has an MTP class.
const WITHOUT: [&str; 22] = [
    "Apertus",
    "Cohere",
    "FalconH1",
    "FalconForCausalLM",
    "Gemma2",
    "Gemma3",
    "GptOss",
    "Granite",
    "InternLM",
    "KimiK25",
    "LlamaForCausalLM",
    "MiniMaxM1",
    "MistralForCausalLM",
    "Mixtral",
    "Olmo",
    "Phi",
    "Qwen2",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3Omni",
    "Qwen3VL",
    "Seed",
];

/// Whether no model of this class has MTP layers.
pub(in crate::rules) fn has_none(class: &str) -> bool {
    WITHOUT.iter().any(|known| class.starts_with(known))
}

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let method = config.method.as_deref().filter(|method| *method == "mtp" || method.ends_with("_mtp"))?;
    let target = context.target_config()?;
    let class = target.architecture()?;
    if config.gives("model") || context.launch.argument("model-impl").is_some() {
        return None;
    }
    let counted = target.num_nextn_predict_layers.or(target.mtp_num_hidden_layers);
    let (message, says) = if target.model_type.as_deref() == Some("deepseek_v41") {
        (format!("{class} has no classic MTP layers"), "ValueError: DeepSeek V4.1 has no classic-MTP draft")
    } else if has_none(class) {
        (format!("{class} has no MTP layers"), "NotImplementedError: Unsupported speculative method: 'mtp'")
    } else if counted == Some(0) {
        (format!("this checkpoint of {class} has no MTP layers"), "ValueError: num_speculative_tokens must be provided")
    } else {
        return None;
    };
    let help = if target.model_type.as_deref() == Some("deepseek_v41") {
        "write `\"method\": \"dspark\"`"
    } else {
        "take a head that was trained for this target (eagle3, dflash), or `\"method\": \"ngram\"`"
    };
    let finding = Finding::new(config.span, message, format!("{method} looks for them in the target"))
        .related(context.span(Key::ModelPath), class)
        .vllm_says(says)
        .on_facts("target", context.target)
        .help(help);
    // A draft may be given elsewhere.
    Some(if config.may_give("model") { finding.at_most(Severity::Warning) } else { finding })
}

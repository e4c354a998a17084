//! # VL28: mtp-tensors-missing
//!
//! The checkpoint says that it has MTP layers, but none of their tensors is loaded.
//!
//! ## What it does
//!
//! Looks through the tensors of a target that drafts with its own MTP layers for `mtp.*`,
//! `eh_proj`, and layers after the last one.
//!
//! ## Why is this bad?
//!
//! Fine-tuned, quantised and exported checkpoints often drop them. vLLM then fails while loading,
//! or drafts at random and accepts almost nothing.
//!
//! ## What vLLM does
//!
//! `ValueError: Following weights were not initialized from checkpoint` if the model's loader
//! reports what it loaded and the model is not quantised. Of a checkpoint with an index only the
//! files in the index are loaded, so an `mtp.safetensors` next to them does not count.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//! ```target
//! {"architectures": ["Glm4MoeForCausalLM"], "num_hidden_layers": 2, "num_nextn_predict_layers": 1}
//! ```
//! ```target-tensors
//! model.layers.0.self_attn.q_proj.weight BF16 64x64
//! model.layers.1.self_attn.q_proj.weight BF16 64x64
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//! ```target
//! {"architectures": ["Glm4MoeForCausalLM"], "num_hidden_layers": 2, "num_nextn_predict_layers": 1}
//! ```
//! ```target-tensors
//! model.layers.0.self_attn.q_proj.weight BF16 64x64
//! model.layers.2.eh_proj.weight BF16 64x128
//! ```
//!
//! ## Versions
//!
//! All versions with the method.
//!
//! ## Source
//!
//! vLLM `model_loader/default_loader.py`, `model_loader/weight_utils.py`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL28",
    name: "mtp-tensors-missing",
    severity: Severity::Warning,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    config.method.as_deref().filter(|method| *method == "mtp" || method.ends_with("_mtp"))?;
    let target = context.target.filter(|_| !config.may_give("model"))?;
    target.dropped_mtp_layers()?;
    let (message, help) = if target.loose_mtp {
        (
            "the target's MTP layers are in mtp.safetensors, which its index does not list, so it is not loaded",
            "add the tensors of mtp.safetensors to the `weight_map` of model.safetensors.index.json",
        )
    } else {
        (
            "the target's config declares MTP layers, but the checkpoint has no tensors for them",
            "use the original checkpoint, or a head that was trained for this target (eagle3, dflash)",
        )
    };
    Some(
        Finding::new(config.span, message, "drafts with them")
            .related(Some(context.value_place(Key::ModelPath)), "the target")
            .on_facts("target", context.target)
            .help(help),
    )
}

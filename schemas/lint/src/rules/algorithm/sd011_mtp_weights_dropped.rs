//! # SD011: mtp-weights-dropped
//!
//! The checkpoint says that it has MTP layers, and has none of their tensors.
//!
//! ## What it does
//!
//! Looks through the tensors of a target that drafts with its own MTP layers for `mtp.*`,
//! `eh_proj`, and layers after the last.
//!
//! ## Why is this bad?
//!
//! Fine-tuned, quantised and exported checkpoints often drop them. The draft is then random, and
//! its accept length about 1.
//!
//! ## What SGLang does
//!
//! It loads what exists and leaves the rest at random values, or stops with a load error, depending
//! on the model.
//!
//! If a checkpoint has an index, only the files in the index are loaded. An `mtp.safetensors` next
//! to them is added for GLM-4.5 to 4.7 from 0.5.8 on and for their small models from 0.5.13 on, and
//! for no others.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
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
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
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
//! All versions.
//!
//! ## Source
//!
//! slime `docs/en/advanced/speculative-decoding.md`; sglang issue #24795 and PR #17166; AutoAWQ
//! issue #736; `model_loader/weight_utils.py`, `filter_duplicate_safetensors_files` and
//! `maybe_add_mtp_safetensors`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::V0_5_13};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD011",
    name: "mtp-weights-dropped",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.algorithm().filter(|algorithm| matches!(algorithm, Algorithm::Eagle | Algorithm::FrozenKvMtp))?;
    let target = context.target?;
    let layers = target.config.num_hidden_layers?;
    let drafts_itself = context.is_absent(Key::SpeculativeDraftModelPath);
    if !drafts_itself {
        return None;
    }
    target.dropped_mtp_layers()?;
    let (message, label, help) = if target.loose_mtp {
        if loads_loose_file(context) {
            return None;
        }
        (
            "the target's MTP layers are in mtp.safetensors, which its index does not list, so it is not loaded",
            "its model.safetensors.index.json".to_owned(),
            "add the tensors of mtp.safetensors to the index's `weight_map`, or name a draft",
        )
    } else {
        (
            "the target's config declares MTP layers, but the checkpoint has no tensors for them",
            format!("no tensor after layer {}", layers.saturating_sub(1)),
            "use the original checkpoint, export with its MTP layers (slime: `--mtp-num-layers 1`), or name a draft",
        )
    };
    Some(
        Finding::new(context.value_place(Key::ModelPath), message, label)
            .related(context.span(Key::SpeculativeAlgorithm), "would draft with them")
            .help(help),
    )
}

/// Whether SGLang adds an `mtp.safetensors` that the index does not name.
fn loads_loose_file(context: &Context<'_>) -> bool {
    let class = context.target_config().and_then(|config| config.architecture()).unwrap_or_default();
    let since = match class {
        "Glm4MoeForCausalLM" | "Glm4MoeForCausalLMNextN" => EngineVersion::new(0, 5, 8),
        "Glm4MoeLiteForCausalLM" | "Glm4MoeLiteForCausalLMNextN" => V0_5_13,
        _ => return false,
    };
    since <= context.version()
}

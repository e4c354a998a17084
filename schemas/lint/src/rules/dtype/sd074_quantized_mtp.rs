//! # SD074: quantized-mtp
//!
//! A quantised checkpoint whose MTP layer is not quantised, or not as SGLang expects.
//!
//! ## What it does
//!
//! Looks at targets that are quantised as NVFP4, MXFP4, AWQ, GPTQ or compressed tensors and draft
//! with their own MTP layers. If the target is known only from the table of published checkpoints,
//! this is a warning.
//!
//! ## Why is this bad?
//!
//! Many such checkpoints keep the MTP layer in bfloat16 without listing it, under the name that
//! SGLang uses, among the ignored layers: its weights then do not fit.
//!
//! ## What SGLang does
//!
//! `ValueError: Downcasting not allowed: target.dtype=torch.float8_e4m3fn,
//! loaded_weight.dtype=torch.bfloat16`, `assert param.size() == loaded_weight.size()`, or `The size
//! of tensor a (2048) must match the size of tensor b (4096)`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["Glm4MoeForCausalLM"], "num_nextn_predict_layers": 1, "num_hidden_layers": 46,
//!  "quantization_config": {"quant_method": "modelopt_fp4"}}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["Glm4MoeForCausalLM"], "num_nextn_predict_layers": 1, "num_hidden_layers": 46}
//! ```
//!
//! ## Versions
//!
//! Open in 0.5.23 for several checkpoints; which of them work is not known without loading them.
//!
//! ## Source
//!
//! sglang PRs #34906, #36158, #23424, #30379; vLLM issue #47828.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD074",
    name: "quantized-mtp",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Methods whose checkpoints have failed in this way.
const METHODS: [&str; 7] = ["modelopt_fp4", "modelopt", "quark", "mxfp4", "awq", "gptq", "compressed-tensors"];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.algorithm().filter(|algorithm| matches!(algorithm, Algorithm::Eagle | Algorithm::FrozenKvMtp))?;
    let target = context.target_config()?;
    let method = target.quantization_config.as_ref()?.get("quant_method")?.as_str()?;
    let drafts_itself = context.is_absent(Key::SpeculativeDraftModelPath);
    if !drafts_itself || target.mtp_layers().unwrap_or_default() == 0 || !METHODS.contains(&method) {
        return None;
    }
    let message = format!("the MTP layer of this {method} checkpoint may be stored unquantised, which does not load");
    // The table of published checkpoints does not record which layers are excluded.
    let most = if context.target?.partial { Severity::Warning } else { Severity::Error };
    Some(
        Finding::new(context.value_place(Key::ModelPath), message, "quantised, with MTP layers")
            .at_most(most)
            .related(context.span(Key::SpeculativeAlgorithm), "drafts with them")
            .sglang_says("Downcasting not allowed: target.dtype=torch.float8_e4m3fn, loaded_weight.dtype=torch.bfloat16")
            .on_facts("target", context.target)
            .help(
                "try it before you rely on it; a separate bfloat16 draft with \
                 `--speculative-draft-model-quantization unquant`, or a checkpoint whose ignore list names the layer, works",
            ),
    )
}

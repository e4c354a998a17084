//! # NR13: eagle3-with-mtp
//!
//! EAGLE3 is requested with a model's own MTP layers as the draft.
//!
//! ## What it does
//!
//! Looks for EAGLE3 whose draft path is the target's, or whose draft is a checkpoint with MTP
//! layers. For some families SGLang takes the target for the draft if none is given, so that is
//! the same.
//!
//! ## Why is this bad?
//!
//! An EAGLE-3 head reads several hidden states of the target; an MTP layer reads one. The loaded
//! class has neither the weights nor the methods of a head.
//!
//! ## What SGLang does
//!
//! It stops with `AttributeError: … object has no attribute 'set_embed'`, or runs with an accept
//! length of about 1.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path zai-org/GLM-9 --speculative-algorithm EAGLE3 --speculative-draft-model-path zai-org/GLM-9 \
//!   --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["Glm4MoeForCausalLM"], "num_hidden_layers": 46, "num_nextn_predict_layers": 1}
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path zai-org/GLM-9 --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["Glm4MoeForCausalLM"], "num_hidden_layers": 46, "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path zai-org/GLM-9 --speculative-algorithm EAGLE --attention-backend fa3 --max-running-requests 16 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["Glm4MoeForCausalLM"], "num_hidden_layers": 46, "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang issue #36829.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use super::families;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR13",
    name: "eagle3-with-mtp",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let path = context.launch.text(Key::SpeculativeDraftModelPath);
    let is_filled_in = || {
        let class = context.target_config().and_then(|config| config.architecture());
        context.is_absent(Key::SpeculativeDraftModelPath) && class.is_some_and(families::fills_in_path)
    };
    let same = match path {
        Some(path) => context.launch.text(Key::ModelPath).is_some_and(|target| target.value == path.value),
        None => is_filled_in(),
    };
    let place = path.map_or_else(|| context.value_place(Key::SpeculativeAlgorithm), |path| path.span);
    let layers = |config: &schemas::model::ModelConfig| config.mtp_layers().is_some_and(|layers| layers > 0);
    let mtp =
        if same { context.target_config().is_some_and(layers) } else { context.draft_config().is_some_and(layers) };
    if !mtp {
        return None;
    }
    Some(
        Finding::new(place, "EAGLE3 cannot draft with a model's own MTP layers", "MTP layers, not an EAGLE-3 head")
            .related(context.span(Key::SpeculativeAlgorithm), "reads several hidden states of the target")
            .on_facts("target", context.target)
            .help(format!("write `{}`, which runs MTP layers", context.line(Key::SpeculativeAlgorithm, "EAGLE"))),
    )
}

//! # SD063: rope-theta-mismatch
//!
//! The MTP layer encodes positions differently from the target.
//!
//! ## What it does
//!
//! Compares `rope_theta` and the rotary scaling of target and draft, where the draft is an MTP
//! layer in a separate checkpoint. An EAGLE head is trained from scratch and may differ.
//!
//! ## Why is this bad?
//!
//! An MTP layer is trained along with the target, with the same rotary embedding. A config that is
//! rewritten on export often loses it. There is no error; acceptance drops as the distance between
//! tokens grows.
//!
//! ## What SGLang does
//!
//! Nothing compares the two: each checkpoint runs with its own config.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft \
//!   --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["MiMoForCausalLM"], "rope_theta": 640000, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1, "rope_theta": 10000, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft \
//!   --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["MiMoForCausalLM"], "rope_theta": 640000, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1, "rope_theta": 640000, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `models/llama_eagle3.py` and the MTP classes; inferred from the code.

use schemas::{
    diagnostic::Severity,
    flags::Key,
    model::{DraftKind, ModelConfig},
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD063",
    name: "rope-theta-mismatch",
    severity: Severity::Warning,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let (target, draft) = (context.target_config()?, context.draft_config()?);
    if context.draft_kind() != Some(DraftKind::Mtp) {
        return None;
    }
    let (what, of_target, of_draft) = thetas(target, draft).or_else(|| scalings(context, target, draft))?;
    let message = format!("the MTP layer runs with {what} {of_draft}, and the target with {of_target}");
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, format!("{of_draft} here"))
            .related(context.span(Key::ModelPath), format!("{of_target} here"))
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help(
                "write the target's rotary embedding into the draft's config.json, unless it was trained with another",
            ),
    )
}

/// The two bases, if both configs state theirs and they differ.
fn thetas(target: &ModelConfig, draft: &ModelConfig) -> Option<(&'static str, String, String)> {
    let (of_target, of_draft) = (target.rope().rope_theta?, draft.rope().rope_theta?);
    (of_target != of_draft).then(|| ("rope_theta", of_target.to_string(), of_draft.to_string()))
}

/// The two scalings, if both configs are completely known and they differ.
fn scalings(
    context: &Context<'_>,
    target: &ModelConfig,
    draft: &ModelConfig,
) -> Option<(&'static str, String, String)> {
    if context.target?.partial || context.draft?.partial {
        return None;
    }
    let of = |config: &ModelConfig| {
        let rope = config.rope();
        rope.scaling().map_or("none".to_owned(), |name| format!("{name} × {}", rope.factor.unwrap_or(1.0)))
    };
    let (of_target, of_draft) = (of(target), of(draft));
    (of_target != of_draft).then_some(("rotary scaling", of_target, of_draft))
}

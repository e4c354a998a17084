//! # SD103: multi-layer-eagle
//!
//! Models with several MTP layers draft chains only.
//!
//! ## What it does
//!
//! Looks at topk under EAGLE for targets whose MTP layers run one after the other (Step 3.5, MiMo
//! V2, GigaChat 3.5), and whenever `--enable-multi-layer-eagle` is given.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It turns `enable_multi_layer_eagle` on automatically for these models, and asserts topk 1 and
//! draft tokens = steps + 1.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 2 --speculative-num-draft-tokens 6
//! ```
//! ```target
//! {"architectures": ["Step3p5ForCausalLM"], "num_nextn_predict_layers": 3}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["Step3p5ForCausalLM"], "num_nextn_predict_layers": 3}
//! ```
//!
//! ## Versions
//!
//! As read in 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/base_spec_worker.py`, `multi_layer_eagle_worker.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD103",
    name: "multi-layer-eagle",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Prefixes of classes for which it is turned on.
const FAMILIES: [&str; 4] = ["Step3p5", "Step3p7", "MiMoV2", "GigaChat35"];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle)?;
    let Some(topk) = context.launch.count(Key::SpeculativeEagleTopk).filter(|topk| topk.value > 1) else {
        return filled_in(context);
    };
    let class = context.target_config().and_then(|target| target.architecture()).unwrap_or_default();
    if !context.launch.has(Key::EnableMultiLayerEagle) && !FAMILIES.iter().any(|family| class.starts_with(family)) {
        return None;
    }
    let message = format!("several MTP layers draft a chain, not a tree with topk {}", topk.value);
    Some(
        Finding::new(topk.span, message, "has to be 1")
            .related(context.span(Key::EnableMultiLayerEagle), "one layer a step")
            .related(context.span(Key::ModelPath), "several MTP layers")
            .on_facts("target", context.target)
            .by_version()
            .help(format!("write `{}`", context.line(Key::SpeculativeEagleTopk, "1"))),
    )
}

/// For some targets the shape that SGLang fills in by default is a tree.
fn filled_in(context: &Context<'_>) -> Option<Finding> {
    let flag = context.span(Key::EnableMultiLayerEagle)?;
    let (steps, tokens) =
        (context.resolved.num_steps.as_ref()?.value, context.resolved.num_draft_tokens.as_ref()?.value);
    if tokens == steps + 1 || context.launch.has(Key::SpeculativeNumSteps) {
        return None;
    }
    let message =
        format!("several MTP layers draft a chain, and sglang fills in {steps} steps with {tokens} draft tokens");
    Some(
        Finding::new(flag, message, "one layer a step")
            .sglang_says(format!(
                "AssertionError: multi-layer EAGLE requires speculative_num_draft_tokens == \
                 speculative_num_steps + 1, got {tokens} and {steps}"
            ))
            .by_version()
            .help("give `--speculative-num-steps`, `--speculative-eagle-topk 1` and one draft token more than steps"),
    )
}

//! # NR22: multimodal-wrapper
//!
//! The target is a multimodal wrapper that does not expose its embedding to an EAGLE head.
//!
//! ## What it does
//!
//! Looks for EAGLE with a draft model and a vision-language target.
//!
//! ## Why is this bad?
//!
//! An EAGLE head shares embedding and head with the target, and gets them from the wrapper.
//!
//! ## What SGLang does
//!
//! It stops with `AttributeError: … object has no attribute 'get_embed_and_head'`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["Qwen3VLMoeForConditionalGeneration"], "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["Qwen3VLMoeForConditionalGeneration"], "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! Reported for 0.5.7; a warning from 0.5.12.post1 on, which may have the method for some wrappers.
//!
//! ## Source
//!
//! sglang issue #17935.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR22",
    name: "multimodal-wrapper",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle)?;
    let class = context.target_config()?.architecture()?;
    let wrapper = class.contains("VL") && class.ends_with("ForConditionalGeneration");
    if !wrapper || !context.launch.has(Key::SpeculativeDraftModelPath) {
        return None;
    }
    let message = format!("{class} does not expose its embedding to an EAGLE head");
    let finding = Finding::new(context.value_place(Key::SpeculativeAlgorithm), message, "not with this target")
        .related(context.span(Key::ModelPath), "a multimodal wrapper")
        .sglang_says(format!("AttributeError: '{class}' object has no attribute 'get_embed_and_head'"))
        .on_facts("target", context.target)
        .by_version()
        .help(format!("use an EAGLE-3 head with `{}`", context.line(Key::SpeculativeAlgorithm, "EAGLE3")));
    Some(if context.version() >= V0_5_12 { finding.at_most(Severity::Warning) } else { finding })
}

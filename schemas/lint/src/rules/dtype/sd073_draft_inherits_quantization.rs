//! # SD073: draft-inherits-quantization
//!
//! The draft is quantised because the target is.
//!
//! ## What it does
//!
//! Looks for `--quantization` without `--speculative-draft-model-quantization`, with a draft whose
//! config has no quantisation.
//!
//! ## Why is this bad?
//!
//! An offline method (awq, gptq, …) finds no quantised tensors in the draft, and loading fails; an
//! online one (fp8) quantises the draft on the fly, and fewer of its tokens are accepted.
//!
//! ## What SGLang does
//!
//! The draft gets the server's `--quantization` unless its own flag says otherwise.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --quantization fp8 --speculative-algorithm EAGLE3 --max-running-requests 16 \
//!   --speculative-draft-model-path draft --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --quantization fp8 --speculative-draft-model-quantization unquant --max-running-requests 16 \
//!   --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! The flag is in 0.5.9 and later; before that, the draft always got the server's.
//!
//! ## Source
//!
//! sglang `arg_groups/serving_hook.py`.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD073",
    name: "draft-inherits-quantization",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The draft's own flag was added between these.
const EDGE: Edge = Edge::new(V0_5_6, V0_5_9);

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let method = context.launch.text(Key::Quantization)?;
    let own = Key::SpeculativeDraftModelQuantization;
    let draft = context.draft_config()?;
    let quantised = draft.quantization_config.as_ref().is_some_and(|value| !value.is_null());
    if quantised || !context.is_absent(own) || context.draft.is_some_and(|draft| draft.partial) {
        return None;
    }
    let message = format!("the draft is loaded with {} too, and its checkpoint is not quantised", method.value);
    let finding = Finding::new(method.span, message, "for target and draft")
        .related(context.span(Key::SpeculativeDraftModelPath), "not quantised")
        .on_facts("draft", context.draft)
        .by_version();
    Some(if EDGE.side(context.version()) == Side::After {
        finding.help(format!("add `{}`", context.line(own, "unquant"))).fix(
            Safety::Unsafe,
            "leave the draft as it is",
            context.set(own, "unquant"),
        )
    } else {
        finding.help("use sglang 0.5.9 or later, which has a flag for the draft, or a target that says in its config how it is quantised")
    })
}

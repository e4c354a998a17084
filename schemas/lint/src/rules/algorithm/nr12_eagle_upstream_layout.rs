//! # NR12: eagle-upstream-layout
//!
//! The draft checkpoint names a whole model's class, so that SGLang does not load it as a head.
//!
//! ## What it does
//!
//! Looks at the draft's `architectures` under EAGLE and EAGLE3: a plain causal model with one
//! layer, or with a draft vocabulary, is a head in the layout in which EAGLE's authors published
//! it.
//!
//! ## Why is this bad?
//!
//! SGLang builds the class that the config names. A plain Llama of one layer has no `fc`, so the
//! head's own tensors have nowhere to go.
//!
//! ## What SGLang does
//!
//! It fails when the weights are loaded or when the scheduler starts; the message depends on the
//! version.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "draft_vocab_size": 32000, "vocab_size": 128256}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32000, "vocab_size": 128256}
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang issues #3315, #7263, #5448; PR #2863.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR12",
    name: "eagle-upstream-layout",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Classes of whole models; SGLang has their heads under another name.
const WHOLE: [&str; 4] = ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MixtralForCausalLM"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let algorithm = context.algorithm().filter(|one| matches!(one, Algorithm::Eagle | Algorithm::Eagle3))?;
    let draft = context.draft_config()?;
    let class = draft.architecture().filter(|class| WHOLE.contains(class))?;
    if draft.num_hidden_layers != Some(1) {
        return None;
    }
    let suffix = if algorithm == Algorithm::Eagle3 { "Eagle3" } else { "Eagle" };
    let message =
        format!("the draft's config names {class}, the class of a whole model, so it is not loaded as a head");
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "one layer, and no draft class")
            .on_facts("draft", context.draft)
            .help(format!("use a checkpoint converted for sglang, or write {class}{suffix} in its config.json")),
    )
}

//! # SD104: architecture-topk1
//!
//! This target supports chains only.
//!
//! ## What it does
//!
//! Looks at topk for DeepSeek V4, IQuest Q1, and Qwen's family with sparse attention (Qwen4-Exp).
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `Only EAGLE speculative algorithm with topk == 1 is supported`, or `Qwen QSA target verification
//! supports only speculative_eagle_topk=1`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8
//! ```
//! ```target
//! {"architectures": ["DeepseekV4ForCausalLM"], "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV4ForCausalLM"], "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Versions
//!
//! Since these models were added; read in 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/deepseek_v4_hook.py`, `arg_groups/speculative_hook.py`,
//! `layers/attention/qwen_sparse_attn_backend.py`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD104",
    name: "architecture-topk1",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const ONLY_CHAINS: &str = "Only EAGLE speculative algorithm with topk == 1 is supported";

/// Prefixes of classes that support chains only, and what the engine says.
const FAMILIES: [(&str, &str); 3] = [
    ("DeepseekV4", ONLY_CHAINS),
    ("IQuestQ1", ONLY_CHAINS),
    ("Qwen4Exp", "NotImplementedError: Qwen QSA target verification supports only speculative_eagle_topk=1"),
];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let topk = context.launch.count(Key::SpeculativeEagleTopk).filter(|topk| topk.value > 1)?;
    let class = context.target_config()?.architecture()?;
    let (_, says) = FAMILIES.iter().find(|(family, _)| class.starts_with(family))?;
    Some(
        Finding::new(topk.span, format!("{class} runs with topk 1 only"), "has to be 1")
            .related(context.span(Key::ModelPath), class)
            .sglang_says(says)
            .on_facts("target", context.target)
            .help(format!("write `{}`", context.line(Key::SpeculativeEagleTopk, "1"))),
    )
}

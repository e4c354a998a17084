//! # NR16: eagle3-narrow-draft
//!
//! The draft is narrower than the target, which the first draft-extend graphs do not support.
//!
//! ## What it does
//!
//! Looks for an EAGLE-3 head whose hidden size differs from the target's, on 0.4.6.post5 to 0.4.7
//! with CUDA graphs.
//!
//! ## Why is this bad?
//!
//! The server crashes while it captures its graphs.
//!
//! ## What SGLang does
//!
//! The buffer of hidden states is allocated for the draft's width but filled with the target's:
//! `Capture cuda graph failed`.
//!
//! ## Example
//!
//! ```launch bad version:0.4.7
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 --tp-size 8 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 8192}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 6144, "target_hidden_size": 8192}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.4.10
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 --tp-size 8 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 8192}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 6144, "target_hidden_size": 8192}
//! ```
//!
//! ## Versions
//!
//! 0.4.6.post5 to 0.4.7: PR #6606 added the graphs.
//!
//! ## Source
//!
//! sglang issue #7011.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR16",
    name: "eagle3-narrow-draft",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The first version with these graphs.
const FIRST: EngineVersion = EngineVersion::new(0, 4, 6).post(5);

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let version = context.version();
    if version < FIRST || version > V0_4_7 || context.launch.has(Key::DisableCudaGraph) {
        return None;
    }
    let (target, draft) = (context.target_config()?.hidden_size?, context.draft_config()?.hidden_size?);
    (target != draft).then(|| {
        let message = format!(
            "sglang {version} cannot capture the graphs of a draft of width {draft} with a target of width {target}"
        );
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "another hidden size")
            .on_facts("target", context.target)
            .by_version()
            .help(format!("use sglang 0.4.10 or later, or add `{}`", context.flag(Key::DisableCudaGraph)))
    })
}

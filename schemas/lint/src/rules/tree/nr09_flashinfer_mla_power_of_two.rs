//! # NR09: flashinfer-mla-power-of-two
//!
//! The first MLA kernels of flashinfer verify powers of two only.
//!
//! ## What it does
//!
//! Looks at the number of draft tokens on 0.4.3 and 0.4.4 with an MLA target on flashinfer.
//!
//! ## Why is this bad?
//!
//! The server crashes in its first verify pass.
//!
//! ## What SGLang does
//!
//! `ValueError: arange's range must be a power of 2`.
//!
//! ## Example
//!
//! ```launch bad version:0.4.3
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend flashinfer --trust-remote-code \
//!   --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3 --cuda-graph-bs 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512, "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.4.3
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend flashinfer --trust-remote-code \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512, "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Versions
//!
//! About 0.4.3 to 0.4.4.
//!
//! ## Source
//!
//! sglang PR #4218 (comment), issue #3883.

use schemas::{diagnostic::Severity, flags::Key, version::EngineVersion};

use super::GivenShape;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR09",
    name: "flashinfer-mla-power-of-two",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The first version with another kernel.
const FIXED: EngineVersion = EngineVersion::new(0, 4, 5);

fn check(context: &Context<'_>) -> Option<Finding> {
    let shape = GivenShape::from_context(context)?;
    let version = context.version();
    let written = context.launch.text(Key::AttentionBackend).is_some_and(|backend| backend.value == "flashinfer");
    // The flag of these versions, removed in later ones.
    let old = context.launch.arguments.iter().any(|argument| argument.flag.value == "--enable-flashinfer-mla");
    let tokens = shape.num_draft_tokens;
    if version >= FIXED || !(written || old) || !context.target_config()?.is_mla() || tokens.is_power_of_two() {
        return None;
    }
    Some(
        Finding::new(
            context.value_place(Key::SpeculativeNumDraftTokens),
            format!("flashinfer's MLA kernels of sglang {version} cannot verify {tokens} draft tokens"),
            "no power of 2",
        )
        .sglang_says("ValueError: arange's range must be a power of 2")
        .on_facts("target", context.target)
        .by_version()
        .help(format!(
            "write `{}`",
            context.line(Key::SpeculativeNumDraftTokens, &tokens.next_power_of_two().to_string())
        )),
    )
}

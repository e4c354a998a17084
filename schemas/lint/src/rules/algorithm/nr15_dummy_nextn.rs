//! # NR15: dummy-nextn
//!
//! Random weights and MTP layers cannot be combined in this version.
//!
//! ## What it does
//!
//! Looks for `--load-format dummy` with NEXTN on 0.4.7.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! The loader of MTP layers reads tensors that dummy loading does not create.
//!
//! ## Example
//!
//! ```launch bad version:0.4.7 also:SD002
//! sglang serve --model-path target --speculative-algorithm NEXTN --load-format dummy --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.4.10
//! sglang serve --model-path target --speculative-algorithm NEXTN --load-format dummy --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Versions
//!
//! About 0.4.7.
//!
//! ## Source
//!
//! sglang PR #7506.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR15",
    name: "dummy-nextn",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let format = context.launch.text(Key::LoadFormat).filter(|format| format.value == "dummy")?;
    let algorithm = context.launch.text(Key::SpeculativeAlgorithm)?;
    if !algorithm.value.eq_ignore_ascii_case("NEXTN") || context.version() > V0_4_7 {
        return None;
    }
    Some(
        Finding::new(format.span, "MTP layers cannot be loaded with random weights", "not with NEXTN")
            .related(Some(algorithm.span), "here")
            .by_version()
            .help("use sglang 0.4.10 or later, or a real checkpoint"),
    )
}

//! # SD030: trtllm-mha-topk
//!
//! trtllm_mha runs chains only, but a tree is requested.
//!
//! ## What it does
//!
//! Looks for topk above 1 if any of the attention backends is trtllm_mha.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It stops with `ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend trtllm_mha \
//!   --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16 --max-running-requests 8
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend trtllm_mha \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 8
//! ```
//!
//! ## Versions
//!
//! 0.5.2 and later have the check; 0.4.10 does not.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD030",
    name: "trtllm-mha-topk",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let topk = context.resolved.topk.as_ref()?.value;
    let keys = [Key::AttentionBackend, Key::DecodeAttentionBackend, Key::PrefillAttentionBackend];
    let backend =
        keys.into_iter().filter_map(|key| context.launch.text(key)).find(|backend| backend.value == "trtllm_mha")?;
    let edge = Edge::new(V0_4_10, V0_5_2);
    let side = edge.side(context.version());
    if topk < 2 || side == Side::Before {
        return None;
    }
    let finding = Finding::new(backend.span, format!("trtllm_mha cannot run a tree (topk {topk})"), "chains only")
        .related(context.span(Key::SpeculativeEagleTopk), format!("topk {topk}"))
        .sglang_says("ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.")
        .maybe_note(edge.doubt(context.version()))
        .by_version()
        .help(format!(
            "write `{}`, or another attention backend such as `{}`",
            context.line(Key::SpeculativeEagleTopk, "1"),
            context.line(Key::AttentionBackend, "flashinfer")
        ));
    Some(if side == Side::Between { finding.at_most(Severity::Warning) } else { finding })
}

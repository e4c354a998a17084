//! # NR18: pd-decode-dp-attention
//!
//! A decode engine with DP attention and MTP or EAGLE has hung on several versions.
//!
//! ## What it does
//!
//! Looks for `--disaggregation-mode decode` with DP attention and EAGLE or EAGLE3. It is a warning
//! if the target's config or name tells that its index is shared, and else information: published
//! recipes run like this.
//!
//! ## Why is this bad?
//!
//! Ranks disagree on whether a batch runs in a graph, and wait for each other forever; this is
//! certain if the checkpoint shares its index across MTP steps (`index_share_for_mtp_iteration`).
//!
//! ## What SGLang does
//!
//! No message: the warm-up hangs, or the server stops responding.
//!
//! ## Example
//!
//! ```launch bad version:0.5.15 also:SD193
//! sglang serve --model-path zai-org/GLM-5.2-FP8 --tp-size 8 --dp-size 8 --enable-dp-attention --disaggregation-mode decode \
//!   --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.15
//! sglang serve --model-path target --tp-size 8 --disaggregation-mode decode --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Reported for several versions up to 0.5.16; it is not known which ones are affected. Later ones
//! are not checked.
//!
//! ## Source
//!
//! sglang issues #32527, #29144, #15399; PR #32209.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR18",
    name: "pd-decode-dp-attention",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The setting of a target whose steps of MTP share one index.
const SHARES: &str = "index_share_for_mtp_iteration";

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    if context.resolved.version_given && context.version() > V0_5_16 {
        return None;
    }
    let mode = context.launch.text(Key::DisaggregationMode).filter(|mode| mode.value == "decode")?;
    let ranks = context.span(Key::EnableDpAttention)?;
    let shares = context.target_config().is_some_and(|config| config.other.contains_key(SHARES));
    let name = context.launch.text(Key::ModelPath).map(|name| name.value.to_ascii_lowercase()).unwrap_or_default();
    let finding =
        Finding::new(ranks, "a decode engine with DP attention and speculation can hang", "ranks wait for each other")
            .related(Some(mode.span), "decode runs here")
            .related(context.span(Key::SpeculativeAlgorithm), "drafts on every rank")
            .note("reported for versions up to 0.5.16")
            .help("try the very load first; without DP attention, or without speculation, it is not known to hang");
    Some(if shares || name.contains("glm-5.2") { finding } else { finding.at_most(Severity::Info) })
}

//! # SD143: dflash-trtllm
//!
//! The DFLASH draft does not run on `trtllm_mha`.
//!
//! ## What it does
//!
//! Looks at the draft's attention backend under DFLASH, its own or the target's. From 0.5.17
//! on `trtllm_mha` supports drafts whose layers all have a sliding window, and causal drafts
//! (`is_causal`); earlier versions support none.
//!
//! ## Why is this bad?
//!
//! The requested backend is not the one that runs: the draft falls back to another backend.
//!
//! ## What SGLang does
//!
//! `DFLASH only enables 'trtllm_mha' when all layers use sliding attention or the draft is
//! explicitly causal; … Falling back to 'fa4'.` (0.5.15: `DFLASH draft worker does not support
//! 'trtllm_mha' … Falling back to 'flashinfer'.`)
//!
//! ## Example
//!
//! ```launch bad version:0.5.15.post1
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend trtllm_mha
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-draft-attention-backend trtllm_mha
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "torch_dtype": "bfloat16", "num_hidden_layers": 2,
//!  "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 2048}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend trtllm_mha
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "torch_dtype": "bfloat16", "num_hidden_layers": 2,
//!  "layer_types": ["sliding_attention", "sliding_attention"], "sliding_window": 2048}
//! ```
//!
//! ## Versions
//!
//! 0.5.15 and later; the exceptions were added in 0.5.17. Read in 0.5.15 to 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, model::ModelFacts};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD143",
    name: "dflash-trtllm",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const BACKEND: &str = "trtllm_mha";

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Dflash)?;
    let own = Key::SpeculativeDraftAttentionBackend;
    let backend = match context.launch.has(own) {
        true => context.launch.text(own)?.value,
        false => context.resolved.attention_backend.as_ref()?.value.as_str(),
    };
    let version = context.version();
    let has_exceptions = version >= V0_5_17;
    if backend != BACKEND || version < V0_5_15 || (has_exceptions && may_run(context.draft?)) {
        return None;
    }
    let key = if context.launch.has(own) { own } else { Key::AttentionBackend };
    let instead = if has_exceptions { "fa4" } else { "flashinfer" };
    let message = format!("the draft does not run on {BACKEND}: it falls back to {instead}");
    Some(
        Finding::new(context.value_place(key), message, "not for this draft")
            .related(context.span(Key::SpeculativeDraftModelPath), "drafts blocks")
            .on_facts("draft", context.draft)
            .by_version()
            .help(format!("{} `{}`, which is what runs", context.add_or_write(own), context.line(own, instead))),
    )
}

/// Whether the backend supports the draft, or may support it.
fn may_run(draft: &ModelFacts) -> bool {
    let config = &draft.config;
    let sliding = match &config.layer_types {
        None => draft.partial,
        Some(kinds) => {
            kinds.iter().all(|kind| kind == "sliding_attention")
                && config.num_hidden_layers.is_none_or(|layers| layers == kinds.len())
        }
    };
    config.is_causal.unwrap_or(draft.partial) || sliding
}

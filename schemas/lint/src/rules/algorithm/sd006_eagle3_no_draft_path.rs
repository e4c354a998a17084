//! # SD006: eagle3-no-draft-path
//!
//! EAGLE3 is requested without a draft.
//!
//! ## What it does
//!
//! Looks for `--speculative-draft-model-path` under `--speculative-algorithm EAGLE3`, for targets
//! whose own checkpoint is not used as the draft.
//!
//! ## Why is this bad?
//!
//! The target is loaded a second time as if it were the head, which doubles its memory and then
//! fails.
//!
//! ## What SGLang does
//!
//! It stops with an `AttributeError` after loading: `hot_token_id` for Llama, `set_embed` for
//! Qwen2.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23 also:SD090
//! sglang serve --model-path meta-llama/Llama-3.2-1B-Instruct --speculative-algorithm EAGLE3
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "max_position_embeddings": 131072}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm EAGLE3 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "max_position_embeddings": 131072}
//! ```
//!
//! ## Versions
//!
//! All; open in 0.5.23 (PR #36593).
//!
//! ## Source
//!
//! sglang issue #36528, `arg_groups/speculative_hook.py`.

use schemas::{
    algorithm::Algorithm,
    diagnostic::Severity,
    flags::Key,
    model::{DraftKind, published::drafts_of},
};

use super::families;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, support::missing};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD006",
    name: "eagle3-no-draft-path",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let key = Key::SpeculativeDraftModelPath;
    let architecture = context.target_config()?.architecture()?;
    if !context.is_absent(key) || families::fills_in_path(architecture) {
        return None;
    }
    let says = if architecture.starts_with("Qwen2") { "set_embed" } else { "hot_token_id" };
    Some(
        missing(context, key, "EAGLE3 needs a draft, but none is given: the target is loaded twice and start fails")
            .related(context.span(Key::SpeculativeAlgorithm), "needs a head")
            .sglang_says(format!("AttributeError: … has no attribute '{says}'"))
            .on_facts("target", context.target)
            .help(format!("add `{}`", context.line(key, suggestion(context).unwrap_or("FOLDER_OF_THE_HEAD")))),
    )
}

/// A published head for this target, if one is known.
fn suggestion(context: &Context<'_>) -> Option<&'static str> {
    let heads = drafts_of(&context.target?.name).into_iter().filter(|row| row.config.runs_in_servers());
    let mut heads = heads.filter(|row| row.config.draft_kind() == Some(DraftKind::Eagle3));
    heads.next().map(|row| row.name.as_str())
}

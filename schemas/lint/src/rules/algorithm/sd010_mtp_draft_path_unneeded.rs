//! # SD010: mtp-draft-path-unneeded
//!
//! A draft is named although the target has its own.
//!
//! ## What it does
//!
//! Points out a `--speculative-draft-model-path` under EAGLE or NEXTN for targets whose MTP layer
//! is in their own checkpoint (DeepSeek V3, GLM 4.5 and later, Ling, Hunyuan, …).
//!
//! ## Why is this bad?
//!
//! It is not wrong, but it is one more checkpoint to load and to keep in step with the target; the
//! separate NextN exports are older than the versions that read the layer from the target.
//!
//! ## What SGLang does
//!
//! Warns `DeepSeek MTP does not require setting speculative_draft_model_path.` and uses the path.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path deepseek-ai/DeepSeek-V3 --tp 8 --speculative-algorithm EAGLE --max-running-requests 32 \
//!   --speculative-draft-model-path lmsys/DeepSeek-V3-NextN
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1, "kv_lora_rank": 512}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path deepseek-ai/DeepSeek-V3 --tp 8 --speculative-algorithm EAGLE --max-running-requests 32
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1, "kv_lora_rank": 512}
//! ```
//!
//! ## Versions
//!
//! The architectures are those of 0.5.23; 0.5.2 knows DeepSeek V3 and GLM 4.5 only.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{
    algorithm::Algorithm,
    diagnostic::{Safety, Severity},
    flags::Key,
    model::DraftKind,
};

use super::families;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD010",
    name: "mtp-draft-path-unneeded",
    severity: Severity::Info,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle)?;
    let key = Key::SpeculativeDraftModelPath;
    let place = context.span(key)?;
    let architecture = context.target_config()?.architecture()?;
    let is_a_head = matches!(context.draft_kind(), Some(DraftKind::Eagle | DraftKind::Eagle3));
    if !families::drafts_from_its_own_checkpoint(architecture) || is_a_head {
        return None;
    }
    Some(
        Finding::new(place, format!("{architecture} drafts with the MTP layer in its own checkpoint"), "not needed")
            .sglang_says("DeepSeek MTP does not require setting speculative_draft_model_path.")
            .on_facts("target", context.target)
            .by_version()
            .help(format!("remove `{}`", context.flag(key)))
            .fix(Safety::Unsafe, "draft from the target's own checkpoint", context.remove(key)),
    )
}

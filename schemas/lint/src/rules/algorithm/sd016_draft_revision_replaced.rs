//! # SD016: draft-revision-replaced
//!
//! A draft's revision is given without a draft, and the target's revision takes its place.
//!
//! ## What it does
//!
//! Looks for `--speculative-draft-model-revision` without `--speculative-draft-model-path`, under
//! EAGLE or NEXTN on a target that drafts with the MTP layer of its own checkpoint.
//!
//! ## Why is this bad?
//!
//! The draft is loaded from the target's checkpoint at the target's revision. The given revision is
//! silently ignored.
//!
//! ## What SGLang does
//!
//! It sets the draft's path and revision to those of the target.
//!
//! ## Example
//!
//! ```launch bad version:0.5.16
//! sglang serve --model-path deepseek-ai/DeepSeek-V3 --tp 8 --speculative-algorithm EAGLE --max-running-requests 32 \
//!   --speculative-draft-model-revision v2
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1, "kv_lora_rank": 512}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.16
//! sglang serve --model-path deepseek-ai/DeepSeek-V3 --tp 8 --speculative-algorithm EAGLE --max-running-requests 32 \
//!   --revision v2
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1, "kv_lora_rank": 512}
//! ```
//!
//! ## Versions
//!
//! As read in 0.5.16.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use super::families;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD016",
    name: "draft-revision-replaced",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle)?;
    let key = Key::SpeculativeDraftModelRevision;
    let place = context.span(key)?;
    let architecture = context.target_config()?.architecture()?;
    if context.launch.has(Key::SpeculativeDraftModelPath) || !families::drafts_from_its_own_checkpoint(architecture) {
        return None;
    }
    Some(
        Finding::new(place, "the draft is loaded at the target's revision instead of this one", "replaced")
            .on_facts("target", context.target)
            .help(format!("remove `{}`, or name the draft with `--speculative-draft-model-path`", context.flag(key))),
    )
}

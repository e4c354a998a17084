//! # SD007: eagle-no-draft-path-no-mtp
//!
//! EAGLE is requested without a draft, and the target has no MTP layer.
//!
//! ## What it does
//!
//! Looks for `--speculative-draft-model-path` under `--speculative-algorithm EAGLE` (or NEXTN).
//! Without one, the draft is the multi-token-prediction layer in the target's checkpoint: the
//! target's class must have one, and its config must not say that there are none.
//!
//! ## Why is this bad?
//!
//! The whole target is loaded a second time as its own draft, or loading fails.
//!
//! ## What SGLang does
//!
//! For a class without an MTP layer the target is loaded again as the draft. For DeepSeek's classes
//! without the layer: `ValueError: num_nextn_predict_layers is not in the config`, or
//! `AssertionError: Only 1 nextn layer is supported`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.15.post1 also:SD090
//! sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! A head, or a target that has the layer:
//!
//! ```launch good version:0.5.15.post1
//! sglang serve --model-path XiaomiMiMo/MiMo-7B-RL --speculative-algorithm EAGLE
//! ```
//! ```target
//! {"architectures": ["MiMoForCausalLM"], "hidden_size": 4096, "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Versions
//!
//! All. The classes with an MTP layer are those of 0.5.23.
//!
//! ## Source
//!
//! sglang `configs/model_config.py`, `models/deepseek_common/deepseek_weight_loader.py` (followed
//! in the code, not run).

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use super::families;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, support::missing};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD007",
    name: "eagle-no-draft-path-no-mtp",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle)?;
    let key = Key::SpeculativeDraftModelPath;
    let target = context.target?;
    let architecture = target.config.architecture()?;
    if !context.is_absent(key) {
        return None;
    }
    let counted = families::counts_mtp_layers(architecture);
    let finding = match target.config.mtp_layers() {
        _ if families::fills_in_path(architecture) && !families::has_mtp_class(architecture) => return None,
        _ if !families::has_mtp_class(architecture) => {
            let message = format!("EAGLE needs a draft, but none is given and {architecture} has no MTP layer");
            missing(context, key, message).note("sglang loads the whole target a second time as its own draft")
        }
        Some(0) => missing(context, key, "EAGLE needs a draft, but none is given and the target has no MTP layer")
            .sglang_says("AssertionError: Only 1 nextn layer is supported"),
        None if counted && !target.partial => {
            missing(context, key, "EAGLE needs a draft, but none is given and the target's config counts no MTP layer")
                .sglang_says("ValueError: num_nextn_predict_layers is not in the config")
        }
        _ => return None,
    };
    Some(
        finding
            .related(context.span(Key::SpeculativeAlgorithm), "needs a draft")
            .on_facts("target", context.target)
            .help(format!("add `{}`", context.line(key, "FOLDER_OF_THE_HEAD"))),
    )
}

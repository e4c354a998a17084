//! # NR19: w4afp8-mtp
//!
//! The MTP layer of a W4AFP8 checkpoint is loaded with the target's scheme.
//!
//! ## What it does
//!
//! Looks for a target quantised as w4afp8 that drafts with its own MTP layers.
//!
//! ## Why is this bad?
//!
//! The layer is stored in a different format, and very few of its tokens are accepted.
//!
//! ## What SGLang does
//!
//! The draft inherits the target's quantisation. It starts, and only the accept length shows the
//! fault.
//!
//! ## Example
//!
//! ```launch bad version:0.5.6
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1, "num_hidden_layers": 61,
//!  "quantization_config": {"quant_method": "w4afp8"}}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.6
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1, "num_hidden_layers": 61,
//!  "quantization_config": {"quant_method": "fp8"}}
//! ```
//!
//! ## Versions
//!
//! It is not known which versions have the fix: check the accept length.
//!
//! ## Source
//!
//! sglang PR #16148.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR19",
    name: "w4afp8-mtp",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const METHOD: &str = "w4afp8";

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle)?;
    let target = context.target_config()?;
    let quantised = target.quantization_config.as_ref()?.get("quant_method")?.as_str()? == METHOD;
    let own = Key::SpeculativeDraftModelQuantization;
    let drafts_itself =
        context.is_absent(Key::SpeculativeDraftModelPath) && target.mtp_layers().unwrap_or_default() > 0;
    (quantised && drafts_itself && context.is_absent(own)).then(|| {
        let message = format!("the MTP layer is loaded as {METHOD} too, and very few of its tokens may be accepted");
        Finding::new(context.value_place(Key::ModelPath), message, "quantised, with MTP layers")
            .related(context.span(Key::SpeculativeAlgorithm), "drafts with them")
            .on_facts("target", context.target)
            .by_version()
            .help("look at the accept length; where it is near 1, use a checkpoint or an engine whose MTP layer is not quantised")
    })
}

//! # SD113: min-p-ignored
//!
//! A default `min_p` is not applied under speculation.
//!
//! ## What it does
//!
//! Looks for a `min_p` above 0 in `--preferred-sampling-params`, or in the target's
//! generation_config.json where the server follows it, under EAGLE, EAGLE3 and STANDALONE.
//!
//! ## Why is this bad?
//!
//! Requests are sampled from a different distribution than without speculation: tokens that `min_p`
//! would have cut can be drawn.
//!
//! ## What SGLang does
//!
//! Verification applies temperature, top_k and top_p. It ignores `min_p`, and nothing in the log
//! says so.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --preferred-sampling-params '{"min_p": 0.05}'
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1, "num_hidden_layers": 61}
//! ```
//! ```target-generation
//! {"temperature": 0.6, "min_p": 0.05}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --preferred-sampling-params '{"top_p": 0.95}'
//! ```
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --sampling-defaults openai
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1, "num_hidden_layers": 61}
//! ```
//! ```target-generation
//! {"temperature": 0.6, "min_p": 0.05}
//! ```
//!
//! ## Versions
//!
//! 0.5.6 to 0.5.23. A `min_p` in a request is not visible here.
//!
//! ## Source
//!
//! sglang `speculative/eagle_utils.py`, before 0.5.15 `speculative/eagle_info.py`;
//! `configs/model_config.py`.

use schemas::{diagnostic::Severity, flags::Key};

use super::defaults::SamplingDefault;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD113",
    name: "min-p-ignored",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let default = SamplingDefault::from_context(context, "min_p").filter(|min_p| min_p.value > 0.0)?;
    if context.version() < V0_5_6 {
        return None;
    }
    let message = format!("a min_p of {} is not applied under speculation", default.written);
    Some(
        Finding::new(default.place, message, "not applied")
            .related(context.span(Key::SpeculativeAlgorithm), "verified without it")
            .note(format!("it comes from {}", default.source))
            .note("verification applies temperature, top_k and top_p only")
            .help("use top_p or top_k instead, or no speculation where min_p matters"),
    )
}

//! # SD056: use-aux-false
//!
//! The EAGLE-3 head reads the last hidden state only.
//!
//! ## What it does
//!
//! Looks for `eagle_config.use_aux_hidden_state = false`.
//!
//! ## Why is this bad?
//!
//! This is not an error: some heads for short contexts are trained this way. Their accept length is
//! lower than that of heads that read several layers.
//!
//! ## What SGLang does
//!
//! It captures only the last hidden state.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {"use_aux_hidden_state": false}}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {"use_aux_hidden_state": true}}
//! ```
//!
//! ## Versions
//!
//! As read in 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/spec_aux_hidden_state.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD056",
    name: "use-aux-false",
    severity: Severity::Info,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let single = context.draft_config()?.eagle_config.as_ref()?.use_aux_hidden_state == Some(false);
    single.then(|| {
        let place = context.value_place(Key::SpeculativeDraftModelPath);
        Finding::new(place, "this EAGLE-3 head reads the last hidden state only", "use_aux_hidden_state is false")
            .on_facts("draft", context.draft)
    })
}

//! # SD114: penalties
//!
//! Penalties and logit processors work differently under speculation, or not at all.
//!
//! ## What it does
//!
//! Looks for penalties in `--preferred-sampling-params`, or in the target's generation_config.json
//! where the server follows it, and for `--enable-custom-logit-processor`, under EAGLE, EAGLE3 and
//! STANDALONE.
//!
//! ## Why is this bad?
//!
//! Requests are sampled from a different distribution than without speculation.
//!
//! ## What SGLang does
//!
//! Penalties count the tokens up to the last round: all tokens of a round get the same penalty, so
//! a token that repeats within a round is not penalised (a finding of severity info). The
//! overlapped worker of 0.5.6 to 0.5.9 does not apply them at all. Custom logit processors are not
//! called when drafts are verified, from 0.5.15 on.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --preferred-sampling-params '{"repetition_penalty": 1.05}'
//! ```
//!
//! ```launch bad version:0.5.9
//! SGLANG_ENABLE_SPEC_V2=1 sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --preferred-sampling-params '{"frequency_penalty": 0.5}'
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --enable-custom-logit-processor
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --preferred-sampling-params '{"repetition_penalty": 1.0}'
//! ```
//!
//! ## Versions
//!
//! 0.5.6 to 0.5.23. Penalties in a request are not visible here.
//!
//! ## Source
//!
//! sglang `speculative/eagle_utils.py`, `speculative/eagle_info.py`,
//! `speculative/eagle_info_v2.py`; PR #22049, issue #26330.

use schemas::{diagnostic::Severity, flags::Key};

use super::defaults::SamplingDefault;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD114",
    name: "penalties",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

/// The penalties, each with its neutral value.
const PENALTIES: [(&str, f64); 3] =
    [("frequency_penalty", 0.0), ("presence_penalty", 0.0), ("repetition_penalty", 1.0)];

/// Turns the overlapped worker on in versions that have others.
const OVERLAPPED: &str = "SGLANG_ENABLE_SPEC_V2";

fn check(context: &Context<'_>) -> Vec<Finding> {
    if context.tree_algorithm().is_none() || context.version() < V0_5_6 {
        return Vec::new();
    }
    penalties(context).into_iter().chain(processors(context)).collect()
}

fn penalties(context: &Context<'_>) -> Option<Finding> {
    let given = |(name, none): (&'static str, f64)| {
        let default = SamplingDefault::from_context(context, name)?;
        (default.value != none).then_some((name, default))
    };
    let (name, default) = PENALTIES.into_iter().find_map(given)?;
    let source = format!("it comes from {}", default.source);
    let overlapped = context.switched_on(OVERLAPPED).filter(|_| context.version() <= V0_5_9);
    if let Some(variable) = overlapped {
        let message = format!("a {name} of {} is not applied by this version's overlapped worker", default.written);
        return Some(
            Finding::new(default.place, message, "not applied")
                .related(Some(variable), "asks for that worker")
                .note(source)
                .by_version()
                .help(format!("take {OVERLAPPED} out, or use sglang 0.5.12 or later")),
        );
    }
    let message = format!("a {name} of {} is the same for all tokens of a round", default.written);
    Some(
        Finding::new(default.place, message, "approximate")
            .at_most(Severity::Info)
            .related(context.span(Key::SpeculativeAlgorithm), "several tokens a round")
            .note(source)
            .note("tokens that repeat within a round are not punished: the output is not quite the one without speculation"),
    )
}

fn processors(context: &Context<'_>) -> Option<Finding> {
    let key = Key::EnableCustomLogitProcessor;
    let place = context.span(key).filter(|_| context.version() >= V0_5_15)?;
    Some(
        Finding::new(place, "custom logit processors are not called where drafts are verified", "not called")
            .related(context.span(Key::SpeculativeAlgorithm), "verified without them")
            .by_version()
            .help(format!("take `{}` out, or serve such requests without speculation", context.flag(key))),
    )
}

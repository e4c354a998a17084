//! # SD092: mixed-chunk
//!
//! Mixed prefill and decode batches are turned off by speculation.
//!
//! ## What it does
//!
//! Looks for `--enable-mixed-chunk` with speculation, by version and algorithm.
//!
//! ## Why is this bad?
//!
//! The requested setting is not the one that runs.
//!
//! ## What SGLang does
//!
//! Up to 0.5.18 it is silently turned off for every draft model. 0.5.19 and later keep it for
//! EAGLE, EAGLE3, DFLASH and DSPARK and turn it off for the others.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --enable-mixed-chunk --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.19
//! sglang serve --model-path target --speculative-algorithm EAGLE --enable-mixed-chunk --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Changed in 0.5.19.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`, `speculative/spec_info.py`.

use schemas::{
    algorithm::Algorithm,
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD092",
    name: "mixed-chunk",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const EDGE: Edge = Edge::new(V0_5_18, V0_5_19);

fn check(context: &Context<'_>) -> Option<Finding> {
    let key = Key::EnableMixedChunk;
    let place = context.span(key)?;
    let algorithm = context.algorithm()?;
    let kept = [Algorithm::Eagle, Algorithm::Eagle3, Algorithm::Dflash, Algorithm::Dspark].contains(&algorithm);
    if kept && EDGE.side(context.version()) == Side::After {
        return None;
    }
    Some(
        Finding::new(place, format!("mixed batches are turned off under {}", algorithm.name()), "turned off")
            .related(context.span(Key::SpeculativeAlgorithm), "this turns them off")
            .maybe_note(EDGE.doubt(context.version()))
            .by_version()
            .help(format!("take `{}` out", context.flag(key)))
            .fix(Safety::Safe, "take out what is not used", context.remove(key)),
    )
}

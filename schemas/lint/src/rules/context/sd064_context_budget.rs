//! # SD064: context-budget
//!
//! Drafting takes a large part of each request's context.
//!
//! ## What it does
//!
//! Computes the tokens that speculation reserves in each request's context, max(topk × steps, draft
//! tokens), and checks whether they are a quarter of it or more, or whether the lengths of a
//! benchmark (`--random-input-len`, `--random-output-len`) leave no room for them.
//!
//! ## Why is this bad?
//!
//! Requests whose prompt does not leave that room are rejected, and answers end early.
//!
//! ## What SGLang does
//!
//! The tokens are reserved in every request; an input that reaches into them is rejected as too
//! long. Older versions may run past the end: `scatter gather kernel index out of bounds`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --context-length 256 --max-running-requests 8 \
//!   --speculative-num-steps 10 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64
//! ```
//!
//! ```launch bad version:0.5.9
//! python3 -m sglang.bench_offline_throughput --model-path target --random-input-len 256 --random-output-len 1750 \
//!   --speculative-algorithm EAGLE --context-length 2048 --max-running-requests 8 --attention-backend fa3 \
//!   --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --context-length 2048 --max-running-requests 8 \
//!   --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `managers/utils.py`, `compute_num_reserved_tokens`; PR #9388.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD064",
    name: "context-budget",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The reserve counts as large from 1/`LARGE` of the context.
const LARGE: usize = 4;

fn check(context: &Context<'_>) -> Option<Finding> {
    let algorithm = context.algorithm()?;
    if !matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3) || context.is_adaptive() {
        return None;
    }
    let resolved = context.resolved;
    let (steps, topk) = (resolved.num_steps.as_ref()?.value, resolved.topk.as_ref()?.value);
    let reserve = steps.saturating_mul(topk).max(resolved.num_draft_tokens.as_ref()?.value);
    let length = resolved.context_length.as_ref()?.value;
    let workload = benchmark(context).filter(|tokens| *tokens <= length && tokens.saturating_add(reserve) > length);
    let message = match workload {
        Some(tokens) => format!("{tokens} tokens a request and {reserve} for drafts do not fit a context of {length}"),
        None if reserve.saturating_mul(LARGE) >= length => {
            format!("drafts take {reserve} tokens of each request's context of {length}")
        }
        None => return None,
    };
    let wanted = match workload {
        Some(tokens) => tokens.saturating_add(reserve),
        None => reserve.saturating_mul(LARGE),
    };
    let wanted = wanted.saturating_add(1);
    Some(
        Finding::new(context.value_place(Key::ContextLength), message, format!("{reserve} of these are for drafts"))
            .related(context.span(Key::SpeculativeNumSteps), "max(topk × steps, draft tokens) are kept free")
            .note("inputs that reach into them are refused as too long, and answers end early")
            .help(format!("write `{}`, or use a smaller tree", context.line(Key::ContextLength, &wanted.to_string()))),
    )
}

/// Tokens per request of a benchmark with random texts, if the launch is one.
fn benchmark(context: &Context<'_>) -> Option<usize> {
    let length = |names: [&str; 2]| {
        let mut arguments = context.launch.arguments.iter();
        let argument = arguments.find(|argument| names.contains(&argument.flag.value.as_str()))?;
        argument.values.first()?.value.known()?.parse::<usize>().ok()
    };
    let input = length(["--random-input-len", "--random-input"])?;
    input.checked_add(length(["--random-output-len", "--random-output"])?)
}

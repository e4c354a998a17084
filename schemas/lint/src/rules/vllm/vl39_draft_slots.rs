//! # VL39: draft-slots
//!
//! The rows that drafts add leave no room in a step, or not enough for adapters.
//!
//! ## What it does
//!
//! Compares `--max-num-batched-tokens` with `--max-num-seqs` times the rows that each request's
//! draft adds: all tokens of a block but one for drafts that propose in parallel, one for a draft
//! model. With LoRA every verified token counts. Where a size is not given, those of `vllm serve`
//! on GPUs count, which some targets raise: a warning.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What vLLM does
//!
//! `ValueError: max_num_scheduled_tokens is set to … based on the speculative decoding settings,
//! which does not allow any tokens to be scheduled.` With adapters: `ValueError: Consider
//! increasing max_num_batched_tokens or decreasing num_speculative_tokens`.
//!
//! ## Example
//!
//! ```launch bad version:0.25.1
//! vllm serve target --max-num-batched-tokens 2048 --max-num-seqs 256 \
//!   --speculative-config '{"method": "dflash", "model": "draft", "num_speculative_tokens": 15}'
//! ```
//!
//! ```launch bad version:0.30.0
//! vllm serve target --enable-lora --max-num-batched-tokens 512 --max-num-seqs 256 \
//!   --speculative-config '{"method": "eagle", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! ```launch bad version:0.26.0
//! vllm serve target --speculative-config '{"method": "dflash", "model": "draft", "num_speculative_tokens": 15}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.25.1
//! vllm serve target --max-num-batched-tokens 8192 --max-num-seqs 128 \
//!   --speculative-config '{"method": "dflash", "model": "draft", "num_speculative_tokens": 15}'
//! ```
//!
//! ## Versions
//!
//! Drafts in parallel and draft models: 0.21.0 to 0.28.0; later versions reserve for one request.
//! Adapters: from 0.11.2 on.
//!
//! ## Source
//!
//! vLLM `config/vllm.py`, `_set_max_num_scheduled_tokens`; `engine/arg_utils.py`; vllm#50708,
//! vllm-ascend#13717.

use launch::{Argument, VllmSpeculation};
use schemas::{diagnostic::Severity, text::Located, version::EngineVersion};

use crate::rules::{
    Applies, Context, Definition, Finding, RuleCheck,
    platform::{Platform, platform_of},
    vllm::method_of,
};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL39",
    name: "draft-slots",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The versions that reserve the rows of all requests.
const RESERVED: std::ops::Range<EngineVersion> = EngineVersion::new(0, 21, 0)..EngineVersion::new(0, 28, 0);
/// The first version read that checks the batch with adapters.
const ADAPTERS: EngineVersion = EngineVersion::new(0, 11, 2);

/// Defaults of `vllm serve` on GPUs: the smallest number of sequences and the largest batch. Small
/// GPUs have 256 sequences and 2048 tokens, large ones 1024 and 8192.
const FEWEST_SEQUENCES: i64 = 256;
const LARGEST_BATCH: i64 = 8192;
/// The ratio of both on every GPU.
const ROWS_PER_SEQUENCE: i64 = 8;

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let tokens = config.num_speculative_tokens.filter(|tokens| (1..10_000).contains(tokens))?;
    let (batch, requests) = (number(context, "--max-num-batched-tokens"), number(context, "--max-num-seqs"));
    let with_adapters = context.launch.argument("enable-lora").is_some_and(|flag| !flag.in_branch);
    if let (true, SizeFlag::Given(batch), SizeFlag::Given(requests)) = (with_adapters, &batch, &requests) {
        let verified = requests.value.saturating_mul(tokens + 1);
        if context.version() >= ADAPTERS && batch.value < verified {
            let message =
                format!("{} requests verify {verified} tokens, and a step has {}", requests.value, batch.value);
            return Some(
                Finding::new(batch.span, message, "too few")
                    .related(Some(requests.span), "for these")
                    .vllm_says(
                        "ValueError: Consider increasing max_num_batched_tokens or decreasing num_speculative_tokens",
                    )
                    .by_version()
                    .help(format!("write `--max-num-batched-tokens {verified}` or more, or lower `--max-num-seqs`")),
            );
        }
    }
    let slots = slots(&config, tokens)?;
    if !RESERVED.contains(&context.version()) {
        return None;
    }
    let advice = "raise `--max-num-batched-tokens`, or lower `--max-num-seqs`";
    let says = "ValueError: max_num_scheduled_tokens is set to … based on the speculative decoding settings, which does \
                not allow any tokens to be scheduled.";
    let finding =
        |place, message: String| Finding::new(place, message, "too few").vllm_says(says).by_version().help(advice);
    let is_server = context.launch.callee.is_none() && platform_of(context).is_none_or(Platform::is_gpu);
    match (batch, requests) {
        (SizeFlag::Given(batch), SizeFlag::Given(requests)) => {
            let taken = requests.value.saturating_mul(slots);
            let message =
                format!("the drafts of {} requests take {taken} rows, and a step has {}", requests.value, batch.value);
            (batch.value <= taken).then(|| finding(batch.span, message).related(Some(requests.span), "for these"))
        }
        (SizeFlag::Given(batch), SizeFlag::Absent)
            if is_server && batch.value <= slots.saturating_mul(FEWEST_SEQUENCES) =>
        {
            let message = format!(
                "the drafts of the default of {FEWEST_SEQUENCES} or more requests take {} rows, and a step has {}",
                slots.saturating_mul(FEWEST_SEQUENCES),
                batch.value
            );
            Some(finding(batch.span, message).at_most(Severity::Warning))
        }
        (SizeFlag::Absent, SizeFlag::Given(requests))
            if is_server && requests.value.saturating_mul(slots) >= LARGEST_BATCH =>
        {
            let taken = requests.value.saturating_mul(slots);
            let message = format!(
                "the drafts of {} requests take {taken} rows, and by default a step has {LARGEST_BATCH} at most",
                requests.value
            );
            Some(finding(requests.span, message).at_most(Severity::Warning))
        }
        (SizeFlag::Absent, SizeFlag::Absent) if is_server && slots >= ROWS_PER_SEQUENCE => {
            let message = format!(
                "each draft takes {slots} rows, and by default a step has {ROWS_PER_SEQUENCE} for each request"
            );
            Some(finding(config.span, message).at_most(Severity::Warning))
        }
        _ => None,
    }
}

/// The rows that a request's draft adds to a step; `None` if it adds none or that is not known.
fn slots(config: &VllmSpeculation, tokens: i64) -> Option<i64> {
    let parallel = config.shown("parallel_drafting");
    match method_of(config)? {
        "dflash" | "dspark" => Some(tokens - 1),
        "draft_model" if !config.may_give("parallel_drafting") => Some(1),
        "eagle" | "eagle3" if parallel.as_deref() == Some("true") => Some(tokens - 1),
        _ => None,
    }
}

/// A flag with a number.
enum SizeFlag {
    Given(Located<i64>),
    Absent,
    Unknown,
}

fn number(context: &Context<'_>, name: &str) -> SizeFlag {
    let is_it = |argument: &&Argument| argument.flag.value.replace('_', "-") == name;
    let Some(argument) = context.launch.arguments.iter().rfind(is_it) else {
        return if context.launch.is_complete() { SizeFlag::Absent } else { SizeFlag::Unknown };
    };
    let value = argument.known().and_then(|value| value.trim().parse().ok());
    match value {
        Some(value) if !argument.in_branch => SizeFlag::Given(Located::new(value, argument.span)),
        _ => SizeFlag::Unknown,
    }
}

//! # VL10: capture-sizes-tensor-parallel
//!
//! No size of a graph fits this number of draft tokens and this tensor parallelism.
//!
//! ## What it does
//!
//! Checks whether the larger of `num_speculative_tokens` + 1 and the tensor parallelism is a
//! multiple of the other, where sequence parallelism is on, and in 0.11.1 always.
//!
//! ## Why is this bad?
//!
//! vLLM does not start. In 0.11.1 nothing is wrong with the configuration.
//!
//! ## What vLLM does
//!
//! `Can't determine cudagraph shapes that are both a multiple of 3 (num_speculative_tokens + 1)
//! required by spec-decode and 4 (tensor_parallel_size) required by sequence parallelism`, in
//! 0.11.1 whether sequence parallelism is on or not. Ascend's plugin turns it on with
//! `VLLM_ASCEND_ENABLE_FLASHCOMM1=1`.
//!
//! ## Example
//!
//! ```launch bad version:0.11.1
//! vllm serve target --tensor-parallel-size 4 \
//!   --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 2}'
//! ```
//!
//! ```launch bad version:0.25.1
//! VLLM_ASCEND_ENABLE_FLASHCOMM1=1 vllm serve target --tensor-parallel-size 4 \
//!   --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 5}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.11.1
//! vllm serve target --tensor-parallel-size 4 \
//!   --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! ## Versions
//!
//! 0.11.1, with more than two ranks; with sequence parallelism up to 0.31.0, a warning, since it
//! depends on the backend of attention whether decode has full graphs.
//!
//! ## Source
//!
//! vLLM PRs #28315, #29036; `config/compilation.py`; vllm-ascend#14260.

use schemas::{diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL10",
    name: "capture-sizes-tensor-parallel",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

const AFFECTED: EngineVersion = EngineVersion::new(0, 11, 1);
/// The versions that check it where sequence parallelism is on.
const CHECKED: std::ops::Range<EngineVersion> = EngineVersion::new(0, 11, 2)..EngineVersion::new(0, 32, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    let is_affected = context.resolved.version_given && context.version() == AFFECTED;
    let is_checked = CHECKED.contains(&context.version()) && splits_sequences(context);
    if !is_affected && !is_checked {
        return None;
    }
    let config = context.launch.vllm_speculation()?;
    let tokens = usize::try_from(config.num_speculative_tokens?).ok()?.checked_add(1)?;
    let ranks = context.launch.count(Key::TpSize).filter(|ranks| ranks.value > 2 || (is_checked && ranks.value > 1))?;
    let (larger, smaller) = (tokens.max(ranks.value), tokens.min(ranks.value));
    if larger.is_multiple_of(smaller) {
        return None;
    }
    let message = match is_checked {
        true => format!("under sequence parallelism {tokens} tokens over {} ranks have no graph size", ranks.value),
        false => format!("vllm {AFFECTED} finds no graph size for {tokens} tokens over {} ranks", ranks.value),
    };
    let finding = Finding::new(config.span, message, "num_speculative_tokens + 1")
        .related(Some(ranks.span), "ranks")
        .vllm_says(format!(
            "Can't determine cudagraph shapes that are both a multiple of {tokens} (num_speculative_tokens + 1) \
             required by spec-decode and {} (tensor_parallel_size) required by sequence parallelism",
            ranks.value
        ));
    Some(match is_checked {
        // Without full graphs nothing is checked, and the backend of attention decides about them.
        true => finding
            .at_most(Severity::Warning)
            .by_version()
            .help(format!("draft {} tokens, or turn sequence parallelism off", ranks.value - 1)),
        false => finding.help(format!("draft {} tokens, or use another version", ranks.value - 1)),
    })
}

/// Whether sequence parallelism is on, and graphs are not off.
fn splits_sequences(context: &Context<'_>) -> bool {
    let launch = context.launch;
    let is_on = |json: &str| {
        let json: String = json.split_whitespace().collect();
        ["\"enable_sp\":true", "\"enable_sequence_parallelism\":true"].iter().any(|part| json.contains(part))
    };
    let config = launch.argument("compilation-config");
    let stated = config.and_then(|flag| flag.values.first()?.value.known()).is_some_and(is_on);
    let of_ascend = launch.variable("VLLM_ASCEND_ENABLE_FLASHCOMM1").is_some_and(|value| value.value == "1");
    (stated || of_ascend) && launch.argument("enforce-eager").is_none()
}

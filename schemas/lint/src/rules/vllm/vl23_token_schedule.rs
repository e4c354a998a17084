//! # VL23: token-schedule
//!
//! The schedule of draft tokens by batch size is rejected, or is not followed.
//!
//! ## What it does
//!
//! Looks at `num_speculative_tokens_per_batch_size`: its form, its ranges, settings that turn it
//! off, and methods that always draft the same number.
//!
//! ## Why is this bad?
//!
//! vLLM does not start, drafts the same number of tokens at every batch size, or dies of the first
//! batch for which the schedule has another number.
//!
//! ## What vLLM does
//!
//! It accepts a list of `[first, last, tokens]` with ranges of batch sizes that start at 1 and do
//! not overlap; gaps keep the previous number. Its errors are
//! `Batch-size ranges must be non-overlapping and sorted.`,
//! `The first batch-size range must start at 1 …` and others. Under data parallelism it warns and
//! always drafts `num_speculative_tokens`. Numbers above `num_speculative_tokens` are clamped to
//! it. Up to 0.32 `suffix`, `ngram_gpu`, `extract_hidden_states` and `medusa` assert that the
//! number of a step is `num_speculative_tokens`. From 0.33 on runner V1 drops the schedule of all
//! methods but `ngram`, `eagle`, `eagle3`, `mtp`, `draft_model` and `dflash`, with a warning, and
//! runner V2 cuts the drafts of every method.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": {"1-16": 3}}'
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": [[4, 16, 3]]}'
//! ```
//!
//! ```launch bad version:0.28.0
//! vllm serve target --speculative-config '{"method": "suffix", "num_speculative_tokens": 8, "num_speculative_tokens_per_batch_size": [[1, 4, 8], [5, 64, 2]]}'
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "suffix", "num_speculative_tokens": 8, "num_speculative_tokens_per_batch_size": [[1, 4, 8], [5, 64, 2]]}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": [[1, 16, 3], [17, 256, 1]]}'
//! ```
//!
//! ## Versions
//!
//! From 0.24 on, which has the key.
//!
//! ## Source
//!
//! vLLM `v1/spec_decode/dynamic/utils.py`, `config/vllm.py` of 0.33.0, and the proposers
//! in `v1/spec_decode`; PR #46399.

use launch::VllmSpeculation;
use schemas::{diagnostic::Severity, version::EngineVersion};
use serde_json::Value as Json;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL23",
    name: "token-schedule",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// From here on a schedule that a method cannot follow is dropped.
const DROPPED_SINCE: EngineVersion = EngineVersion::new(0, 33, 0);
/// Methods whose schedule runner V1 follows from then on (`config/vllm.py`).
const FOLLOWED_BY_V1: [&str; 6] = ["ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"];

const KEY: &str = "num_speculative_tokens_per_batch_size";

/// The problem of a schedule, and the engine's message.
struct ScheduleError {
    message: String,
    says: Option<&'static str>,
    harm: Severity,
}

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let key = config.keys.get(KEY)?;
    let wrong = refused(key.value.as_ref()?).or_else(|| cut(key.value.as_ref()?, config.num_speculative_tokens?));
    let wrong = wrong.or_else(|| not_followed(context));
    let wrong = wrong.or_else(|| of_one_width(context, &config, key.value.as_ref()?));
    let wrong = wrong?;
    let label = if wrong.harm == Severity::Error { "refused" } else { "not followed" };
    let finding = Finding::new(key.span, wrong.message, label)
        .at_most(wrong.harm)
        .help("write ranges of batch sizes from 1 on: `[[1, 16, 3], [17, 64, 2], [65, 256, 1]]`");
    Some(match wrong.says {
        Some(says) => finding.vllm_says(says),
        None => finding,
    })
}

fn error(message: impl Into<String>, says: &'static str) -> ScheduleError {
    ScheduleError { message: message.into(), says: Some(says), harm: Severity::Error }
}

fn refused(schedule: &Json) -> Option<ScheduleError> {
    let entries = match schedule {
        Json::Null => return None,
        Json::Array(entries) if entries.is_empty() => {
            return Some(error("the schedule is empty", "num_speculative_tokens_per_batch_size must not be empty."));
        }
        Json::Array(entries) => entries,
        _ => {
            return Some(error(
                "the schedule is not a list of [first, last, tokens]",
                "num_speculative_tokens_per_batch_size must be a non-empty list of (range_start, range_end, \
                 num_speculative_tokens) entries.",
            ));
        }
    };
    let mut ranges: Vec<[i64; 3]> = Vec::new();
    for entry in entries {
        let numbers: Vec<i64> = entry.as_array().into_iter().flatten().filter_map(Json::as_i64).collect();
        let Ok(range) = <[i64; 3]>::try_from(numbers) else {
            return Some(error(
                format!("`{entry}` is not [first, last, tokens]"),
                "Each num_speculative_tokens_per_batch_size entry must be a 3-item sequence",
            ));
        };
        ranges.push(range);
    }
    ranges.sort_unstable();
    let mut before = 0;
    for [first, last, tokens] in &ranges {
        if *first < 1 || *last < *first || *tokens < 0 {
            return Some(error(
                format!("[{first}, {last}, {tokens}] is not a range of batch sizes with a number of tokens"),
                "Batch-size range start must be <= end",
            ));
        }
        if *first <= before {
            return Some(error(
                format!("the range from {first} starts before the previous one ends, at {before}"),
                "Batch-size ranges must be non-overlapping and sorted.",
            ));
        }
        before = *last;
    }
    let first = ranges.first()?[0];
    (first != 1).then(|| {
        error(
            format!("the schedule begins at batch size {first}, and smaller batches have no number"),
            "The first batch-size range must start at 1 so every runtime batch size has a defined schedule.",
        )
    })
}

/// Numbers above the bound, which are clamped to it.
fn cut(schedule: &Json, most: i64) -> Option<ScheduleError> {
    let numbers = schedule.as_array()?.iter().filter_map(|entry| entry.get(2)?.as_i64());
    let above = numbers.max().filter(|tokens| *tokens > most)?;
    let message = format!("the schedule asks for {above} tokens, and num_speculative_tokens bounds it to {most}");
    Some(ScheduleError { message, says: None, harm: Severity::Warning })
}

/// Settings that turn a schedule off.
fn not_followed(context: &Context<'_>) -> Option<ScheduleError> {
    let ranks = context.launch.argument("data-parallel-size")?;
    let ranks: usize = ranks.values.first()?.value.known()?.parse().ok()?;
    (ranks > 1).then(|| ScheduleError {
        message: format!("under data parallelism over {ranks} ranks the schedule is not followed"),
        says: Some("Dynamic speculative decoding is not supported with data parallelism"),
        harm: Severity::Warning,
    })
}

/// A smaller number for a method whose proposer asserts that it is always the same.
fn of_one_width(context: &Context<'_>, config: &VllmSpeculation, schedule: &Json) -> Option<ScheduleError> {
    let method = context.vllm_method(config)?;
    if context.version() >= DROPPED_SINCE {
        let runner = context.resolved.vllm.as_ref()?.runner.as_ref()?;
        return (!FOLLOWED_BY_V1.contains(&method) && runner.value == "V1").then(|| ScheduleError {
            message: format!("under {method} runner V1 does not follow the schedule"),
            says: Some("Dynamic speculative decoding is not supported with the speculative method on Model Runner V1"),
            harm: Severity::Warning,
        });
    }
    let fixed = matches!(method, "suffix" | "ngram_gpu" | "extract_hidden_states" | "medusa");
    let most = config.num_speculative_tokens?;
    let least = schedule.as_array()?.iter().filter_map(|entry| entry.get(2)?.as_i64()).min()?;
    (fixed && least < most).then(|| ScheduleError {
        message: format!("{method} always drafts {most} tokens: the engine dies of the first batch with {least}"),
        says: Some("AssertionError: assert num_speculative_tokens == self.num_speculative_tokens"),
        harm: Severity::Error,
    })
}

#[cfg(test)]
mod tests {
    use schemas::diagnostic::Severity;

    use crate::rules::examples::found_in;

    /// What VL23 says of a falling schedule.
    fn severity(method: &str, version: &str, before: &str) -> Option<Severity> {
        let config = format!(
            r#"{{"method": "{method}", "num_speculative_tokens": 8, "prompt_lookup_max": 4,
            "num_speculative_tokens_per_batch_size": [[1, 8, 8], [9, 64, 2]]}}"#
        );
        let text = format!("{before}vllm serve target --speculative-config '{config}'");
        found_in(&text, version, "", "").iter().find(|found| found.code == "VL23").map(|found| found.severity)
    }

    #[test]
    fn a_schedule_that_is_dropped_ends_nothing() {
        let v1 = "VLLM_USE_V2_MODEL_RUNNER=0 ";
        assert_eq!(severity("suffix", "0.32.0", ""), Some(Severity::Error));
        assert_eq!(severity("suffix", "0.33.0", ""), Some(Severity::Warning));
        assert_eq!(severity("ngram_gpu", "0.32.0", ""), Some(Severity::Error));
        assert_eq!(severity("ngram_gpu", "0.33.0", v1), Some(Severity::Warning));
        assert_eq!(severity("ngram", "0.33.0", v1), None);
    }
}

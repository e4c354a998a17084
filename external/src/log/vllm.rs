//! vLLM: a line with averages every 10 seconds, and one of speculation after it.

use std::collections::HashMap;

use super::{
    LogInterval, LoggedSettings, ServerLog,
    words::{entry, list_after, number_after},
};
use crate::api::ApiKind;

/// Reads a log; `None` if no line reports a throughput.
pub(super) fn read(text: &str) -> Option<ServerLog> {
    let mut log =
        ServerLog { kind: ApiKind::Vllm, settings: LoggedSettings::default(), intervals: Vec::new(), retractions: 0 };
    // By engine, since its start.
    let mut preemptions: HashMap<&str, f64> = HashMap::new();
    // A report of speculation belongs to the throughput before it, which may have been left out.
    let mut is_kept = false;
    for line in text.lines() {
        if line.contains("non-default args:") {
            read_settings(line, &mut log.settings);
        } else if line.contains("Avg generation throughput:") {
            preemptions.extend(number_after(line, "Preemptions:").map(|number| (engine(line), number)));
            let found = interval(line);
            is_kept = found.is_some();
            log.intervals.extend(found);
        } else if line.contains("SpecDecoding metrics:") {
            let drafts_from_texts = drafts_from_texts(&log.settings);
            if let Some(last) = log.intervals.last_mut().filter(|_| is_kept) {
                read_acceptance(line, last, drafts_from_texts);
            }
        } else if line.contains("preempted") {
            log.retractions += 1;
        } else if let Some(sizes) = list_after(line, "'cudagraph_capture_sizes':") {
            log.settings.captured = sizes;
        }
    }
    // Versions from 0.11.2 on count them instead of naming each.
    if !preemptions.is_empty() {
        log.retractions = preemptions.values().sum::<f64>() as usize;
    }
    (!log.intervals.is_empty()).then_some(log)
}

/// The engine that reports: `Engine 000`, or all together.
fn engine(line: &str) -> &str {
    line.split_once("Engine ").and_then(|(_, rest)| rest.split_once(':')).map_or("", |(number, _)| number)
}

/// Whether drafts are looked up in texts, so that many rounds have none.
fn drafts_from_texts(settings: &LoggedSettings) -> bool {
    settings.algorithm.as_deref().is_some_and(|method| method.starts_with("ngram") || method == "suffix")
}

fn interval(line: &str) -> Option<LogInterval> {
    Some(LogInterval {
        running: number_after(line, "Running:")?,
        waiting: number_after(line, "Waiting:").unwrap_or_default(),
        tokens_per_s: number_after(line, "Avg generation throughput:").filter(|rate| *rate > 0.0)?,
        cache_used: number_after(line, "KV cache usage:").map(|percent| percent / 100.0),
        prompts: number_after(line, "Avg prompt throughput:").is_some_and(|rate| rate > 0.0),
        ..LogInterval::default()
    })
    // A last line after the load averages over idle time.
    .filter(|interval| interval.running > 0.0)
}

/// vLLM averages over rounds with drafts. If many have none, all rounds are counted by the tokens:
/// each is an accepted draft or the last one of a round.
fn read_acceptance(line: &str, interval: &mut LogInterval, drafts_from_texts: bool) {
    let reported = number_after(line, "Mean acceptance length:");
    let accepted = number_after(line, "Accepted throughput:").filter(|_| drafts_from_texts);
    let of_all = |reported: f64| {
        let rounds = interval.tokens_per_s - accepted?;
        Some((interval.tokens_per_s / rounds).min(reported)).filter(|_| rounds > 0.0)
    };
    let length = reported.map(|reported| of_all(reported).unwrap_or(reported));
    let share = match (length, reported) {
        (Some(length), Some(reported)) if reported > 1.0 => (length - 1.0) / (reported - 1.0),
        _ => 1.0,
    };
    let positions = line.split_once("Per-position acceptance rate:").map_or("", |(_, rest)| rest);
    let numbers = positions.split(',').map_while(|word| word.trim().parse::<f64>().ok());
    interval.positions = numbers.map(|rate| rate * share).collect();
    interval.accept_length = length;
}

fn read_settings(line: &str, settings: &mut LoggedSettings) {
    let number = |name| entry(line, name).and_then(|value| value.parse().ok());
    settings.num_steps = number("num_speculative_tokens");
    settings.topk = settings.num_steps.map(|_| 1);
    settings.verified_rows = settings.num_steps.map(|drafts| drafts + 1);
    settings.algorithm =
        entry(line, "method").map(str::to_owned).or(settings.num_steps.map(|_| "a draft model".into()));
    settings.max_running = number("max_num_seqs");
    settings.graphs_off = entry(line, "enforce_eager") == Some("True");
    settings.simulated = entry(line, "rejection_sample_method") == Some("synthetic");
}

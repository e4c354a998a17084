//! vLLM: a line with averages every 10 seconds, and one of speculation after it.

use super::{
    LogInterval, LoggedSettings, ServerLog,
    words::{entry, list_after, number_after},
};
use crate::api::ApiKind;

/// Reads a log; `None` if no line reports a throughput.
pub(super) fn read(text: &str) -> Option<ServerLog> {
    let mut log =
        ServerLog { kind: ApiKind::Vllm, settings: LoggedSettings::default(), intervals: Vec::new(), retractions: 0 };
    for line in text.lines() {
        if line.contains("non-default args:") {
            read_settings(line, &mut log.settings);
        } else if line.contains("Avg generation throughput:") {
            log.intervals.extend(interval(line));
        } else if line.contains("SpecDecoding metrics:") {
            if let Some(last) = log.intervals.last_mut() {
                read_acceptance(line, last);
            }
        } else if line.contains("preempted") {
            log.retractions += 1;
        } else if let Some(sizes) = list_after(line, "'cudagraph_capture_sizes':") {
            log.settings.captured = sizes;
        }
    }
    (!log.intervals.is_empty()).then_some(log)
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

fn read_acceptance(line: &str, interval: &mut LogInterval) {
    interval.accept_length = number_after(line, "Mean acceptance length:");
    let positions = line.split_once("Per-position acceptance rate:").map_or("", |(_, rest)| rest);
    let numbers = positions.split(',').map_while(|word| word.trim().parse().ok());
    interval.positions = numbers.collect();
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

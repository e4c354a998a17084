//! SGLang: a line `Decode batch` after every 40 rounds (`--decode-log-interval`), and a line
//! `Prefill batch` for every batch of prompts.

use std::collections::{HashMap, HashSet};

use super::{
    LogInterval, LoggedSettings, ServerLog,
    words::{list_after, number_after, setting},
};
use crate::api::ApiKind;

/// Reads a log; `None` if no line reports a round.
pub(super) fn read(text: &str) -> Option<ServerLog> {
    let mut log =
        ServerLog { kind: ApiKind::Sglang, settings: LoggedSettings::default(), intervals: Vec::new(), retractions: 0 };
    // Of the ranks that report the same, one counts.
    let mut prompts: HashSet<&str> = HashSet::new();
    let mut retractions: HashMap<&str, usize> = HashMap::new();
    for line in text.lines() {
        let rank = rank(line);
        if line.contains("server_args=") {
            read_settings(line, &mut log.settings);
        } else if line.contains("Prefill batch") {
            prompts.insert(rank);
        } else if line.contains("Decode batch") {
            log.intervals.extend(interval(line, prompts.remove(rank)));
        } else if line.contains("Decode out of memory happened") || line.contains("Retract requests") {
            *retractions.entry(rank).or_default() += 1;
        } else if let Some(sizes) = captured(line) {
            log.settings.captured = sizes;
        }
    }
    log.retractions = retractions.into_values().max().unwrap_or_default();
    (!log.intervals.is_empty()).then_some(log)
}

/// The process that wrote a line, such as `DP0 TP0`: what follows the time in the brackets.
fn rank(line: &str) -> &str {
    let inside = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(inside, _)| inside);
    inside.find(" DP").or_else(|| inside.find(" TP")).map_or("", |at| &inside[at + 1..])
}

fn interval(line: &str, prompts: bool) -> Option<LogInterval> {
    Some(LogInterval {
        running: number_after(line, "#running-req:")?,
        waiting: number_after(line, "#queue-req:").unwrap_or_default(),
        tokens_per_s: number_after(line, "gen throughput (token/s):").filter(|rate| *rate > 0.0)?,
        accept_length: number_after(line, "accept len:"),
        positions: Vec::new(),
        graph: line.split_once("cuda graph:").map(|(_, rest)| rest.trim_start().starts_with("True")),
        cache_used: number_after(line, "token usage:"),
        prompts,
        spent: None,
    })
    .filter(|interval| interval.running > 0.0)
}

/// Batch sizes of the target's graphs; those of the draft are listed on lines of their own.
fn captured(line: &str) -> Option<Vec<usize>> {
    let is_draft = line.contains("draft");
    if !line.to_ascii_lowercase().contains("capture") || is_draft {
        return None;
    }
    list_after(line, "bs=").or_else(|| list_after(line, "bs "))
}

fn read_settings(line: &str, settings: &mut LoggedSettings) {
    let number = |name| setting(line, name).and_then(|value| value.parse().ok());
    settings.algorithm = setting(line, "speculative_algorithm").map(str::to_owned);
    settings.num_steps = number("speculative_num_steps");
    settings.topk = number("speculative_eagle_topk");
    settings.verified_rows = number("speculative_num_draft_tokens");
    settings.max_running = number("max_running_requests");
    settings.graphs_off = setting(line, "disable_cuda_graph") == Some("True");
}

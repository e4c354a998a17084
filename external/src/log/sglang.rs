//! SGLang: a line `Decode batch` after every 40 rounds (`--decode-log-interval`), and a line
//! `Prefill batch` for every batch of prompts.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{
    LogInterval, LoggedSettings, ServerLog, printed,
    words::{list_after, number_after},
};
use crate::api::ApiKind;

/// Reads a log; `None` if no line reports a round.
pub(super) fn read(text: &str) -> Option<ServerLog> {
    let mut log =
        ServerLog { kind: ApiKind::Sglang, settings: LoggedSettings::default(), intervals: Vec::new(), retractions: 0 };
    // Of the ranks that report the same, one counts.
    let mut prompts: HashSet<&str> = HashSet::new();
    let mut retractions: HashMap<&str, usize> = HashMap::new();
    let mut captured_sizes = Vec::new();
    for line in text.lines() {
        let rank = rank(line);
        if let Some((_, arguments)) = line.split_once("server_args=") {
            let printed = settings(&Value::Object(printed::mapping(arguments)));
            log.settings = LoggedSettings { free_memory: log.settings.free_memory, ..printed };
        } else if line.contains("Prefill batch") {
            prompts.insert(rank);
        } else if line.contains("Decode batch") {
            log.intervals.extend(interval(line, prompts.remove(rank)));
        } else if line.contains("Decode out of memory happened") || line.contains("Retract requests") {
            *retractions.entry(rank).or_default() += 1;
        } else if let Some(sizes) = captured(line) {
            captured_sizes = sizes;
        } else if line.contains("Load weight begin") {
            let free = number_after(line, "avail mem=").map(|gib| (gib * 1024.0) as u64);
            log.settings.free_memory = log.settings.free_memory.max(free);
        }
    }
    // What was captured decides, wherever it is printed.
    if !captured_sizes.is_empty() {
        log.settings.captured = captured_sizes;
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
    // Not that of `num_tokens_per_bs=4`.
    list_after(line, " bs=").or_else(|| list_after(line, "bs "))
}

/// What a server says of its configuration, in the form of SGLang's arguments: as it prints them at
/// the start, or answers them at `/server_info`.
pub(super) fn settings(arguments: &Value) -> LoggedSettings {
    let number = |name: &str| arguments[name].as_u64().and_then(|number| usize::try_from(number).ok());
    let text = |name: &str| arguments[name].as_str().map(str::to_owned);
    let is_on = |name: &str| arguments[name] == true;
    let decode = &arguments["cuda_graph_config"]["decode"];
    LoggedSettings {
        engine: text("engine"),
        algorithm: text("speculative_algorithm"),
        num_steps: number("speculative_num_steps"),
        topk: number("speculative_eagle_topk"),
        verified_rows: number("speculative_num_draft_tokens"),
        max_running: number("max_running_requests"),
        graphs_off: is_on("disable_cuda_graph")
            || is_on("disable_decode_cuda_graph")
            || decode["backend"] == "disabled",
        captured: stated_sizes(arguments),
        arguments: arguments.clone(),
        version: text("version"),
        free_memory: None,
        simulated: arguments["simulate_accept_length"].is_number(),
    }
}

/// The captured batch sizes, ascending. SGLang resolves them into `cuda_graph_config` from 0.5.14
/// on, and into `cuda_graph_bs` from 0.5.6 on; before, both forms have what the user gave.
fn stated_sizes(arguments: &Value) -> Vec<usize> {
    let places = [
        &arguments["internal_states"][0]["decode_cuda_graph_bs"],
        &arguments["cuda_graph_config"]["decode"]["bs"],
        &arguments["cuda_graph_bs_decode"],
        &arguments["cuda_graph_bs"],
    ];
    let lists = places.into_iter().filter_map(Value::as_array);
    let sizes = lists.map(|list| list.iter().filter_map(|size| usize::try_from(size.as_u64()?).ok()).collect());
    let mut sizes: Vec<usize> = sizes.into_iter().find(|sizes: &Vec<usize>| !sizes.is_empty()).unwrap_or_default();
    sizes.sort_unstable();
    sizes
}

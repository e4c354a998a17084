//! SGLang: a line `Decode batch` after every 40 rounds (`--decode-log-interval`), and a line
//! `Prefill batch` for every batch of prompts.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{
    LogInterval, LoggedSettings, ServerLog, prefix, printed,
    starts::{LoggedReport, LoggedStarts},
    words::{list_after, number_after},
};
use crate::api::ApiKind;

/// Rounds between two reports (`--decode-log-interval`).
const ROUNDS: u64 = 40;

/// The process that wrote a line, by the names in the brackets: `DP0 PP1 TP2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Rank {
    /// The data-parallel rank, which has requests of its own.
    data: Option<u32>,
    /// Its stage of the pipeline, its part of the context, and its tensor-parallel rank: of those
    /// that work on the same requests, the first one counts.
    part: [u32; 3],
}

/// What is remembered between the lines of a server.
#[derive(Default)]
pub(super) struct SglangState {
    reports: Vec<(Rank, usize, LogInterval)>,
    /// Ranks that have processed prompts since their last report.
    prompts: HashSet<Rank>,
    retractions: HashMap<Rank, usize>,
    captured: Vec<usize>,
    /// The limit of running requests that holds for a data-parallel rank.
    most_running: Option<usize>,
}

/// Reads a line.
pub(super) fn line(starts: &mut LoggedStarts<SglangState>, line: &str) {
    starts.line += 1;
    let number = starts.line;
    if let Some(settings) = line.split_once("server_args=").and_then(|(_, arguments)| printed_settings(arguments)) {
        starts.configure(prefix::source_of(line), |before| LoggedSettings {
            free_memory: before.free_memory,
            ..settings
        });
    } else if line.contains("Prefill batch") {
        starts.current(prefix::source_of(line)).state.prompts.insert(rank(line));
    } else if line.contains("Decode batch") {
        let start = starts.current(prefix::source_of(line));
        let rank = rank(line);
        let prompts = start.state.prompts.remove(&rank);
        if let Some(interval) = interval(line, prompts, &start.settings) {
            start.reports_at(number);
            start.state.reports.push((rank, number, interval));
        }
    } else if line.contains("Decode out of memory happened") || line.contains("Retract requests") {
        let requests = number_after(line, "#retracted_reqs:").unwrap_or(1.0) as usize;
        *starts.current(prefix::source_of(line)).state.retractions.entry(rank(line)).or_default() += requests;
    } else if line.contains("max_total_num_tokens=") && line.contains("context_len=") {
        let most = number_after(line, "max_running_requests=").map(|most| most as usize);
        starts.current(prefix::source_of(line)).state.most_running = most;
    } else if let Some(sizes) = captured(line) {
        starts.current(prefix::source_of(line)).state.captured = sizes;
    } else if line.contains("Load weight begin") {
        let free = number_after(line, "avail mem=").map(|gib| (gib * 1024.0) as u64);
        let settings = &mut starts.current(prefix::source_of(line)).settings;
        settings.free_memory = settings.free_memory.max(free);
    }
}

/// The servers that report rounds.
pub(super) fn servers(starts: LoggedStarts<SglangState>) -> Vec<ServerLog> {
    starts.servers(ApiKind::Sglang, |settings, state| {
        // What was captured and what holds decides, wherever it is printed.
        if !state.captured.is_empty() {
            settings.captured = state.captured;
        }
        settings.max_running = state.most_running.or(settings.max_running);
        // Of the ranks that report the same, one counts.
        let mut first: HashMap<Option<u32>, [u32; 3]> = HashMap::new();
        for (rank, ..) in &state.reports {
            let part = first.entry(rank.data).or_insert(rank.part);
            *part = rank.part.min(*part);
        }
        let counted = state.reports.into_iter().filter(|(rank, ..)| first[&rank.data] == rank.part);
        let reports = counted
            .map(|(rank, line, interval)| LoggedReport { line, rank: format!("{:?}", rank.data), interval })
            .collect();
        let mut retractions: HashMap<Option<u32>, usize> = HashMap::new();
        for (rank, requests) in state.retractions {
            let most = retractions.entry(rank.data).or_default();
            *most = requests.max(*most);
        }
        (reports, retractions.into_values().sum())
    })
}

/// The settings of the arguments that a server prints; `None` for a text without arguments. With
/// attention in data-parallel ranks, the given limit of running requests is that of all of them.
fn printed_settings(arguments: &str) -> Option<LoggedSettings> {
    let arguments = Some(printed::mapping(arguments)).filter(|arguments| !arguments.is_empty())?;
    let mut settings = settings(&Value::Object(arguments));
    let arguments = &settings.arguments;
    let ranks = arguments["dp_size"].as_u64().filter(|_| arguments["enable_dp_attention"] == true);
    let ranks = ranks.and_then(|ranks| usize::try_from(ranks).ok()).unwrap_or(1).max(1);
    settings.max_running = settings.max_running.map(|all| all / ranks);
    Some(settings)
}

/// The ranks in the brackets that begin with the time.
fn rank(line: &str) -> Rank {
    let mut inside = line.split('[').skip(1).filter_map(|rest| rest.split_once(']')).map(|(inside, _)| inside);
    let is_time = |inside: &&str| inside.starts_with(|first: char| first.is_ascii_digit()) && inside.contains(':');
    let mut rank = Rank::default();
    for word in inside.find(is_time).unwrap_or_default().split(' ') {
        let number = |name: &str| word.strip_prefix(name).and_then(|number| number.parse().ok());
        rank.data = number("DP").or(rank.data);
        for (part, name) in rank.part.iter_mut().zip(["PP", "ATTN_CP", "TP"]) {
            *part = number(name).unwrap_or(*part);
        }
    }
    rank
}

fn interval(line: &str, prompts: bool, settings: &LoggedSettings) -> Option<LogInterval> {
    let running = number_after(line, "#running-req:").filter(|running| *running > 0.0)?;
    let tokens_per_s = number_after(line, "gen throughput (token/s):").filter(|rate| *rate > 0.0)?;
    let accept_length = number_after(line, "accept len:").filter(|length| *length > 0.0);
    let rounds = settings.arguments["decode_log_interval"].as_u64().unwrap_or(ROUNDS) as f64;
    Some(LogInterval {
        source: 0,
        seconds: rounds * running * accept_length.unwrap_or(1.0) / tokens_per_s,
        running,
        waiting: number_after(line, "#queue-req:").unwrap_or_default(),
        tokens_per_s,
        speculates: accept_length.is_some() || settings.algorithm.is_some(),
        accept_length,
        positions: Vec::new(),
        // `cuda graph`, `cpu graph`, `npu graph`, `musa graph`
        graph: line.split_once(" graph:").map(|(_, rest)| rest.trim_start().starts_with("True")),
        cache_used: cache_used(line),
        prompts,
        spent: None,
    })
}

/// The fullest of a server's pools: a hybrid model has several, as `full token usage`, `swa token
/// usage` and `mamba usage`. That of the host, and what is reserved for requests that are still
/// prefilled elsewhere, do not limit the batch.
fn cache_used(line: &str) -> Option<f64> {
    /// How the names of these begin.
    const OTHERS: [&str; 2] = ["cpu", "pre-allocated"];
    let pools = line.split(", ").filter_map(|part| Some((part.split_once("usage:")?.0.trim_start(), part)));
    let counted = pools.filter(|(name, _)| !OTHERS.iter().any(|other| name.starts_with(other)));
    counted.filter_map(|(_, part)| number_after(part, "usage:")).max_by(f64::total_cmp)
}

/// Batch sizes of the target's graphs; those of the draft are listed on lines of their own.
fn captured(line: &str) -> Option<Vec<usize>> {
    // Not that of `num_tokens_per_bs=4`.
    let sizes = list_after(line, " bs=").or_else(|| list_after(line, "bs "))?;
    let is_target = !line.contains("draft") && line.to_ascii_lowercase().contains("capture");
    is_target.then_some(sizes)
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
        max_running: most_running(arguments).or_else(|| number("max_running_requests")),
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

/// What holds for all data-parallel ranks of a running server together; its arguments have what was
/// given.
fn most_running(answer: &Value) -> Option<usize> {
    let states = answer["internal_states"].as_array()?;
    let each: Option<u64> = states.iter().map(|state| state["effective_max_running_requests_per_dp"].as_u64()).sum();
    each.filter(|most| *most > 0).and_then(|most| usize::try_from(most).ok())
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

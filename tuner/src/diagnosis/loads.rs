//! Figures of a log by number of running requests.

use std::collections::{BTreeMap, HashMap};

use external::log::{LogInterval, ServerLog, Spent};
use serde::Serialize;

/// Figures at about one number of running requests of a rank or engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadFigures {
    /// Running requests; mean over the time.
    pub running: f64,
    /// Number of reports, of all ranks and engines.
    pub reports: usize,
    /// Tokens per second, prompts included: all tokens / all time of these reports.
    pub tokens_per_s: f64,
    /// Tokens per round and request: all tokens / all rounds of requests; `None` without
    /// speculation, and if it is not known.
    pub accept_length: Option<f64>,
    /// Milliseconds a round; median over reports in which no prompt was processed. `None` if there
    /// are fewer than two.
    pub round_ms: Option<f64>,
    /// The share of the time that is not rounds: prompts, the host, idle time; `None` without
    /// `round_ms`.
    pub other_share: Option<f64>,
    /// The share of reports whose rounds ran outside CUDA graphs, if the engine reports it.
    pub outside_graphs: Option<f64>,
    /// Waiting requests; mean over the time.
    pub waiting: f64,
    /// Used share of the KV cache; maximum.
    pub cache_used: Option<f64>,
    /// The share of rounds in which each position was accepted.
    pub positions: Vec<f64>,
    /// What the time was spent on, if the engine counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spent: Option<TimeSpent>,
}

/// Shares of the time, as the engine counts it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimeSpent {
    /// Share in rounds.
    pub rounds: f64,
    /// Share in prefill.
    pub prefill: f64,
    /// Milliseconds of a round that draft, verify, and extend the draft; `None` where the device
    /// does not time them.
    pub parts_ms: Option<[f64; 3]>,
}

/// Groups reports by running requests, in steps of a power of two's quarter, so that a batch that
/// shrinks and grows by a few requests is one load. Groups in which no rank or engine has a second
/// report are left out if there are larger ones: they are the beginning and the end of a run.
pub fn by_running(log: &ServerLog) -> Vec<LoadFigures> {
    let mut groups: BTreeMap<i64, Vec<&LogInterval>> = BTreeMap::new();
    for interval in steady(&log.intervals) {
        groups.entry((4.0 * interval.running.log2()).round() as i64).or_default().push(interval);
    }
    let most = groups.values().map(|group| of_one_source(group)).max().unwrap_or_default();
    let counted = groups.values().filter(|group| most == 1 || of_one_source(group) > 1);
    counted.map(|group| figures(group)).collect()
}

/// The largest number of reports of one rank or engine.
fn of_one_source(group: &[&LogInterval]) -> usize {
    let mut reports: HashMap<usize, usize> = HashMap::new();
    for interval in group {
        *reports.entry(interval.source).or_default() += 1;
    }
    reports.into_values().max().unwrap_or_default()
}

/// Reports after a report of the same rank or engine with at least half of their running requests:
/// others measure how a load begins.
fn steady(intervals: &[LogInterval]) -> Vec<&LogInterval> {
    let mut before: HashMap<usize, f64> = HashMap::new();
    let continues = |interval: &&LogInterval| {
        before.insert(interval.source, interval.running).is_some_and(|before| before * 2.0 >= interval.running)
    };
    let steady: Vec<&LogInterval> = intervals.iter().filter(continues).collect();
    if steady.is_empty() { intervals.iter().collect() } else { steady }
}

/// Reports are of as many rounds (SGLang) or of as much time (vLLM), so neither rates nor times of
/// rounds can be averaged over them: tokens, rounds and seconds are added up.
fn figures(group: &[&LogInterval]) -> LoadFigures {
    let sum = |value: &dyn Fn(&LogInterval) -> f64| group.iter().map(|interval| value(interval)).sum::<f64>();
    let seconds = sum(&|interval| interval.seconds);
    let over_time = |value: &dyn Fn(&LogInterval) -> f64| sum(&|interval| value(interval) * interval.seconds) / seconds;
    let spent = group.iter().filter_map(|interval| interval.spent).reduce(Spent::and);
    let counted = spent.filter(|spent| spent.rounds > 0.0).map(|spent| spent.in_rounds / spent.rounds * 1e3);
    let without_prompts = group.iter().filter(|interval| !interval.prompts);
    let clean: Vec<f64> = without_prompts.filter_map(|interval| interval.round_ms()).collect();
    let round_ms = counted.or_else(|| (clean.len() > 1).then(|| median(clean)));
    let graphs = group.iter().filter(|interval| interval.graph.is_some()).count();
    let outside = group.iter().filter(|interval| interval.graph == Some(false)).count();
    LoadFigures {
        running: over_time(&|interval| interval.running),
        reports: group.len(),
        tokens_per_s: sum(&LogInterval::tokens) / seconds,
        accept_length: accept_length(group),
        round_ms,
        other_share: match spent {
            Some(spent) => Some((1.0 - spent.in_rounds / spent.all).max(0.0)),
            None => round_ms.map(|round_ms| other_share(group, round_ms)),
        },
        outside_graphs: (graphs > 0).then(|| outside as f64 / graphs as f64),
        waiting: over_time(&|interval| interval.waiting),
        cache_used: group.iter().filter_map(|interval| interval.cache_used).max_by(f64::total_cmp),
        positions: positions(group),
        spent: spent.filter(|spent| spent.rounds > 0.0).map(time_spent),
    }
}

/// All tokens / all rounds of requests.
fn accept_length(group: &[&LogInterval]) -> Option<f64> {
    let known = group.iter().filter_map(|interval| Some((interval.tokens(), request_rounds(interval)?)));
    let (tokens, rounds) = known.reduce(|one, other| (one.0 + other.0, one.1 + other.1))?;
    Some(tokens / rounds)
}

/// Rounds of speculation, counted for each request.
fn request_rounds(interval: &LogInterval) -> Option<f64> {
    interval.accept_length.map(|length| interval.tokens() / length)
}

/// The share of the time that rounds of this duration do not take, over reports whose number of
/// rounds is known.
fn other_share(group: &[&LogInterval], round_ms: f64) -> f64 {
    let known = group.iter().filter_map(|interval| Some((interval.seconds, interval.round_ms()?)));
    let (all, in_rounds) = known.fold((0.0, 0.0), |(all, in_rounds), (seconds, each_ms)| {
        (all + seconds, in_rounds + seconds * round_ms / each_ms)
    });
    (1.0 - in_rounds / all).max(0.0)
}

fn time_spent(spent: Spent) -> TimeSpent {
    let is_timed = spent.parts.iter().any(|seconds| *seconds > 0.0);
    TimeSpent {
        rounds: spent.in_rounds / spent.all,
        prefill: spent.in_prefill / spent.all,
        parts_ms: is_timed.then(|| spent.parts.map(|seconds| seconds / spent.rounds * 1e3)),
    }
}

/// Acceptance by position over all rounds of requests, of the reports with the most positions.
fn positions(group: &[&LogInterval]) -> Vec<f64> {
    let count = group.iter().map(|interval| interval.positions.len()).max().unwrap_or_default();
    let rows = group.iter().filter(|interval| interval.positions.len() == count);
    let rows: Vec<(&[f64], f64)> =
        rows.map(|interval| (&interval.positions[..], request_rounds(interval).unwrap_or(1.0))).collect();
    let rounds: f64 = rows.iter().map(|(_, rounds)| rounds).sum();
    (0..count).map(|at| rows.iter().map(|(row, rounds)| row[at] * rounds).sum::<f64>() / rounds).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

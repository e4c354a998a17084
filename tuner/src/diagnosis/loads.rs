//! Figures of a log by number of running requests.

use std::collections::BTreeMap;

use external::log::{LogInterval, ServerLog, Spent};
use serde::Serialize;

/// Figures at about one number of running requests: medians over its reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadFigures {
    /// Running requests; mean.
    pub running: f64,
    /// Number of reports.
    pub reports: usize,
    /// Tokens per second, prompts included: all tokens / all time of these reports.
    pub tokens_per_s: f64,
    /// Tokens per round and request; `None` without speculation.
    pub accept_length: Option<f64>,
    /// Milliseconds a round, over reports in which no prompt was processed; `None` if there are
    /// fewer than two.
    pub round_ms: Option<f64>,
    /// The share of the time that is not rounds: prompts, the host, idle time; `None` without
    /// `round_ms`.
    pub other_share: Option<f64>,
    /// The share of reports whose rounds ran outside CUDA graphs, if the engine reports it.
    pub outside_graphs: Option<f64>,
    /// Waiting requests; mean.
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
/// shrinks and grows by a few requests is one load. Groups of a single report are left out if there
/// are larger ones: they are the beginning and the end of a run.
pub fn by_running(log: &ServerLog) -> Vec<LoadFigures> {
    let mut groups: BTreeMap<i64, Vec<&LogInterval>> = BTreeMap::new();
    for interval in steady(&log.intervals) {
        groups.entry((4.0 * interval.running.log2()).round() as i64).or_default().push(interval);
    }
    let most = groups.values().map(Vec::len).max().unwrap_or_default();
    groups.values().filter(|group| group.len() > 1 || most == 1).map(|group| figures(group)).collect()
}

/// Reports after a report with at least half of their running requests: others measure how a load
/// begins.
fn steady(intervals: &[LogInterval]) -> Vec<&LogInterval> {
    let pairs = intervals.windows(2).filter(|pair| pair[0].running * 2.0 >= pair[1].running);
    let steady: Vec<&LogInterval> = pairs.map(|pair| &pair[1]).collect();
    if steady.is_empty() { intervals.iter().collect() } else { steady }
}

fn figures(group: &[&LogInterval]) -> LoadFigures {
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let all = |value: &dyn Fn(&LogInterval) -> f64| group.iter().map(|interval| value(interval)).collect::<Vec<f64>>();
    // All reports are of as many rounds or of as much time: either way, times of rounds add up.
    let round = mean(all(&LogInterval::round_ms));
    let clean: Vec<f64> =
        group.iter().filter(|interval| !interval.prompts).map(|interval| interval.round_ms()).collect();
    let spent = group.iter().filter_map(|interval| interval.spent).reduce(Spent::and);
    let counted = spent.filter(|spent| spent.rounds > 0.0).map(|spent| spent.in_rounds / spent.rounds * 1e3);
    let round_ms = counted.or_else(|| (clean.len() > 1).then(|| median(clean)));
    let lengths: Vec<f64> = group.iter().filter_map(|interval| interval.accept_length).collect();
    let accept_length = (!lengths.is_empty()).then(|| mean(lengths));
    let running = mean(all(&|interval| interval.running));
    let graphs: Vec<f64> =
        group.iter().filter_map(|interval| interval.graph).map(|graph| f64::from(u8::from(!graph))).collect();
    LoadFigures {
        running,
        reports: group.len(),
        tokens_per_s: match spent {
            Some(_) => mean(all(&|interval| interval.tokens_per_s)),
            None => running * accept_length.unwrap_or(1.0) / round * 1e3,
        },
        accept_length,
        round_ms,
        other_share: match spent {
            Some(spent) => Some((1.0 - spent.in_rounds / spent.all).max(0.0)),
            None => round_ms.map(|clean| (1.0 - clean / round).max(0.0)),
        },
        outside_graphs: (!graphs.is_empty()).then(|| mean(graphs)),
        waiting: mean(all(&|interval| interval.waiting)),
        cache_used: group.iter().filter_map(|interval| interval.cache_used).max_by(f64::total_cmp),
        positions: positions(group),
        spent: spent.filter(|spent| spent.rounds > 0.0).map(time_spent),
    }
}

fn time_spent(spent: Spent) -> TimeSpent {
    let is_timed = spent.parts.iter().any(|seconds| *seconds > 0.0);
    TimeSpent {
        rounds: spent.in_rounds / spent.all,
        prefill: spent.in_prefill / spent.all,
        parts_ms: is_timed.then(|| spent.parts.map(|seconds| seconds / spent.rounds * 1e3)),
    }
}

/// Mean acceptance by position, over the reports with the most positions.
fn positions(group: &[&LogInterval]) -> Vec<f64> {
    let count = group.iter().map(|interval| interval.positions.len()).max().unwrap_or_default();
    let rows: Vec<&[f64]> =
        group.iter().map(|interval| &interval.positions[..]).filter(|row| row.len() == count).collect();
    (0..count).map(|at| rows.iter().map(|row| row[at]).sum::<f64>() / rows.len() as f64).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

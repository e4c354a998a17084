//! vLLM: a line with averages every few seconds (`VLLM_LOG_STATS_INTERVAL`, 10 by default; engine
//! V0, up to 0.10: at least 5), and one of speculation after it. The latter has had four forms:
//!
//! - V0: `Speculative metrics: … Number of emitted tokens: 10616.`, counted since the start.
//! - V1 in 0.8: `SpecDecoding metrics: Draft acceptance rate: 60.0%, Accepted: 300 tokens, Drafted:
//!   500 tokens` (or `Number of accepted tokens: 300, Number of draft tokens: 500`).
//! - 0.9 and 0.10: the same with `Mean acceptance length: 4.00`.
//! - From 0.11 on: with `Accepted throughput: 30.00 tokens/s` too.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    LogInterval, LoggedSettings, ServerLog, prefix, printed,
    starts::{LoggedReport, LoggedStarts},
    words::{entry, list_after, number_after, time_of_day},
};
use crate::api::ApiKind;

/// Seconds between two reports whose times are not known.
const PERIOD: f64 = 10.0;

/// Seconds between two reports beyond which the server had nothing to report.
const LONGEST: u32 = 600;

/// A report, whose acceptance is understood when the time between reports is known.
struct Line {
    report: LoggedReport,
    drafts: Option<LoggedDrafts>,
    /// Whether engine V1 wrote it, which has no line of drafts if there were none.
    is_v1: bool,
}

/// What a line of speculation says of a period.
struct LoggedDrafts {
    /// Tokens per round with drafts.
    length: Option<f64>,
    accepted: Option<f64>,
    accepted_per_s: Option<f64>,
    drafted: Option<f64>,
    positions: Vec<f64>,
}

/// What is remembered between the lines of a server.
#[derive(Default)]
pub(super) struct VllmState {
    lines: Vec<Line>,
    /// A report of speculation belongs to the throughput before it, which may have been left out.
    is_kept: bool,
    /// The time of each engine's last report, and the times between reports.
    at: HashMap<String, u32>,
    periods: Vec<u32>,
    /// Drafted and emitted tokens of engine V0 since its start.
    so_far: [f64; 2],
    /// Requests that were put back: each period's number (from 0.11.2 on), engine V0's number since
    /// its start, and the lines that name one.
    preemptions: [usize; 3],
    /// Number of engines that one line is about.
    together: Option<usize>,
}

/// Reads a line.
pub(super) fn line(starts: &mut LoggedStarts<VllmState>, line: &str) {
    starts.line += 1;
    let number = starts.line;
    if let Some(arguments) = after(line, &["non-default args:", " args: Namespace"]) {
        starts.configure(prefix::source_of(line), |_| given(line, arguments));
    } else if let Some((_, config)) = line.split_once("LLM engine (v").filter(|_| line.contains("Initializing a")) {
        initialized(config, &mut starts.begin(prefix::source_of(line)).settings);
    } else if line.contains("Avg generation throughput:") {
        let start = starts.current(prefix::source_of(line));
        throughput(line, number, &mut start.state);
        if start.state.is_kept {
            start.reports_at(number);
        }
    } else if line.contains("SpecDecoding metrics:") || line.contains("Speculative metrics:") {
        let start = starts.current(prefix::source_of(line));
        let drafts = drafts(line, &mut start.state.so_far);
        if let Some(last) = start.state.lines.last_mut().filter(|_| start.state.is_kept) {
            last.drafts = Some(drafts);
        }
    } else if line.contains("preempted") {
        let [_, since_start, lines] = &mut starts.current(prefix::source_of(line)).state.preemptions;
        *since_start = number_after(line, "total_num_cumulative_preemption=").map_or(*since_start, |all| all as usize);
        *lines += 1;
    } else if let Some(sizes) = captured(line) {
        starts.current(prefix::source_of(line)).settings.captured = sizes;
    }
}

/// What follows the first of these texts that a line has.
fn after<'a>(line: &'a str, texts: &[&str]) -> Option<&'a str> {
    texts.iter().find_map(|text| line.split_once(text)).map(|(_, rest)| rest)
}

fn captured(line: &str) -> Option<Vec<usize>> {
    ["'cudagraph_capture_sizes':", "\"cudagraph_capture_sizes\":"].iter().find_map(|name| list_after(line, name))
}

fn throughput(line: &str, number: usize, state: &mut VllmState) {
    let engine = engine(line);
    if let Some(now) = time_of_day(line) {
        let before = state.at.insert(engine.to_owned(), now);
        let period = before.map(|before| (now + 86_400 - before) % 86_400);
        state.periods.extend(period.filter(|period| (1..=LONGEST).contains(period)));
    }
    state.preemptions[0] += number_after(line, "Preemptions:").unwrap_or_default() as usize;
    let together = line.split_once(" Engines Aggregated:");
    state.together = together.and_then(|(before, _)| before.split(' ').next_back()?.parse().ok());
    let found = interval(line);
    state.is_kept = found.is_some();
    state.lines.extend(found.map(|interval| Line {
        report: LoggedReport { line: number, rank: engine.to_owned(), interval },
        drafts: None,
        is_v1: line.contains("Engine"),
    }));
}

/// The engine that reports: `Engine 000`, or all together.
fn engine(line: &str) -> &str {
    line.split_once("Engine ").and_then(|(_, rest)| rest.split_once(':')).map_or("", |(number, _)| number)
}

fn interval(line: &str) -> Option<LogInterval> {
    Some(LogInterval {
        running: number_after(line, "Running:")?,
        waiting: number_after(line, "Waiting:").or_else(|| number_after(line, "Pending:")).unwrap_or_default(),
        tokens_per_s: number_after(line, "Avg generation throughput:").filter(|rate| *rate > 0.0)?,
        cache_used: number_after(line, "KV cache usage:").map(|percent| percent / 100.0),
        prompts: number_after(line, "Avg prompt throughput:").is_some_and(|rate| rate > 0.0),
        ..LogInterval::default()
    })
    // A last line after the load averages over idle time.
    .filter(|interval| interval.running > 0.0)
}

fn drafts(line: &str, so_far: &mut [f64; 2]) -> LoggedDrafts {
    let number = |name| number_after(line, name);
    let rates = line.split_once("Per-position acceptance rate:").map_or("", |(_, rest)| rest);
    let mut found = LoggedDrafts {
        length: number("Mean acceptance length:"),
        accepted: number("Accepted:").or_else(|| number("Number of accepted tokens:")),
        accepted_per_s: number("Accepted throughput:"),
        drafted: number("Drafted:").or_else(|| number("Number of draft tokens:")),
        positions: rates.split(',').map_while(|word| word.trim().parse().ok()).collect(),
    };
    // Engine V0 counts from its start, and as accepted also what follows a rejected draft.
    if let Some(((emitted, drafted), depth)) =
        number("Number of emitted tokens:").zip(found.drafted).zip(number("Number of speculative tokens:"))
    {
        let now = [drafted, emitted];
        // A server that started over counts from 0 again.
        let before = if now.iter().zip(&*so_far).all(|(now, before)| now >= before) { *so_far } else { [0.0; 2] };
        *so_far = now;
        let (rounds, emitted) = ((drafted - before[0]) / depth, emitted - before[1]);
        // The numbers are collected less often than they are printed.
        found.length = (rounds > 0.0).then(|| emitted / rounds);
        found.accepted = (rounds > 0.0).then(|| (emitted - rounds).max(0.0));
        found.drafted = Some(drafted - before[0]);
    }
    found
}

/// The servers that report throughputs.
pub(super) fn servers(starts: LoggedStarts<VllmState>) -> Vec<ServerLog> {
    starts.servers(ApiKind::Vllm, |settings, state| {
        let seconds = period(state.periods);
        settings.max_running = settings.max_running.map(|each| each * state.together.unwrap_or(1));
        let settings = &*settings;
        let has_drafts = state.lines.iter().any(|line| line.drafts.is_some());
        let reports = state.lines.into_iter().map(|mut line| {
            let interval = &mut line.report.interval;
            interval.seconds = seconds;
            interval.speculates = settings.algorithm.is_some();
            match line.drafts {
                Some(drafts) => read_acceptance(drafts, interval, settings),
                // No round of this period had a draft.
                None if line.is_v1 && has_drafts && drafts_from_texts(settings) => interval.accept_length = Some(1.0),
                None => {}
            }
            line.report
        });
        let reports = reports.collect();
        let [each_period, since_start, lines] = state.preemptions;
        let named = if since_start > 0 { since_start } else { lines };
        (reports, if each_period > 0 { each_period } else { named })
    })
}

/// Seconds between two reports: the median.
fn period(mut periods: Vec<u32>) -> f64 {
    periods.sort_unstable();
    periods.get(periods.len() / 2).map_or(PERIOD, |seconds| f64::from(*seconds))
}

/// Whether drafts are looked up in texts, so that many rounds have none.
fn drafts_from_texts(settings: &LoggedSettings) -> bool {
    settings.algorithm.as_deref().is_some_and(|method| method.starts_with("ngram") || method == "suffix")
}

/// vLLM averages over rounds with drafts. If many have none, all rounds are counted by the tokens:
/// each is an accepted draft or the last one of a round.
fn read_acceptance(drafts: LoggedDrafts, interval: &mut LogInterval, settings: &LoggedSettings) {
    let drafted = drafts.drafted.filter(|drafted| *drafted > 0.0);
    // Some versions of 0.8 write such a line without speculation too.
    if settings.algorithm.is_none() && drafted.is_none() && drafts.length.is_none() {
        return;
    }
    interval.speculates = true;
    let by_depth = || {
        let rounds = drafted? / settings.num_steps? as f64;
        Some(1.0 + drafts.accepted? / rounds)
    };
    let reported = drafts.length.or_else(by_depth).filter(|length| *length >= 1.0);
    let accepted = drafts.accepted_per_s.or_else(|| drafts.accepted.map(|tokens| tokens / interval.seconds));
    let of_all = accepted.map(|accepted| {
        let rounds = interval.tokens_per_s - accepted;
        let length = (rounds > 0.0).then(|| interval.tokens_per_s / rounds);
        length.into_iter().chain(reported).reduce(f64::min)
    });
    let length = match of_all.flatten() {
        of_all if drafts_from_texts(settings) => of_all,
        of_all => reported.or(of_all),
    };
    let share = match (length, reported) {
        (Some(length), Some(reported)) if reported > 1.0 => (length - 1.0) / (reported - 1.0),
        _ => 1.0,
    };
    interval.positions = drafts.positions.iter().map(|rate| rate * share).collect();
    interval.accept_length = length;
}

/// The settings of a launch, as its first lines print them: `{'max_num_seqs': 64, …}`, or
/// `(max_num_seqs=64, …)` up to 0.8.
fn given(line: &str, arguments: &str) -> LoggedSettings {
    let arguments = arguments.trim_start();
    let form = if arguments.starts_with('(') { "Namespace" } else { "" };
    let arguments = Value::Object(printed::mapping(&format!("{form}{arguments}")));
    let config = match &arguments["speculative_config"] {
        Value::String(json) => Value::Object(printed::mapping(json)),
        other => other.clone(),
    };
    // Of a dictionary that is not understood as a whole, the entry is read.
    let written = |name: &str| entry(line, name).filter(|_| !config.is_object() && line.contains("speculative_config"));
    let text = |name: &str| config[name].as_str().or_else(|| written(name)).map(str::to_owned);
    let whole = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let num_steps = whole(&config["num_speculative_tokens"])
        .or_else(|| whole(&arguments["num_speculative_tokens"]))
        .or_else(|| written("num_speculative_tokens")?.parse().ok());
    let max_running = whole(&arguments["max_num_seqs"]).or_else(|| entry(line, "max_num_seqs")?.parse().ok());
    // Arguments of their own up to 0.8.
    let model = arguments["speculative_model"].as_str();
    let unnamed = || match model {
        Some(model) if model.contains("ngram") => Some("ngram".to_owned()),
        _ => (model.is_some() || num_steps.is_some()).then(|| "a draft model".to_owned()),
    };
    LoggedSettings {
        algorithm: text("method").or_else(unnamed),
        num_steps,
        topk: num_steps.map(|_| 1),
        verified_rows: num_steps.map(|drafts| drafts + 1),
        max_running,
        graphs_off: arguments["enforce_eager"] == true || entry(line, "enforce_eager") == Some("True"),
        simulated: text("rejection_sample_method").as_deref() == Some("synthetic"),
        ..LoggedSettings::default()
    }
}

/// Fills in what an engine says of itself: `0.10.2) with config: model='m',
/// speculative_config=SpeculativeConfig(method='eagle3', model='e', num_spec_tokens=3), …`. It is
/// the only line with settings where no server was launched by flags.
fn initialized(config: &str, settings: &mut LoggedSettings) {
    settings.graphs_off |= config.contains("enforce_eager=True");
    if let Some(sizes) = captured(config) {
        settings.captured = sizes;
    }
    let Some((_, speculation)) = config.split_once("speculative_config=") else { return };
    if speculation.starts_with("None") {
        (settings.algorithm, settings.num_steps, settings.topk, settings.verified_rows) = (None, None, None, None);
    }
    let speculation = Value::Object(printed::mapping(speculation));
    if let Some(depth) = speculation["num_spec_tokens"].as_u64().and_then(|depth| usize::try_from(depth).ok()) {
        let draft = speculation["draft_model"].as_str();
        let unnamed = if draft.is_some_and(|draft| draft.contains("ngram")) { "ngram" } else { "a draft model" };
        let method = speculation["method"].as_str().map(str::to_owned);
        settings.algorithm = method.or(settings.algorithm.take()).or_else(|| Some(unnamed.to_owned()));
        (settings.num_steps, settings.topk, settings.verified_rows) = (Some(depth), Some(1), Some(depth + 1));
    }
}

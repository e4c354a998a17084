//! The figures of a running server, in the form of its log: each interval lies between two readings
//! of its metrics.
//!
//! SGLang's (0.5.23) and vLLM's counters are read by their differences. SGLang counts
//! `generation_tokens_total` when a request ends, so tokens come from `realtime_tokens_total` where
//! it exists, else from the gauge `gen_throughput`.

use std::time::Duration;

use serde_json::Value;

use crate::{
    api::{ApiKind, Metrics, ServerInfo},
    log::{LogInterval, LoggedSettings, ServerLog, Spent, sglang_settings},
};

/// A reading of a server's metrics.
#[derive(Clone, Debug)]
pub struct SampledReading {
    /// Since the first reading.
    pub at: Duration,
    /// The page.
    pub metrics: Metrics,
}

/// The settings of a server and what it did between readings; intervals without running requests or
/// tokens are left out.
pub fn observed(kind: ApiKind, info: &ServerInfo, readings: &[SampledReading]) -> ServerLog {
    let settings = info.resolved.as_ref().map(|answer| settings(kind, answer)).unwrap_or_default();
    // Without a length, an accept length of 1 would be assumed. spectune's server counts rounds.
    let is_drafting = settings.algorithm.is_some() && settings.engine.is_none();
    let intervals = readings
        .windows(2)
        .filter_map(|pair| interval(kind, &pair[0], &pair[1]))
        .map(|found| LogInterval { speculates: is_drafting || found.accept_length.is_some(), ..found })
        .collect();
    let name = match kind {
        ApiKind::Sglang => "sglang:num_retracted_requests_total",
        ApiKind::Vllm => "vllm:num_preemptions_total",
    };
    let retractions = match (readings.first(), readings.last()) {
        (Some(first), Some(last)) => more(first, last, |metrics| metrics.get(name)).unwrap_or_default(),
        _ => 0.0,
    };
    ServerLog { kind, settings, intervals, retractions: retractions as usize }
}

/// What a counter grew by; `None` if it is missing or started over.
fn more(before: &SampledReading, after: &SampledReading, of: impl Fn(&Metrics) -> Option<f64>) -> Option<f64> {
    Some(of(&after.metrics)? - of(&before.metrics).unwrap_or_default()).filter(|more| *more >= 0.0)
}

fn interval(kind: ApiKind, before: &SampledReading, after: &SampledReading) -> Option<LogInterval> {
    let seconds = after.at.saturating_sub(before.at).as_secs_f64();
    let grew = |name: &str| more(before, after, |metrics| metrics.get(name));
    let found = match kind {
        _ if after.metrics.get("spectune_rounds_total").is_some() => spectune(before, after, seconds)?,
        ApiKind::Sglang => {
            let now = |name: &str| after.metrics.get(name);
            let mode = |name: &str, mode: &str| more(before, after, |metrics| metrics.with_label(name, "mode", mode));
            let tokens = mode("sglang:realtime_tokens_total", "decode").map(|tokens| tokens / seconds);
            let read = mode("sglang:realtime_tokens_total", "prefill_compute").or(grew("sglang:prompt_tokens_total"));
            let passes = |mode_name: &str| mode("sglang:cuda_graph_passes_total", mode_name);
            LogInterval {
                running: after.metrics.total("sglang:num_running_reqs")?,
                waiting: after.metrics.total("sglang:num_queue_reqs").unwrap_or_default(),
                tokens_per_s: tokens.or(now("sglang:gen_throughput"))?,
                accept_length: after
                    .metrics
                    .mean_of_running("sglang:spec_accept_length", "sglang:num_running_reqs")
                    .filter(|length| *length > 0.0),
                cache_used: after.metrics.largest("sglang:token_usage"),
                graph: passes("decode_none").map(|outside| outside <= passes("decode_cuda_graph").unwrap_or_default()),
                prompts: read.is_some_and(|tokens| tokens > 0.0),
                ..LogInterval::default()
            }
        }
        ApiKind::Vllm => {
            let now = |name: &str| after.metrics.get(name);
            let usage = |name: &str| after.metrics.largest(name);
            let tokens = grew("vllm:generation_tokens_total")?;
            // Prefill yields the first token of a request.
            let further = tokens - grew("vllm:time_to_first_token_seconds_count").unwrap_or_default();
            let accepted = grew("vllm:spec_decode_num_accepted_tokens_total");
            // Rounds for which nothing was drafted are in neither counter.
            let rounds = grew("vllm:spec_decode_num_drafts_total")
                .zip(accepted)
                .map(|(drafted, accepted)| drafted.max(further - accepted))
                .filter(|rounds| *rounds > 0.0);
            LogInterval {
                running: now("vllm:num_requests_running")?,
                waiting: now("vllm:num_requests_waiting").unwrap_or_default(),
                tokens_per_s: tokens / seconds,
                accept_length: rounds.zip(accepted).map(|(rounds, accepted)| 1.0 + accepted / rounds),
                positions: positions(before, after, rounds),
                cache_used: usage("vllm:kv_cache_usage_perc").or(usage("vllm:gpu_cache_usage_perc")),
                prompts: grew("vllm:prompt_tokens_total").is_some_and(|tokens| tokens > 0.0),
                ..LogInterval::default()
            }
        }
    };
    let found = LogInterval { seconds, ..found };
    Some(found).filter(|found| seconds > 0.0 && found.running > 0.0 && found.tokens_per_s > 0.0)
}

/// The share of rounds in which each position of the chain was accepted, by vLLM's counters.
fn positions(before: &SampledReading, after: &SampledReading, rounds: Option<f64>) -> Vec<f64> {
    let name = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
    let count = after.metrics.values_of(name, "position").unwrap_or_default();
    let at =
        |position: usize| more(before, after, |metrics| metrics.with_label(name, "position", &position.to_string()));
    (0..count).map_while(|position| Some(at(position)? / rounds?)).collect()
}

/// What spectune's own server counts: rounds and their time, so nothing has to be estimated.
fn spectune(before: &SampledReading, after: &SampledReading, seconds: f64) -> Option<LogInterval> {
    let now = |name: &str| after.metrics.get(name);
    let grew = |name: &str| more(before, after, |metrics| metrics.get(name));
    let time = |part: &str| grew(&format!("spectune_{part}_seconds_total")).unwrap_or_default();
    let rounds = grew("spectune_rounds_total").filter(|rounds| *rounds > 0.0)?;
    let drafted = grew("vllm:spec_decode_num_drafts_total").filter(|rounds| *rounds > 0.0);
    let accepted = grew("spectune_accepted_drafts_total");
    Some(LogInterval {
        running: grew("spectune_request_rounds_total")? / rounds,
        waiting: now("spectune_requests_waiting").unwrap_or_default(),
        tokens_per_s: grew("spectune_generation_tokens_total")? / seconds,
        accept_length: drafted.zip(accepted).map(|(rounds, accepted)| 1.0 + accepted / rounds),
        positions: positions(before, after, drafted),
        cache_used: now("vllm:kv_cache_usage_perc"),
        prompts: grew("spectune_prompt_tokens_total").is_some_and(|tokens| tokens > 0.0),
        spent: Some(Spent {
            all: seconds,
            rounds,
            in_rounds: time("round"),
            in_prefill: time("prefill"),
            parts: ["draft", "verify", "extend"].map(time),
        }),
        ..LogInterval::default()
    })
}

/// What a server says of its configuration. vLLM says it in development mode only, in a form of its
/// own that is not read.
fn settings(kind: ApiKind, answer: &Value) -> LoggedSettings {
    match kind {
        ApiKind::Sglang => sglang_settings(answer),
        ApiKind::Vllm => LoggedSettings::default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reading(seconds: u64, page: &str) -> SampledReading {
        SampledReading { at: Duration::from_secs(seconds), metrics: Metrics::parse(page) }
    }

    #[test]
    fn sglang_is_read_by_its_counters_of_this_moment() {
        let page = |decode: u64, prompts: u64, outside: u64, retracted: u64| {
            format!(
                "sglang:num_running_reqs{{model=\"m\"}} 8\nsglang:num_queue_reqs 2\nsglang:gen_throughput 55\n\
                 sglang:realtime_tokens_total{{mode=\"decode\"}} {decode}\n\
                 sglang:realtime_tokens_total{{mode=\"prefill_compute\"}} {prompts}\n\
                 sglang:cuda_graph_passes_total{{mode=\"decode_cuda_graph\"}} 10\n\
                 sglang:cuda_graph_passes_total{{mode=\"decode_none\"}} {outside}\n\
                 sglang:spec_accept_length 2.5\nsglang:token_usage 0.75\nsglang:num_retracted_requests_total {retracted}\n"
            )
        };
        let readings =
            [reading(0, &page(100, 50, 0, 3)), reading(5, &page(1100, 50, 0, 3)), reading(10, &page(1600, 90, 20, 5))];
        let info = ServerInfo {
            resolved: Some(json!({
                "speculative_algorithm": "EAGLE3", "speculative_num_steps": 3, "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": 4, "max_running_requests": 48, "cuda_graph_bs": [1, 8],
            })),
            ..ServerInfo::default()
        };
        let log = observed(ApiKind::Sglang, &info, &readings);
        let settings = &log.settings;
        assert_eq!(
            (settings.algorithm.as_deref(), settings.num_steps, settings.verified_rows),
            (Some("EAGLE3"), Some(3), Some(4))
        );
        assert_eq!((settings.max_running, settings.captured.as_slice(), log.retractions), (Some(48), &[1, 8][..], 2));
        let first = LogInterval {
            seconds: 5.0,
            speculates: true,
            running: 8.0,
            waiting: 2.0,
            tokens_per_s: 200.0,
            accept_length: Some(2.5),
            cache_used: Some(0.75),
            graph: Some(true),
            ..LogInterval::default()
        };
        let second = LogInterval { tokens_per_s: 100.0, prompts: true, graph: Some(false), ..first.clone() };
        assert_eq!(log.intervals, [first, second]);
        // Older versions have the gauge alone; a server without requests has nothing to tell.
        let old =
            |running: u64| reading(running, &format!("sglang:num_running_reqs {running}\nsglang:gen_throughput 55\n"));
        let log = observed(ApiKind::Sglang, &ServerInfo::default(), &[old(0), old(1), old(2)]);
        assert!(log.intervals.iter().all(|interval| interval.tokens_per_s == 55.0 && interval.graph.is_none()));
        assert_eq!((log.intervals.len(), observed(ApiKind::Sglang, &info, &[old(1), old(0)]).intervals.len()), (2, 0));
    }

    #[test]
    fn ranks_that_take_requests_in_turns_are_one_server() {
        let page = "sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\"} 4\nsglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"1\"} 4\n\
                    sglang:gen_throughput{dp_rank=\"0\",tp_rank=\"0\"} 100\nsglang:gen_throughput{dp_rank=\"1\",tp_rank=\"1\"} 100\n\
                    sglang:spec_accept_length{dp_rank=\"0\",tp_rank=\"0\"} 2\nsglang:spec_accept_length{dp_rank=\"1\",tp_rank=\"1\"} 3\n\
                    sglang:token_usage{dp_rank=\"0\",tp_rank=\"0\"} 0.5\nsglang:token_usage{dp_rank=\"1\",tp_rank=\"1\"} 0.75\n";
        let log = observed(ApiKind::Sglang, &ServerInfo::default(), &[reading(0, page), reading(5, page)]);
        let found = &log.intervals[0];
        assert_eq!((found.running, found.tokens_per_s), (8.0, 200.0));
        assert_eq!((found.accept_length, found.cache_used), (Some(2.5), Some(0.75)));
        let page = |tokens: u64| {
            format!(
                "vllm:num_requests_running{{engine=\"0\"}} 4\nvllm:num_requests_running{{engine=\"1\"}} 4\n\
                 vllm:generation_tokens_total{{engine=\"0\"}} {tokens}\n\
                 vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.5\nvllm:kv_cache_usage_perc{{engine=\"1\"}} 0.75\n"
            )
        };
        let log = observed(ApiKind::Vllm, &ServerInfo::default(), &[reading(0, &page(0)), reading(5, &page(50))]);
        assert_eq!((log.intervals[0].running, log.intervals[0].cache_used), (8.0, Some(0.75)));
    }

    #[test]
    fn spectune_counts_rounds_and_what_they_take() {
        let page = |rounds: u64| {
            format!(
                "spectune_rounds_total {rounds}\nspectune_request_rounds_total {}\nspectune_requests_waiting 1\n\
                 spectune_generation_tokens_total {}\nspectune_accepted_drafts_total {}\nspectune_prompt_tokens_total 9\n\
                 vllm:spec_decode_num_drafts_total {}\nspectune_round_seconds_total {}\nspectune_prefill_seconds_total 0.5\n\
                 spectune_draft_seconds_total {}\nspectune_verify_seconds_total {}\nspectune_extend_seconds_total 0\n\
                 vllm:spec_decode_num_accepted_tokens_per_pos_total{{position=\"0\"}} {}\nsglang:num_running_reqs 5\n",
                4 * rounds,
                10 * rounds,
                6 * rounds,
                4 * rounds,
                rounds as f64 / 50.0,
                rounds as f64 / 200.0,
                rounds as f64 / 100.0,
                3 * rounds
            )
        };
        let info = ServerInfo { resolved: Some(json!({"engine": "spectune"})), ..ServerInfo::default() };
        let log = observed(
            ApiKind::Sglang,
            &info,
            &[reading(0, &page(100)), reading(10, &page(300)), reading(12, &page(300))],
        );
        assert_eq!((log.settings.engine.as_deref(), log.intervals.len()), (Some("spectune"), 1));
        let found = &log.intervals[0];
        assert_eq!((found.running, found.tokens_per_s, found.accept_length), (4.0, 200.0, Some(2.5)));
        assert_eq!((found.positions.as_slice(), found.prompts, found.waiting), (&[0.75][..], false, 1.0));
        let spent = found.spent.expect("it is counted");
        assert_eq!((spent.all, spent.rounds, spent.in_prefill, spent.parts), (10.0, 200.0, 0.0, [1.0, 2.0, 0.0]));
        assert!((spent.in_rounds - 4.0).abs() < 1e-9);
    }

    #[test]
    fn vllm_is_read_by_differences_and_positions() {
        let page = |tokens: u64, drafts: u64, first: u64, second: u64| {
            format!(
                "vllm:num_requests_running 4\nvllm:generation_tokens_total {tokens}\nvllm:prompt_tokens_total 10\n\
                 vllm:time_to_first_token_seconds_count {}\n\
                 vllm:spec_decode_num_drafts_total {drafts}\nvllm:kv_cache_usage_perc 0.5\n\
                 vllm:spec_decode_num_accepted_tokens_total {}\n\
                 vllm:spec_decode_num_accepted_tokens_per_pos_total{{position=\"0\"}} {first}\n\
                 vllm:spec_decode_num_accepted_tokens_per_pos_total{{position=\"1\"}} {second}\n",
                tokens / 10,
                first + second
            )
        };
        let readings = [reading(0, &page(0, 0, 0, 0)), reading(10, &page(500, 200, 150, 100))];
        let log = observed(ApiKind::Vllm, &ServerInfo::default(), &readings);
        let expected = LogInterval {
            seconds: 10.0,
            speculates: true,
            running: 4.0,
            tokens_per_s: 50.0,
            accept_length: Some(2.25),
            positions: vec![0.75, 0.5],
            cache_used: Some(0.5),
            ..LogInterval::default()
        };
        assert_eq!(log.intervals, [expected]);
        // Of a look-up in texts most rounds have no draft, which no counter of drafts counts.
        let readings = [reading(0, &page(0, 0, 0, 0)), reading(10, &page(500, 20, 20, 10))];
        let log = observed(ApiKind::Vllm, &ServerInfo::default(), &readings);
        let length = log.intervals[0].accept_length.expect("it speculates");
        assert!((length - (1.0 + 30.0 / 420.0)).abs() < 1e-9, "{length}");
        assert!((log.intervals[0].positions[0] - 20.0 / 420.0).abs() < 1e-9);
        // A server that has started over between two readings has no figures of that time.
        let restarted = [reading(0, &page(900, 9, 9, 9)), reading(10, &page(5, 2, 1, 1))];
        assert!(observed(ApiKind::Vllm, &ServerInfo::default(), &restarted).intervals.is_empty());
    }
}

//! `GET /metrics`: the engine's counters under spectune's names, and under the names that
//! dashboards for SGLang and vLLM read. All carry the label `model_name`.

mod text;

use std::fmt;

use axum::{
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use engine::scheduler::Statistics;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        MetricType, counter::ConstCounter, counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram,
    },
    registry::Registry,
};

use crate::worker::{Worker, WorkerState, acceptance::AcceptLengths, latency::Latencies};

/// The metrics of a server.
pub struct ServerMetrics {
    registry: Registry,
    answers: Family<Vec<(String, String)>, Counter>,
    /// The same by class of status, such as `2xx`.
    classes: Family<Vec<(String, String)>, Counter>,
}

impl ServerMetrics {
    /// For a worker, whose counters are read at each scrape.
    pub fn new(worker: &Worker, model: &str, latencies: Latencies) -> Self {
        let labels = [("model_name".into(), model.to_owned().into())];
        let mut registry = Registry::with_labels(labels.into_iter());
        let answers = Family::<Vec<(String, String)>, Counter>::default();
        registry.register("spectune_http_responses", "HTTP responses by endpoint and status", answers.clone());
        let classes = Family::<Vec<(String, String)>, Counter>::default();
        registry.register(
            "http_requests",
            "HTTP responses by endpoint and class of status, as vLLM counts them",
            classes.clone(),
        );
        histograms(&mut registry, latencies);
        registry.register_collector(Box::new(EngineCollector(worker.clone())));
        Self { registry, answers, classes }
    }

    /// Counts a response.
    pub fn answered(&self, page: String, status: u16) {
        let labels = |path: &str, status| vec![(path.to_owned(), page.clone()), ("status".to_owned(), status)];
        self.answers.get_or_create(&labels("path", status.to_string())).inc();
        self.classes.get_or_create(&labels("handler", format!("{}xx", status / 100))).inc();
    }

    /// The page in the format that the client prefers.
    ///
    /// # Errors
    /// When a metric cannot be written.
    pub fn page(&self, headers: &HeaderMap) -> Result<Response, fmt::Error> {
        let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (kind, text) = text::encode(&self.registry, accepts.contains("application/openmetrics-text"))?;
        Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
    }
}

/// Registers the histograms of requests under all of their names.
fn histograms(registry: &mut Registry, latencies: Latencies) {
    let mut under = |name: &str, help: &str, histogram: Histogram, others: &[&str]| {
        for other in others {
            registry.register(*other, format!("Same as spectune_{name}"), histogram.clone());
        }
        registry.register(format!("spectune_{name}"), help, histogram);
    };
    under(
        "time_to_first_token_seconds",
        "Time from arrival to the first token",
        latencies.first_token,
        &["sglang:time_to_first_token_seconds", "vllm:time_to_first_token_seconds"],
    );
    under(
        "inter_token_latency_seconds",
        "Time between tokens; a round's time is divided by its tokens",
        latencies.between_tokens,
        // Each of the two has renamed it, and dashboards of both versions are in use.
        &[
            "sglang:inter_token_latency_seconds",
            "sglang:time_per_output_token_seconds",
            "vllm:inter_token_latency_seconds",
            "vllm:time_per_output_token_seconds",
        ],
    );
    under(
        "request_time_per_output_token_seconds",
        "Mean time between the tokens of a request",
        latencies.a_token,
        &["sglang:request_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"],
    );
    under(
        "e2e_request_latency_seconds",
        "Time from submission to the end",
        latencies.whole,
        &["sglang:e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"],
    );
    under(
        "queue_time_seconds",
        "Time from submission to the first prefill",
        latencies.queue,
        &["sglang:queue_time_seconds", "vllm:request_queue_time_seconds"],
    );
    under(
        "request_prefill_time_seconds",
        "Time from the first prefill to the first token",
        latencies.prefill,
        &["vllm:request_prefill_time_seconds"],
    );
    under(
        "request_decode_time_seconds",
        "Time from the first token to the end",
        latencies.decode,
        &["vllm:request_decode_time_seconds"],
    );
    under(
        "request_inference_time_seconds",
        "Time from the first prefill to the end",
        latencies.inference,
        &["vllm:request_inference_time_seconds"],
    );
    under(
        "request_prompt_tokens",
        "Prompt tokens of a request",
        latencies.prompt_tokens,
        &["sglang:prompt_tokens_histogram", "vllm:request_prompt_tokens"],
    );
    under(
        "request_uncached_prompt_tokens",
        "Prompt tokens of a request that were not in the KV cache",
        latencies.uncached_tokens,
        &["sglang:uncached_prompt_tokens_histogram", "vllm:request_prefill_kv_computed_tokens"],
    );
    under(
        "request_generation_tokens",
        "Output tokens of a request",
        latencies.generated_tokens,
        // Each choice is a request here, so its longest output is its own.
        &[
            "sglang:generation_tokens_histogram",
            "vllm:request_generation_tokens",
            "vllm:request_max_num_generation_tokens",
        ],
    );
}

/// The engine's counters.
struct EngineCollector(Worker);

impl fmt::Debug for EngineCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("EngineCollector")
    }
}

impl Collector for EngineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let WorkerState { statistics: now, throughput, accept_lengths, .. } = self.0.published();
        counters(&mut encoder, &now)?;
        by_position(&mut encoder, &now)?;
        outcomes(&mut encoder, &now)?;
        let page_size = self.0.facts().capacity.page_size;
        gauges(&mut encoder, &now, throughput, accept_lengths)?;
        cache(&mut encoder, &now, page_size as u64)
    }
}

fn counters(encoder: &mut DescriptorEncoder<'_>, now: &Statistics) -> fmt::Result {
    let mut counter = |name: &str, help: &str, value: u64| write(encoder, name, help, &ConstCounter::new(value));
    counter("spectune_prompt_tokens", "Prompt tokens of admitted requests", now.prompt_tokens)?;
    counter(
        "spectune_cached_tokens",
        "Prompt tokens of admitted requests that were already in the KV cache",
        now.cached_tokens,
    )?;
    counter("spectune_generation_tokens", "Output tokens", now.generated_tokens)?;
    counter("spectune_rounds", "Rounds of the whole batch", now.rounds)?;
    counter("spectune_request_rounds", "Rounds, counted once per request in them", now.request_rounds)?;
    counter("spectune_proposed_drafts", "Drafts that the target verified", now.proposed_drafts)?;
    counter("spectune_accepted_drafts", "Drafts that were accepted and kept", now.accepted_drafts())?;
    counter("vllm:prompt_tokens", "Same as spectune_prompt_tokens", now.prompt_tokens)?;
    counter("vllm:generation_tokens", "Same as spectune_generation_tokens", now.generated_tokens)?;
    counter("vllm:prefix_cache_queries", "Same as spectune_prompt_tokens", now.prompt_tokens)?;
    counter("vllm:prefix_cache_hits", "Same as spectune_cached_tokens", now.cached_tokens)?;
    counter(
        "vllm:spec_decode_num_drafts",
        "Same as spectune_request_rounds, of rounds with drafts",
        now.drafted_rounds,
    )?;
    counter("vllm:spec_decode_num_draft_tokens", "Same as spectune_proposed_drafts", now.proposed_drafts)?;
    counter("vllm:spec_decode_num_accepted_tokens", "Same as spectune_accepted_drafts", now.accepted_drafts())?;
    counter("sglang:prompt_tokens", "Same as spectune_prompt_tokens", now.prompt_tokens)?;
    counter("sglang:cached_tokens", "Same as spectune_cached_tokens", now.cached_tokens)?;
    counter("sglang:generation_tokens", "Same as spectune_generation_tokens", now.generated_tokens)?;
    let ended = now.stopped + now.exhausted + now.cancelled + now.broken;
    counter("sglang:num_requests", "Ended requests", ended)?;
    counter("sglang:num_aborted_requests", "Requests that were cancelled", now.cancelled)?;
    counter("sglang:spec_verify_calls", "Same as spectune_request_rounds, of rounds with drafts", now.drafted_rounds)?;
    counter("spectune_retractions", "Times that a running request was put back into the queue", now.retracted)?;
    let help = "The part of spectune_retractions because pages of the KV cache ran out";
    counter("spectune_page_retractions", help, now.retracted_for_pages)?;
    counter("sglang:num_retracted_requests", "Same as spectune_retractions", now.retracted)?;
    counter("vllm:num_preemptions", "Same as spectune_retractions", now.retracted)?;

    let mut seconds = |name: &str, help: &str, time: std::time::Duration| {
        write(encoder, name, help, &ConstCounter::new(time.as_secs_f64()))
    };
    seconds("spectune_prefill_seconds", "Time spent in prefill", now.prefill_time)?;
    seconds("spectune_round_seconds", "Time spent in rounds", now.round_time)?;
    seconds("spectune_draft_seconds", "Time of rounds spent drafting", now.draft_time)?;
    seconds("spectune_verify_seconds", "Time of rounds spent verifying", now.verify_time)?;
    seconds("spectune_extend_seconds", "Time of rounds spent extending the draft", now.extend_time)?;
    let help = "Time before rounds in which the device waited for drafts that the host looks up, copies included";
    seconds("spectune_draft_stall_seconds", help, now.stall_time)
}

fn by_position(encoder: &mut DescriptorEncoder<'_>, now: &Statistics) -> fmt::Result {
    let help = "Request-rounds in which the draft at this position, counted from 1, was accepted and kept";
    let counts = now.accepted_by_position();
    let labels = (1..).map(|position: usize| [("position", position.to_string())]);
    family(encoder, "spectune_accepted_drafts_at_position", help, labels.zip(counts.clone()))?;
    // vLLM counts positions from 0.
    let labels = (0..).map(|position: usize| [("position", position.to_string())]);
    let help = "Same as spectune_accepted_drafts_at_position, positions counted from 0";
    family(encoder, "vllm:spec_decode_num_accepted_tokens_per_pos", help, labels.zip(counts))
}

fn outcomes(encoder: &mut DescriptorEncoder<'_>, now: &Statistics) -> fmt::Result {
    let outcomes =
        [("stop", now.stopped), ("length", now.exhausted), ("cancelled", now.cancelled), ("not_finite", now.broken)];
    let outcomes = outcomes.into_iter().map(|(outcome, count)| ([("outcome", outcome)], count));
    family(encoder, "spectune_requests", "Ended requests by outcome", outcomes)?;
    // vLLM counts requests that were aborted and that failed here too, whatever the name says.
    let reasons = [("stop", now.stopped), ("length", now.exhausted), ("abort", now.cancelled), ("error", now.broken)];
    let reasons = reasons.into_iter().map(|(reason, count)| ([("finished_reason", reason)], count));
    family(encoder, "vllm:request_success", "Ended requests by reason", reasons)
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    now: &Statistics,
    throughput: f64,
    accept_lengths: AcceptLengths,
) -> fmt::Result {
    let AcceptLengths { lifetime, recent, recent_rate, .. } = accept_lengths;
    let mut gauge = |name: &str, help: &str, value: f64| write(encoder, name, help, &ConstGauge::new(value));
    gauge("spectune_requests_running", "Requests that hold a slot", now.running as f64)?;
    gauge("spectune_requests_waiting", "Requests in the queue", now.waiting as f64)?;
    gauge("vllm:num_requests_running", "Same as spectune_requests_running", now.running as f64)?;
    gauge("vllm:num_requests_waiting", "Same as spectune_requests_waiting", now.waiting as f64)?;
    gauge("sglang:num_running_reqs", "Same as spectune_requests_running", now.running as f64)?;
    gauge("sglang:num_queue_reqs", "Same as spectune_requests_waiting", now.waiting as f64)?;
    let retracted = now.waiting_retracted as f64;
    gauge("sglang:num_retracted_reqs", "Requests that were put back into the queue and wait there", retracted)?;
    let help = "Share of the remaining output that running requests are expected to generate, for admission";
    gauge("spectune_new_token_ratio", help, now.new_token_ratio)?;
    gauge("sglang:gen_throughput", "Generated tokens per second, over the last seconds", throughput)?;
    let length = "Tokens per round and request, bonus token included";
    gauge("spectune_accept_length", &format!("{length}, since the start"), lifetime.unwrap_or_default())?;
    gauge("spectune_recent_accept_length", &format!("{length}, over the last 40 rounds"), recent.unwrap_or_default())?;
    gauge("sglang:spec_accept_length", "Same as spectune_recent_accept_length", recent.unwrap_or_default())?;
    let rate = recent_rate.unwrap_or_default();
    gauge("sglang:spec_accept_rate", "Accepted / verified drafts, over the last 40 rounds", rate)
}

/// Gauges of the KV cache.
fn cache(encoder: &mut DescriptorEncoder<'_>, now: &Statistics, page_size: u64) -> fmt::Result {
    let [used, cached, total] = [now.pages_used, now.pages_cached, now.pages_total].map(|pages| pages as u64);
    let tokens = |pages: u64| (pages * page_size) as f64;
    let free = total.saturating_sub(used + cached);
    let usage = ratio(used, total);
    let mut gauge = |name: &str, help: &str, value: f64| write(encoder, name, help, &ConstGauge::new(value));
    gauge("spectune_kv_pages_used", "Pages of the KV cache that requests hold", used as f64)?;
    gauge("spectune_kv_pages_cached", "Evictable pages of the prefix cache, held by no request", cached as f64)?;
    gauge("spectune_kv_pages", "Pages of the KV cache", total as f64)?;
    if now.window_pages_total > 0 {
        let [used, cached, total] =
            [now.window_pages_used, now.window_pages_cached, now.window_pages_total].map(|pages| pages as u64);
        gauge("spectune_kv_window_pages_used", "Pages of layers with a window that requests use", used as f64)?;
        gauge("spectune_kv_window_pages_cached", "Evictable pages of layers with a window", cached as f64)?;
        gauge("spectune_kv_window_pages", "Pages of layers with a window", total as f64)?;
        gauge("sglang:swa_token_usage", "Share of the pages of layers with a window in use", ratio(used, total))?;
    }
    gauge("vllm:kv_cache_usage_perc", "Share of the KV cache held by requests", usage)?;
    gauge("vllm:gpu_cache_usage_perc", "Same as vllm:kv_cache_usage_perc, its earlier name", usage)?;
    gauge("sglang:token_usage", "Share of the KV cache held by requests", usage)?;
    gauge("sglang:full_token_usage", "Same as sglang:token_usage", usage)?;
    gauge("sglang:num_used_tokens", "Capacity in tokens of the pages held by requests", tokens(used))?;
    gauge("sglang:kv_used_tokens", "Same as sglang:num_used_tokens", tokens(used))?;
    gauge("sglang:kv_evictable_tokens", "Capacity in tokens of the evictable pages", tokens(cached))?;
    gauge("sglang:kv_available_tokens", "Capacity in tokens of the free pages", tokens(free))?;
    gauge("sglang:max_total_num_tokens", "Capacity of the KV cache in tokens", tokens(total))?;
    let hits = ratio(now.cached_tokens, now.prompt_tokens);
    gauge("sglang:cache_hit_rate", "Share of prompt tokens that were already in the KV cache", hits)
}

fn write(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, metric: &impl EncodeMetric) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn family<V: AsRef<str>>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = ([(&'static str, V); 1], u64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for ([(label, value)], count) in values {
        ConstCounter::new(count).encode(metric.encode_family(&[(label, value.as_ref())])?)?;
    }
    Ok(())
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

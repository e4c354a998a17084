//! `GET /metrics`: counters of the engine under names of our own, the essential ones also under SGLang's.

use std::{fmt, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text::encode},
    metrics::{counter::ConstCounter, gauge::ConstGauge, histogram::Histogram},
    registry::Registry,
};

use super::worker::Worker;
use crate::{Completion, FinishReason};

/// Figures of requests, and the page that shows them.
pub struct Metrics {
    registry: Registry,
    first_token: Histogram,
    between_tokens: Histogram,
    whole: Histogram,
}

impl Metrics {
    /// For a worker, whose counters are read at each scrape.
    pub fn new(worker: &Worker) -> Self {
        let mut registry = Registry::default();
        let mut histogram = |name: &str, help: &str| {
            let histogram = Histogram::new(SECONDS);
            registry.register(name, help, histogram.clone());
            histogram
        };
        let metrics = (
            histogram("spectune_time_to_first_token_seconds", "From submission to the first token"),
            histogram("spectune_inter_token_latency_seconds", "Mean time between the tokens of a request"),
            histogram("spectune_e2e_request_latency_seconds", "From submission to the end"),
        );
        registry.register_collector(Box::new(EngineCollector(worker.clone())));
        let (first_token, between_tokens, whole) = metrics;
        Self { registry, first_token, between_tokens, whole }
    }

    /// A request has ended.
    pub fn finished(&self, completion: &Completion) {
        if completion.finish_reason == FinishReason::Cancelled {
            return;
        }
        self.first_token.observe(completion.time_to_first_token.as_secs_f64());
        self.whole.observe(completion.elapsed.as_secs_f64());
        let behind_first = completion.output_ids.len().saturating_sub(1);
        if behind_first > 0 {
            let time = completion.elapsed.saturating_sub(completion.time_to_first_token);
            self.between_tokens.observe(time.as_secs_f64() / behind_first as f64);
        }
    }

    /// The page.
    ///
    /// # Errors
    /// When a metric cannot be written.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Upper bounds of histogram buckets.
const SECONDS: [f64; 16] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0];

/// The engine's counters.
struct EngineCollector(Worker);

impl fmt::Debug for EngineCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("EngineCollector")
    }
}

impl Collector for EngineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = self.0.statistics();
        let mut counter =
            |name: &str, help: &str, value: u64| write(&mut encoder, name, help, &ConstCounter::new(value));
        counter("spectune_prompt_tokens", "Prompt tokens of admitted requests", now.prompt_tokens)?;
        counter("spectune_generation_tokens", "Generated tokens", now.generated_tokens)?;
        counter("spectune_rounds", "Rounds of the whole batch", now.rounds)?;
        counter("spectune_request_rounds", "Rounds, counted for each request in them", now.request_rounds)?;
        counter("spectune_draft_tokens", "Drafts that the target verified", now.proposed_drafts)?;
        counter("spectune_accepted_draft_tokens", "Drafts that were accepted and kept", now.accepted_drafts())?;
        counter("spectune_requests_stopped", "Requests that ended by a stop token or string", now.stopped)?;
        counter("spectune_requests_exhausted", "Requests that ended by length", now.exhausted)?;
        counter("spectune_requests_cancelled", "Requests that were cancelled", now.cancelled)?;
        for (position, count) in now.accepted_by_position().into_iter().enumerate() {
            let name = format!("spectune_accepted_at_position_{}", position + 1);
            counter(&name, "Request-rounds in which the draft at this position was accepted", count)?;
        }
        counter("sglang:prompt_tokens", "As spectune_prompt_tokens", now.prompt_tokens)?;
        counter("sglang:generation_tokens", "As spectune_generation_tokens", now.generated_tokens)?;
        counter("sglang:num_requests", "Requests that have ended", now.stopped + now.exhausted + now.cancelled)?;

        let mut gauge = |name: &str, help: &str, value: f64| write(&mut encoder, name, help, &ConstGauge::new(value));
        let seconds = |time: Duration| time.as_secs_f64();
        gauge("spectune_requests_running", "Requests that hold a slot", now.running as f64)?;
        gauge("spectune_requests_waiting", "Requests in the queue", now.waiting as f64)?;
        gauge("spectune_kv_pages_used", "Pages of the KV cache that are held", now.pages_used as f64)?;
        gauge("spectune_kv_pages", "Pages of the KV cache", now.pages_total as f64)?;
        gauge("spectune_prefill_seconds", "Time spent in prefill", seconds(now.prefill_time))?;
        gauge("spectune_draft_seconds", "Time spent drafting", seconds(now.draft_time))?;
        gauge("spectune_verify_seconds", "Time spent verifying", seconds(now.verify_time))?;
        gauge("spectune_extend_seconds", "Time spent extending the draft", seconds(now.extend_time))?;
        gauge("sglang:num_running_reqs", "As spectune_requests_running", now.running as f64)?;
        gauge("sglang:num_queue_reqs", "As spectune_requests_waiting", now.waiting as f64)?;
        gauge(
            "sglang:token_usage",
            "Share of the KV cache that is held",
            ratio(now.pages_used as u64, now.pages_total as u64),
        )?;
        gauge(
            "sglang:gen_throughput",
            "Generated tokens a second of rounds",
            now.generated_tokens as f64 / seconds(now.round_time).max(1e-9),
        )?;
        gauge(
            "sglang:spec_accept_length",
            "Tokens a round and request, bonus token included",
            ratio(now.accepted_drafts() + now.request_rounds, now.request_rounds),
        )?;
        gauge(
            "sglang:spec_accept_rate",
            "Accepted drafts / verified drafts",
            ratio(now.accepted_drafts(), now.proposed_drafts),
        )
    }
}

fn write(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, metric: &impl EncodeMetric) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

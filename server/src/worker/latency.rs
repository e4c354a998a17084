//! Latencies of requests, measured on the engine's thread.

use std::time::Instant;

use engine::{Completion, Event};
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::mpsc::UnboundedSender;

use crate::http::error::ApiError;

/// Upper bounds of the buckets for whole responses and first tokens, in seconds.
const SECONDS: [f64; 18] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 600.0];
/// Upper bounds of the buckets for single tokens, in seconds.
const SECONDS_A_TOKEN: [f64; 16] =
    [0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.5, 2.0];

/// Upper bounds of the buckets for numbers of tokens in a prompt or an output.
const TOKENS: [f64; 18] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 1e6];

/// Histograms of requests, in seconds and tokens. Clones share them.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// From submission to the start of prefill.
    pub queue: Histogram,
    /// From a request's arrival to its first token, as clients measure it: parsing, tokenising and
    /// waiting for the current step are included.
    pub first_token: Histogram,
    /// Between tokens: the time between two rounds, divided among the tokens of the later one.
    pub between_tokens: Histogram,
    /// From submission to the end.
    pub whole: Histogram,
    /// From the start of prefill to the first token.
    pub prefill: Histogram,
    /// From the first token to the end.
    pub decode: Histogram,
    /// From the start of prefill to the end.
    pub inference: Histogram,
    /// Mean time between the tokens of a request, for requests with more than one.
    pub a_token: Histogram,
    /// Tokens of prompts.
    pub prompt_tokens: Histogram,
    /// Tokens of prompts that were not in the KV cache.
    pub uncached_tokens: Histogram,
    /// Tokens of outputs.
    pub generated_tokens: Histogram,
}

/// An event of a request, or its error.
pub type Delivery = Result<Event, ApiError>;

/// The receiver of a request's events, and the time of the last one.
pub struct Listener {
    events: UnboundedSender<Delivery>,
    name: Option<String>,
    arrived: Instant,
    last_tokens: Option<Instant>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            queue: Histogram::new(SECONDS),
            first_token: Histogram::new(SECONDS),
            between_tokens: Histogram::new(SECONDS_A_TOKEN),
            whole: Histogram::new(SECONDS),
            prefill: Histogram::new(SECONDS),
            decode: Histogram::new(SECONDS),
            inference: Histogram::new(SECONDS),
            a_token: Histogram::new(SECONDS_A_TOKEN),
            prompt_tokens: Histogram::new(TOKENS),
            uncached_tokens: Histogram::new(TOKENS),
            generated_tokens: Histogram::new(TOKENS),
        }
    }
}

impl Latencies {
    /// Records an event that a listener is about to receive. Requests that are cancelled or fail
    /// are counted until then.
    pub fn observe(&self, listener: &mut Listener, event: &Event) {
        match event {
            Event::Tokens { tokens, .. } => {
                let now = Instant::now();
                match listener.last_tokens.replace(now) {
                    None => self.first_token.observe((now - listener.arrived).as_secs_f64()),
                    Some(before) => {
                        let share = (now - before).as_secs_f64() / tokens.len().max(1) as f64;
                        tokens.iter().for_each(|_| self.between_tokens.observe(share));
                    }
                }
            }
            Event::Finished { completion, .. } => {
                if completion.finish_reason.word() != "abort" {
                    self.observe_end(completion);
                }
            }
        }
    }

    fn observe_end(&self, completion: &Completion) {
        let Completion { queued, time_to_first_token: first, elapsed, .. } = *completion;
        let produced = completion.output_ids.len();
        self.queue.observe(queued.as_secs_f64());
        self.whole.observe(elapsed.as_secs_f64());
        self.inference.observe(elapsed.saturating_sub(queued).as_secs_f64());
        // Without output there is no first token.
        if produced > 0 {
            let decode = elapsed.saturating_sub(first).as_secs_f64();
            self.prefill.observe(first.saturating_sub(queued).as_secs_f64());
            self.decode.observe(decode);
            if produced > 1 {
                self.a_token.observe(decode / (produced - 1) as f64);
            }
        }
        self.prompt_tokens.observe(completion.prompt_tokens as f64);
        self.uncached_tokens.observe(completion.prompt_tokens.saturating_sub(completion.cached_tokens) as f64);
        self.generated_tokens.observe(produced as f64);
    }
}

impl Listener {
    /// For a request with this arrival time.
    pub fn new(events: UnboundedSender<Delivery>, name: Option<String>, arrived: Instant) -> Self {
        Self { events, name, arrived, last_tokens: None }
    }

    /// The client's name for it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether the receiver has been dropped.
    pub fn is_gone(&self) -> bool {
        self.events.is_closed()
    }

    /// Sends an event or an error.
    pub fn send(&self, event: Delivery) {
        // A dropped receiver is noticed before the next step.
        let _ = self.events.send(event);
    }
}

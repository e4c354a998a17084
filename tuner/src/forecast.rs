//! Forecasts the duration of a workload from the rounds that its requests need and the time of a
//! round.
//!
//! The scheduler of an engine runs step by step: which requests are admitted, which chunks of
//! prompts are prefilled, which batch runs. How requests proceed in rounds has two forms:
//! - [`simulate`]: one tree for all rounds. The rounds of each request are known from a replay, the
//!   time of a round from a model of [`latency`](crate::prediction::latency).
//! - [`simulate_policy`]: a [`policy`] chooses what each round runs. The acceptance at every
//!   position is known from [`drafts`], and the time of a round comes from [`times`]. [`rollout`]
//!   draws the requests of a rollout, and [`study`] chooses a policy on some draws and judges it on
//!   others.
//!
//! All figures are predicted.

pub mod buckets;
pub mod compare;
pub mod costs;
pub mod drafts;
pub mod exported;
#[cfg(test)]
mod falsifying;
pub mod figures;
pub mod kinds;
pub mod load;
mod memory;
mod needs;
pub mod plan;
mod play;
pub mod policy;
pub mod rollout;
pub mod study;
pub mod tables;
#[cfg(test)]
mod tests;
pub mod times;
mod traced;

use schemas::{sweep::LARGEST, tree::TreeShape};
use serde::{Deserialize, Serialize};

pub use self::traced::{SimulatedRequest, SimulatedWorkload, simulate_policy};
use self::{needs::WorkloadNeeds, play::Play};
use crate::{
    TunerError,
    prediction::latency::{filling::Filling, prefill::PrefillStep},
    trials::record::{FullLoop, TrialSpread},
};

/// The work of a request under a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Generated tokens, including the first one, which comes from the prefill.
    pub output_tokens: usize,
    /// Rounds that the request takes part in; 0 if it ends with its first token.
    pub rounds: usize,
}

/// When requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// This many requests are kept unfinished: the next one is sent when one ends, as in a trial.
    Closed {
        /// Number of these requests.
        batch_size: usize,
    },
    /// At given times, one for each request, in ascending order.
    Open {
        /// Milliseconds since the start.
        at_ms: Vec<f64>,
    },
}

/// How the engine is set up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Batch sizes with graphs, ascending: a batch is padded to the next one. Larger batches run as
    /// they are.
    pub capture_sizes: Vec<usize>,
    /// Maximum number of running requests.
    pub max_running_requests: usize,
    /// The KV cache; `None` if it holds all requests that may run.
    pub memory: Option<Memory>,
    /// Maximum number of prompt tokens in a step: `--chunked-prefill-size`.
    pub prefill_budget: usize,
    /// Maximum number of tokens in one chunk of a prompt:
    /// [`engine::backend::Capacity::prefill_chunk`].
    pub prefill_chunk: usize,
    /// Rounds that are launched before the host knows what a round yielded. For this many rounds
    /// the next request waits for the slot of one that has ended, and this slot still runs, unless
    /// the host knew in advance which round was the last. See [`rounds_behind`].
    pub rounds_behind: usize,
    /// Whether prompts are prefilled in the steps of running requests, as vLLM does, and not in
    /// steps of their own before the rounds.
    pub mixed_prefill: bool,
}

/// The KV cache, as the rule of admission sees it ([`engine::new_token_ratio`]). Pages count as
/// single tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Tokens that it holds.
    pub tokens: usize,
    /// The limit of new tokens that each request states; its output may end before.
    pub max_new_tokens: usize,
    /// Tokens that a request needs beyond its sequence: the largest tree, and rounds in flight.
    pub slack: usize,
}

impl Memory {
    /// Tokens that a request needs beyond its sequence with any of these trees: the largest tree,
    /// and the tokens of one more round in flight.
    pub fn slack(shapes: impl Iterator<Item = TreeShape>) -> usize {
        shapes.map(|shape| shape.num_draft_tokens + shape.max_tokens_per_round()).max().unwrap_or(2)
    }
}

/// The predicted figures of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// From the start to the end of the last request, in s. Loads start with their first request.
    pub elapsed_s: f64,
    /// The part of it spent on prefill.
    pub prefill_s: f64,
    /// Tokens of all requests.
    pub output_tokens: u64,
    /// Output tokens / elapsed, all requests together.
    pub output_tokens_per_s: f64,
    /// What the throughput of a trial counts of a closed loop
    /// ([`Measurement::full`](crate::trials::record::Measurement::full)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<FullLoop>,
    /// Output tokens per second as one request sees it, after its first token: median over
    /// requests; `None` if no request has a second token.
    pub tokens_per_s_per_user: Option<f64>,
    /// Output tokens / rounds of requests, first and bonus tokens included; `None` without rounds.
    pub accept_length: Option<f64>,
    /// From sending a request to its end, mean in ms.
    pub mean_latency_ms: f64,
    /// From sending a request to its end.
    pub latency_ms: TrialSpread,
    /// From sending a request to its first token.
    pub time_to_first_token_ms: TrialSpread,
    /// Entry b is the number of rounds with b requests (slots of ended requests included), before
    /// padding.
    pub batches: Vec<u64>,
    /// Number of times that a running request was put back into the queue because the KV cache was
    /// full.
    #[serde(default)]
    pub retractions: u64,
    /// When each request ended, in s since the start, ascending.
    pub ends_s: Vec<f64>,
    /// The rounds in their order; consecutive ones with the same batch and tree are together.
    pub stretches: Vec<Stretch>,
}

/// Consecutive rounds of the same batch and tree.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// Start of the first one, in ms since the start.
    pub from_ms: f64,
    /// Requests (slots of ended requests included), before padding.
    pub batch: usize,
    /// The tree, or the limit of a budget's trees.
    pub shape: TreeShape,
    /// Number of rounds.
    pub rounds: u64,
    /// Rows that the target verified in them, without padding.
    pub rows: u64,
    /// Tokens that they yielded; 0 where only the number of rounds of a request is known.
    pub tokens: u64,
    /// Their time in ms, without steps that only prefill.
    pub ms: f64,
}

/// The value of [`Setup::rounds_behind`] of an engine.
pub fn rounds_behind(rounds_in_flight: usize) -> usize {
    rounds_in_flight.saturating_sub(1)
}

/// Simulates a workload. `round_ms(filling)` is the time in ms of a round of these requests in
/// their graph, `prefill_ms(step)` the time in ms of a step that only prefills. Prompts are assumed
/// to share no prefixes.
///
/// # Errors
/// When the workload is empty or cannot run, a time is not a number of at least 0, or `round_ms`
/// returns an error, for example because it would have to extrapolate.
pub fn simulate(
    needs: &[Need],
    arrivals: &Arrivals,
    setup: &Setup,
    round_ms: impl Fn(Filling) -> Result<f64, TunerError>,
    prefill_ms: impl Fn(&PrefillStep) -> f64,
) -> Result<Forecast, TunerError> {
    let impossible = |need: &&Need| need.prompt_tokens == 0 || need.output_tokens <= need.rounds;
    if let Some(need) = needs.iter().find(impossible) {
        let reason = format!("{need:?}: expected a prompt, a first token, and at least one token of each round");
        return Err(TunerError::Configuration(format!("forecast: {reason}")));
    }
    check(needs.len(), arrivals, setup)?;
    let course = WorkloadNeeds { needs, round_ms: &round_ms, prefill_ms: &prefill_ms };
    let mut play = Play::new(course, needs.len(), arrivals, setup);
    play.run()?;
    play.forecast()
}

fn check(requests: usize, arrivals: &Arrivals, setup: &Setup) -> Result<(), TunerError> {
    let wrong = |reason: String| Err(TunerError::Configuration(format!("forecast: {reason}")));
    if requests == 0 {
        return wrong("the workload has no request".into());
    }
    if setup.max_running_requests == 0 || setup.prefill_budget == 0 || setup.prefill_chunk == 0 {
        return wrong("max_running_requests, prefill_budget and prefill_chunk must be at least 1".into());
    }
    if !setup.capture_sizes.is_sorted() || setup.capture_sizes.last().is_some_and(|last| *last > LARGEST) {
        return wrong(format!("capture sizes must be ascending, and at most {LARGEST}"));
    }
    if setup.memory.is_some_and(|memory| memory.max_new_tokens > LARGEST || memory.slack > LARGEST) {
        return wrong(format!("max_new_tokens must be at most {LARGEST}"));
    }
    match arrivals {
        Arrivals::Closed { batch_size } if (1..=setup.max_running_requests).contains(batch_size) => Ok(()),
        Arrivals::Closed { batch_size } => wrong(format!(
            "batch size {batch_size} is not in 1..={} (max_running_requests)",
            setup.max_running_requests
        )),
        Arrivals::Open { at_ms } if at_ms.len() != requests => {
            wrong(format!("{} arrival times for {} requests", at_ms.len(), requests))
        }
        Arrivals::Open { at_ms } if !at_ms.iter().all(|at| at.is_finite() && *at >= 0.0) || !at_ms.is_sorted() => {
            wrong("arrival times must be ascending numbers of at least 0".into())
        }
        Arrivals::Open { .. } => Ok(()),
    }
}

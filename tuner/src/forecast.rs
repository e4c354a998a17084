//! Forecasts the duration of a workload from the rounds that its requests need and the time of a round.
//!
//! The rounds of each request under a tree are known from a replay; the time of a round is known from a model of
//! [`latency`](crate::latency). [`simulate`] runs the engine's scheduler on them, step by step: which requests are
//! admitted, which chunks of prompts are prefilled, which batch runs. All figures are predicted.

mod play;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use self::play::Play;
use crate::{TunerError, record::Spread};

/// What a request needs under a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Tokens that it produces, the first one included, which comes from its prompt.
    pub output_tokens: usize,
    /// Rounds that it takes part in; 0 where it ends with its first token.
    pub rounds: usize,
}

/// When requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// This many are kept unfinished: the next one is sent when one ends, as in a trial.
    Closed {
        /// Requests together.
        batch_size: usize,
    },
    /// At these times in ms, one for each request, in ascending order.
    Open {
        /// From the beginning.
        at_ms: Vec<f64>,
    },
}

/// How the engine is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Batch sizes with graphs, ascending: a batch is padded to the next one. Larger batches run as they are.
    pub capture_sizes: Vec<usize>,
    /// Maximum number of running requests. The KV cache is taken to hold them.
    pub max_running_requests: usize,
    /// Most prompt tokens of a step: `--chunked-prefill-size`.
    pub prefill_budget: usize,
    /// Most tokens of one piece of a prompt: [`engine::backend::Capacity::prefill_chunk`].
    pub prefill_chunk: usize,
    /// Rounds that are launched before the host knows that a request has ended: in this many its place runs along, and the
    /// next request waits. [`rounds_behind`] says how many.
    pub rounds_behind: usize,
}

/// What is expected of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// From the first request to the end of the last one, in s.
    pub elapsed_s: f64,
    /// Of it, reading prompts.
    pub prefill_s: f64,
    /// Tokens of all requests.
    pub output_tokens: u64,
    /// Output tokens / elapsed, all requests together.
    pub output_tokens_per_s: f64,
    /// Output tokens per second as one request sees it, after its first token: median over requests; `None` where none has
    /// a second token.
    pub tokens_per_s_per_user: Option<f64>,
    /// Output tokens / rounds of requests, first and bonus tokens included; `None` without rounds.
    pub accept_length: Option<f64>,
    /// From sending a request to its end, mean in ms.
    pub mean_latency_ms: f64,
    /// From sending a request to its end.
    pub latency_ms: Spread,
    /// From sending a request to its first token.
    pub time_to_first_token_ms: Spread,
    /// Entry b counts the rounds with b requests in them (those that run along included), before padding.
    pub batches: Vec<u64>,
}

/// For [`Setup::rounds_behind`]: without speculation the host knows beforehand which round is a request's last one.
pub fn rounds_behind(rounds_in_flight: usize, speculates: bool) -> usize {
    if speculates { rounds_in_flight.saturating_sub(1) } else { 0 }
}

/// Plays a workload. `round_ms(batch, context)` is the time of a round of a padded batch at a mean context, and
/// `prefill_ms(tokens)` that of a step that reads this many prompt tokens; both in ms. Prompts share no beginnings.
///
/// # Errors
/// When the workload is empty or cannot run, a time is not a number of at least 0, or `round_ms` gives an error, as it may
/// where it would have to extrapolate.
pub fn simulate(
    needs: &[Need],
    arrivals: &Arrivals,
    setup: &Setup,
    round_ms: impl Fn(usize, f64) -> Result<f64, TunerError>,
    prefill_ms: impl Fn(usize) -> f64,
) -> Result<Forecast, TunerError> {
    check(needs, arrivals, setup)?;
    let mut play = Play::new(needs, arrivals, setup);
    play.run(&round_ms, &prefill_ms)?;
    play.forecast()
}

fn check(needs: &[Need], arrivals: &Arrivals, setup: &Setup) -> Result<(), TunerError> {
    let wrong = |reason: String| Err(TunerError::Configuration(format!("forecast: {reason}")));
    if needs.is_empty() {
        return wrong("the workload has no request".into());
    }
    let impossible = |need: &&Need| need.prompt_tokens == 0 || need.output_tokens <= need.rounds;
    if let Some(need) = needs.iter().find(impossible) {
        return wrong(format!("{need:?}: expected a prompt, a first token, and at least one token of each round"));
    }
    if setup.max_running_requests == 0 || setup.prefill_budget == 0 || setup.prefill_chunk == 0 {
        return wrong("max_running_requests, prefill_budget and prefill_chunk must be at least 1".into());
    }
    if !setup.capture_sizes.is_sorted() {
        return wrong("capture sizes must be ascending".into());
    }
    match arrivals {
        Arrivals::Closed { batch_size } if (1..=setup.max_running_requests).contains(batch_size) => Ok(()),
        Arrivals::Closed { batch_size } => wrong(format!(
            "batch size {batch_size} is not in 1..={} (max_running_requests)",
            setup.max_running_requests
        )),
        Arrivals::Open { at_ms } if at_ms.len() != needs.len() => {
            wrong(format!("{} arrival times for {} requests", at_ms.len(), needs.len()))
        }
        Arrivals::Open { at_ms } if !at_ms.iter().all(|at| at.is_finite() && *at >= 0.0) || !at_ms.is_sorted() => {
            wrong("arrival times must be ascending numbers of at least 0".into())
        }
        Arrivals::Open { .. } => Ok(()),
    }
}

//! The figures of a load that ran, whether measured or simulated: what can be compared between the
//! two.

use schemas::{sweep::LARGEST, tree::TreeShape};
use serde::{Deserialize, Serialize};

use super::Forecast;
use crate::prediction::latency::filling::Filling;

/// The figures of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// From the first request to the end of the last one, in s.
    pub elapsed_s: f64,
    /// The part of it spent on prefill.
    pub prefill_s: f64,
    /// Tokens of all requests.
    pub output_tokens: u64,
    /// Output tokens / elapsed.
    pub output_tokens_per_s: f64,
    /// Output tokens / rounds of requests, first and bonus tokens included; `None` without rounds.
    pub accept_length: Option<f64>,
    /// Energy in J that the GPU used, if it was measured and its driver tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<f64>,
    /// When each request ended, in s since the start, ascending.
    pub ends_s: Vec<f64>,
    /// Number of times that a running request was put back into the queue.
    pub retractions: u64,
    /// The rounds by shape and padded batch.
    pub rounds: Vec<RoundGroup>,
}

/// Rounds of one shape and padded batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundGroup {
    /// The tree.
    pub shape: TreeShape,
    /// The batch, padded to the next capture size.
    pub batch: usize,
    /// Number of rounds.
    pub rounds: u64,
    /// Mean number of tokens of a slot in the cache, padding included; 0 if it is not known.
    pub context: f64,
    /// Mean number of requests; 0 if it is not known, in figures of earlier versions.
    #[serde(default)]
    pub requests: f64,
    /// Mean time of those rounds that were timed, in ms: from the end of the round before to its
    /// own.
    pub ms: f64,
    /// Number of rounds that were timed; a round after a prefill is not.
    pub timed: u64,
}

impl RoundGroup {
    /// Its requests in their graph, as a mean; a full graph if their number is not known.
    pub fn filling(&self) -> Filling {
        let places = self.batch;
        match self.requests > 0.0 {
            true => Filling { places, requests: self.requests, context: self.context * places as f64 / self.requests },
            false => Filling::full(places, self.context),
        }
    }
}

impl Figures {
    /// Whether the figures can be compared.
    ///
    /// # Errors
    /// In words, when a group of rounds is impossible.
    pub fn check(&self) -> Result<(), String> {
        let impossible = |group: &&RoundGroup| {
            let timed = group.timed == 0 || group.ms > 0.0 && group.ms.is_finite();
            let within = group.batch <= LARGEST && group.shape.num_draft_tokens <= TreeShape::LARGEST;
            let filled = (0.0..=group.batch as f64).contains(&group.requests);
            !(timed && within && filled && group.context >= 0.0)
        };
        let wrong = self.rounds.iter().find(impossible).map(|RoundGroup { shape, batch, context, ms, .. }| {
            format!("rounds of a batch of {batch} with {shape} at {context} tokens in {ms} ms are impossible")
        });
        wrong.map_or(Ok(()), Err)
    }

    /// The figures of a simulated load.
    pub fn from_forecast(forecast: &Forecast, capture_sizes: &[usize]) -> Self {
        let mut rounds: Vec<RoundGroup> = Vec::new();
        for stretch in &forecast.stretches {
            let batch = engine::options::padded(capture_sizes, stretch.batch);
            let filling = Filling { places: batch, requests: stretch.batch as f64, context: 0.0 };
            add(&mut rounds, stretch.shape, filling, stretch.rounds, Some(stretch.ms));
        }
        finish(&mut rounds);
        Self {
            elapsed_s: forecast.elapsed_s,
            prefill_s: forecast.prefill_s,
            output_tokens: forecast.output_tokens,
            output_tokens_per_s: forecast.output_tokens_per_s,
            accept_length: forecast.accept_length,
            energy_j: None,
            ends_s: forecast.ends_s.clone(),
            retractions: forecast.retractions,
            rounds,
        }
    }
}

/// Adds equal rounds to their group, as sums; `ms` is the time of all of them together, if they
/// were timed.
pub fn add(groups: &mut Vec<RoundGroup>, shape: TreeShape, filling: Filling, rounds: u64, ms: Option<f64>) {
    let batch = filling.places;
    let at = groups.iter().position(|group| (group.shape, group.batch) == (shape, batch)).unwrap_or_else(|| {
        groups.push(RoundGroup { shape, batch, rounds: 0, context: 0.0, requests: 0.0, ms: 0.0, timed: 0 });
        groups.len() - 1
    });
    let group = &mut groups[at];
    group.rounds += rounds;
    group.context += rounds as f64 * filling.tokens_per_place();
    group.requests += rounds as f64 * filling.requests;
    if let Some(ms) = ms {
        group.ms += ms;
        group.timed += rounds;
    }
}

/// Turns the sums of [`add`] into means, sorted by shape and batch.
pub fn finish(groups: &mut [RoundGroup]) {
    for group in &mut *groups {
        let rounds = group.rounds.max(1) as f64;
        group.context /= rounds;
        group.requests /= rounds;
        group.ms /= group.timed.max(1) as f64;
    }
    groups.sort_unstable_by_key(|group| (group.shape, group.batch));
}

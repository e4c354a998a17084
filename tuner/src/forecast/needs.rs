//! Requests whose numbers of rounds are known.

use schemas::tree::TreeShape;

use super::{
    Need,
    play::{Course, NextRound, Ran, RequestProgress},
};
use crate::{
    TunerError,
    prediction::latency::{filling::Filling, prefill::PrefillStep},
};

/// Requests with one tree for all rounds.
pub struct WorkloadNeeds<'a> {
    /// The requests.
    pub needs: &'a [Need],
    /// Time in ms of a round of these requests in their graph.
    pub round_ms: &'a dyn Fn(Filling) -> Result<f64, TunerError>,
    /// Time in ms of a step that only prefills.
    pub prefill_ms: &'a dyn Fn(&PrefillStep) -> f64,
}

impl Course for WorkloadNeeds<'_> {
    const COUNTS_ALL: bool = true;

    fn prompt_tokens(&self, request: usize) -> usize {
        self.needs[request].prompt_tokens
    }

    fn output_tokens(&self, request: usize) -> usize {
        self.needs[request].output_tokens
    }

    fn has_ended(&self, request: usize, progress: RequestProgress) -> bool {
        progress.rounds >= self.needs[request].rounds
    }

    /// Assumes that every round adds the same number of tokens.
    fn context(&self, request: usize, progress: RequestProgress) -> f64 {
        let need = self.needs[request];
        let done = progress.rounds as f64 / need.rounds.max(1) as f64;
        need.prompt_tokens as f64 + done * (need.output_tokens - 1) as f64
    }

    /// Only where each round yields one token does the host know which is the last one.
    fn may_go_on(&self, request: usize, _: usize, _: usize) -> bool {
        let Need { output_tokens, rounds, .. } = self.needs[request];
        output_tokens > rounds + 1
    }

    fn round(&mut self, step: &NextRound<'_>) -> Result<Ran, TunerError> {
        let ms = (self.round_ms)(step.filling)?;
        let batch = step.members.len() + step.riders.len();
        // The tree and the tokens of single rounds are unknown here.
        let (riders, tokens) = (step.riders.len(), vec![0; step.members.len()]);
        Ok(Ran { ms, shape: TreeShape::OFF, batch, riders, rows: batch, tokens })
    }

    fn prefill_ms(&self, step: &PrefillStep) -> f64 {
        (self.prefill_ms)(step)
    }
}

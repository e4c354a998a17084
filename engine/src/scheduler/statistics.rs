//! Counters of an engine, for `/metrics` and for trials.

use std::time::Duration;

use schemas::tree::TreeShape;

use super::running::Kept;
use crate::{backend::RoundTiming, request::FinishReason};

/// What has happened since the engine started, and what runs now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Requests in the queue.
    pub waiting: usize,
    /// Requests that hold a slot.
    pub running: usize,
    /// Pages that requests hold.
    pub pages_used: usize,
    /// Evictable pages held by the prefix cache; they count as free for admission.
    pub pages_cached: usize,
    /// Pages there are.
    pub pages_total: usize,
    /// Prompt tokens of admitted requests.
    pub prompt_tokens: u64,
    /// How many of them were already in the KV cache.
    pub cached_tokens: u64,
    /// Tokens that became output.
    pub generated_tokens: u64,
    /// Rounds of the whole batch.
    pub rounds: u64,
    /// Entry k counts the rounds that the device ran for k + 1 requests, those included that had ended while it ran.
    pub rounds_by_batch: Vec<u64>,
    /// Rounds, counted for each request in them.
    pub request_rounds: u64,
    /// Of them, those with drafts.
    pub drafted_rounds: u64,
    /// Drafts that the target verified, counted for each request.
    pub proposed_drafts: u64,
    /// Entry k counts the request-rounds in which k drafts were accepted and kept.
    pub accept_histogram: Vec<u64>,
    /// Requests that ended by an end token or stop string.
    pub stopped: u64,
    /// Requests that ended by length.
    pub exhausted: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Requests for which the target computed no numbers, or whose grammar could not be followed.
    pub broken: u64,
    /// Time in prefill.
    pub prefill_time: Duration,
    /// Time in rounds.
    pub round_time: Duration,
    /// Of it, drafting.
    pub draft_time: Duration,
    /// Of it, verifying.
    pub verify_time: Duration,
    /// Of it, extending the draft.
    pub extend_time: Duration,
    /// The timing of the last round.
    pub last_round: Option<RoundTiming>,
}

impl Statistics {
    /// Drafts that were accepted and kept.
    pub fn accepted_drafts(&self) -> u64 {
        (0..).zip(&self.accept_histogram).map(|(drafts, rounds)| drafts * rounds).sum()
    }

    /// Request-rounds in which the draft at each position (from one) was accepted and kept.
    pub fn accepted_by_position(&self) -> Vec<u64> {
        (1..self.accept_histogram.len()).map(|position| self.accept_histogram[position..].iter().sum()).collect()
    }

    /// A round that was launched for this many requests, `batch` of which had not ended before.
    pub(super) fn round(&mut self, launched: usize, batch: usize, shape: TreeShape, timing: &RoundTiming) {
        self.rounds += 1;
        if self.rounds_by_batch.len() < launched {
            self.rounds_by_batch.resize(launched, 0);
        }
        if let Some(count) = launched.checked_sub(1).and_then(|at| self.rounds_by_batch.get_mut(at)) {
            *count += 1;
        }
        self.request_rounds += batch as u64;
        self.drafted_rounds += if shape.is_off() { 0 } else { batch as u64 };
        self.proposed_drafts += (batch * (shape.num_draft_tokens - 1)) as u64;
        self.round_time += timing.total;
        self.draft_time += timing.draft.unwrap_or_default();
        self.verify_time += timing.verify.unwrap_or_default();
        self.extend_time += timing.extend.unwrap_or_default();
        self.last_round = Some(*timing);
    }

    /// What one request kept of a round.
    pub(super) fn kept(&mut self, kept: Kept) {
        self.generated_tokens += kept.tokens as u64;
        if self.accept_histogram.len() <= kept.drafts {
            self.accept_histogram.resize(kept.drafts + 1, 0);
        }
        self.accept_histogram[kept.drafts] += 1;
    }

    /// The end of a request.
    pub(super) fn finished(&mut self, reason: &FinishReason) {
        match reason {
            FinishReason::StopToken(_) | FinishReason::StopString(_) => self.stopped += 1,
            FinishReason::Length => self.exhausted += 1,
            FinishReason::Cancelled => self.cancelled += 1,
            FinishReason::NotFinite(_) | FinishReason::Grammar(_) => self.broken += 1,
        }
    }
}

//! Counters of an engine, for `/metrics` and for trials.

use std::time::Duration;

use schemas::tree::TreeShape;

use super::running::KeptOutput;
use crate::{backend::RoundTiming, request::FinishReason};

/// Counters since the engine started, and what is running now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Number of queued requests.
    pub waiting: usize,
    /// Number of these that were put back into the queue
    /// ([`Scheduler::retract`](super::Scheduler::retract)).
    pub waiting_retracted: usize,
    /// Number of requests that hold a slot.
    pub running: usize,
    /// Number of pages that requests hold.
    pub pages_used: usize,
    /// Number of evictable pages in the prefix cache; they count as free for admission.
    pub pages_cached: usize,
    /// Total number of pages.
    pub pages_total: usize,
    /// Number of window pages that requests use, if layers with a window have pages of their own
    /// ([`WindowPages`](crate::backend::WindowPages)).
    pub window_pages_used: usize,
    /// Number of window pages that are kept for prefixes; they count as free.
    pub window_pages_cached: usize,
    /// Total number of window pages.
    pub window_pages_total: usize,
    /// Number of kept states of sequences, for models that have such a state beside pages.
    pub snapshots_kept: usize,
    /// Total number of places for them.
    pub snapshots_total: usize,
    /// Prompt tokens of admitted requests.
    pub prompt_tokens: u64,
    /// Number of these that were already in the KV cache.
    pub cached_tokens: u64,
    /// Tokens that became output.
    pub generated_tokens: u64,
    /// Rounds of the whole batch.
    pub rounds: u64,
    /// Entry k counts the rounds that the device ran for k + 1 requests, including requests that
    /// ended in the meantime.
    pub rounds_by_batch: Vec<u64>,
    /// Rounds, counted once per request in them.
    pub request_rounds: u64,
    /// The part of these with drafts.
    pub drafted_rounds: u64,
    /// Drafts that the target verified, summed over requests.
    pub proposed_drafts: u64,
    /// Entry k counts the request-rounds in which k drafts were accepted and kept.
    pub accept_histogram: Vec<u64>,
    /// Number of requests that ended with an end token or a stop string.
    pub stopped: u64,
    /// Number of requests that ended by length.
    pub exhausted: u64,
    /// Number of cancelled requests.
    pub cancelled: u64,
    /// Number of times that a running request was put back into the queue.
    pub retracted: u64,
    /// Number of these because pages ran out; the others were asked for.
    pub retracted_for_pages: u64,
    /// The share of the remaining output that running requests are expected to generate
    /// ([`NewTokenRatio`](crate::new_token_ratio::NewTokenRatio)).
    pub new_token_ratio: f64,
    /// Number of requests whose logits were not finite, or whose grammar could not be followed.
    pub broken: u64,
    /// Total time of prefill.
    pub prefill_time: Duration,
    /// Total time of rounds.
    pub round_time: Duration,
    /// The part of it for drafting.
    pub draft_time: Duration,
    /// The part of it for verifying.
    pub verify_time: Duration,
    /// The part of it for extending the draft.
    pub extend_time: Duration,
    /// Time before rounds in which the device waited for drafts of the host; not part of the time
    /// of rounds.
    pub stall_time: Duration,
    /// The timing of the last round.
    pub last_round: Option<RoundTiming>,
    /// What those rounds ran that the last step collected, in their order.
    pub ran: Vec<RanRound>,
}

/// A round that has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RanRound {
    /// The tree.
    pub shape: TreeShape,
    /// Number of requests, including those that ended in the meantime.
    pub batch: usize,
    /// Rows that the target verified: one of each request, and its drafts, as many as were found if
    /// they are looked up in texts.
    pub rows: usize,
    /// Tokens of all of them together, as far as the host knew them when it launched the round.
    pub tokens: usize,
}

impl Statistics {
    /// Number of drafts that were accepted and kept.
    pub fn accepted_drafts(&self) -> u64 {
        (0..).zip(&self.accept_histogram).map(|(drafts, rounds)| drafts * rounds).sum()
    }

    /// Request-rounds in which the draft at each position (from one) was accepted and kept.
    pub fn accepted_by_position(&self) -> Vec<u64> {
        (1..self.accept_histogram.len()).map(|position| self.accept_histogram[position..].iter().sum()).collect()
    }

    /// Counts a round, with the number of drafts of each request that had not ended before.
    pub(super) fn round(&mut self, ran: RanRound, drafts: &[usize], timing: &RoundTiming) {
        let launched = ran.batch;
        self.ran.push(ran);
        self.rounds += 1;
        if self.rounds_by_batch.len() < launched {
            self.rounds_by_batch.resize(launched, 0);
        }
        if let Some(count) = launched.checked_sub(1).and_then(|at| self.rounds_by_batch.get_mut(at)) {
            *count += 1;
        }
        self.request_rounds += drafts.len() as u64;
        self.drafted_rounds += drafts.iter().filter(|drafts| **drafts > 0).count() as u64;
        self.proposed_drafts += drafts.iter().sum::<usize>() as u64;
        self.round_time += timing.total;
        self.draft_time += timing.draft.unwrap_or_default();
        self.verify_time += timing.verify.unwrap_or_default();
        self.extend_time += timing.extend.unwrap_or_default();
        self.stall_time += timing.stall.unwrap_or_default();
        self.last_round = Some(*timing);
    }

    /// Counts what one request kept of a round.
    pub(super) fn kept(&mut self, kept: KeptOutput) {
        self.generated_tokens += kept.tokens as u64;
        if self.accept_histogram.len() <= kept.drafts {
            self.accept_histogram.resize(kept.drafts + 1, 0);
        }
        self.accept_histogram[kept.drafts] += 1;
    }

    /// Counts the end of a request.
    pub(super) fn finished(&mut self, reason: &FinishReason) {
        match reason {
            FinishReason::StopToken(_) | FinishReason::StopString(_) => self.stopped += 1,
            FinishReason::Length => self.exhausted += 1,
            FinishReason::Cancelled => self.cancelled += 1,
            FinishReason::NotFinite(_) | FinishReason::Grammar(_) => self.broken += 1,
        }
    }
}

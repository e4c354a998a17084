//! The engine's scheduler, simulated on a computed clock.

use std::collections::VecDeque;

use engine::options::padded;

use super::{Arrivals, Forecast, Need, Setup};
use crate::{TunerError, record::Spread};

/// The state of a simulated workload.
pub struct Play<'a> {
    needs: &'a [Need],
    arrivals: &'a Arrivals,
    setup: &'a Setup,
    now_ms: f64,
    prefill_ms: f64,
    /// The next request to be sent.
    next: usize,
    waiting: VecDeque<Sent>,
    running: Vec<Running>,
    /// Slots that still run after the end of their request.
    riders: Vec<Rider>,
    batches: Vec<u64>,
    ended: Vec<Ended>,
}

struct Sent {
    request: usize,
    at_ms: f64,
    /// Rounds launched before the request was sent; they run before its prefill.
    behind: usize,
}

struct Running {
    request: usize,
    sent_ms: f64,
    unread: usize,
    rounds_left: usize,
    first_token_ms: Option<f64>,
}

struct Rider {
    context: f64,
    rounds_left: usize,
}

struct Ended {
    request: usize,
    first_token_ms: f64,
    latency_ms: f64,
}

impl<'a> Play<'a> {
    /// The state before the first request.
    pub fn new(needs: &'a [Need], arrivals: &'a Arrivals, setup: &'a Setup) -> Self {
        Self {
            needs,
            arrivals,
            setup,
            now_ms: 0.0,
            prefill_ms: 0.0,
            next: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
            riders: Vec::new(),
            batches: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Runs until the last request has ended.
    pub fn run(
        &mut self,
        round_ms: &dyn Fn(usize, f64) -> Result<f64, TunerError>,
        prefill_ms: &dyn Fn(usize) -> f64,
    ) -> Result<(), TunerError> {
        while self.ended.len() < self.needs.len() {
            self.send();
            self.admit();
            self.prefill(prefill_ms)?;
            // Requests that ended with their first token free their slots before the next round.
            if self.ended.len() < self.needs.len() {
                self.round(round_ms)?;
            }
        }
        Ok(())
    }

    /// Sends the next requests of a closed loop, or the ones that have arrived.
    fn send(&mut self) {
        match self.arrivals {
            Arrivals::Closed { batch_size } => {
                while self.next < self.needs.len() && self.next - self.ended.len() < *batch_size {
                    self.enqueue(self.now_ms);
                }
            }
            Arrivals::Open { at_ms } => {
                if self.waiting.is_empty()
                    && self.running.is_empty()
                    && let Some(next) = at_ms.get(self.next)
                {
                    // Idle until the next arrival.
                    self.now_ms = self.now_ms.max(*next);
                    self.riders.clear();
                }
                while let Some(at) = at_ms.get(self.next).filter(|at| **at <= self.now_ms) {
                    self.enqueue(*at);
                }
            }
        }
    }

    fn enqueue(&mut self, at_ms: f64) {
        let rounds = self.riders.iter().map(|rider| rider.rounds_left).max().unwrap_or_default();
        let busy = self.running.iter().any(|one| one.unread == 0);
        let behind = if busy { self.setup.rounds_behind } else { rounds };
        self.waiting.push_back(Sent { request: self.next, at_ms, behind });
        self.next += 1;
    }

    fn admit(&mut self) {
        while self.running.len() + self.riders.len() < self.setup.max_running_requests
            && self.waiting.front().is_some_and(|sent| sent.behind == 0)
            && let Some(sent) = self.waiting.pop_front()
        {
            let need = self.needs[sent.request];
            self.running.push(Running {
                request: sent.request,
                sent_ms: sent.at_ms,
                unread: need.prompt_tokens,
                rounds_left: need.rounds,
                first_token_ms: None,
            });
        }
    }

    /// Prefills the prompt chunks of one step, first come, first served.
    fn prefill(&mut self, prefill_ms: &dyn Fn(usize) -> f64) -> Result<(), TunerError> {
        let mut budget = self.setup.prefill_budget;
        for one in &mut self.running {
            let count = one.unread.min(self.setup.prefill_chunk).min(budget);
            one.unread -= count;
            budget -= count;
        }
        let read = self.setup.prefill_budget - budget;
        if read == 0 {
            return Ok(());
        }
        let milliseconds = checked(prefill_ms(read), || format!("prefill of {read} tokens"))?;
        self.prefill_ms += milliseconds;
        self.now_ms += milliseconds;
        for one in self.running.iter_mut().filter(|one| one.unread == 0) {
            one.first_token_ms.get_or_insert(self.now_ms - one.sent_ms);
        }
        self.end();
        Ok(())
    }

    fn round(&mut self, round_ms: &dyn Fn(usize, f64) -> Result<f64, TunerError>) -> Result<(), TunerError> {
        let members = self.running.iter().filter(|one| one.unread == 0);
        let contexts = members.map(|one| self.context(one)).chain(self.riders.iter().map(|rider| rider.context));
        let (batch, tokens) = contexts.fold((0, 0.0), |(batch, tokens), context| (batch + 1, tokens + context));
        if batch == 0 {
            return Ok(());
        }
        let padded = padded(&self.setup.capture_sizes, batch);
        let milliseconds = round_ms(padded, tokens / padded as f64)?;
        self.now_ms += checked(milliseconds, || format!("a round of {padded}"))?;
        if self.batches.len() <= batch {
            self.batches.resize(batch + 1, 0);
        }
        self.batches[batch] += 1;
        self.running.iter_mut().filter(|one| one.unread == 0).for_each(|one| one.rounds_left -= 1);
        self.waiting.iter_mut().for_each(|sent| sent.behind = sent.behind.saturating_sub(1));
        self.riders.iter_mut().for_each(|rider| rider.rounds_left -= 1);
        self.riders.retain(|rider| rider.rounds_left > 0);
        self.end();
        Ok(())
    }

    /// Removes the requests whose last round has run.
    fn end(&mut self) {
        let (needs, behind, now_ms) = (self.needs, self.setup.rounds_behind, self.now_ms);
        for one in self.running.extract_if(.., |one| one.unread == 0 && one.rounds_left == 0) {
            let need = needs[one.request];
            // The host knows about a request that ends with its first token before it launches a round.
            if behind > 0 && need.rounds > 0 {
                let context = (need.prompt_tokens + need.output_tokens) as f64;
                self.riders.push(Rider { context, rounds_left: behind });
            }
            self.ended.push(Ended {
                request: one.request,
                first_token_ms: one.first_token_ms.unwrap_or_default(),
                latency_ms: now_ms - one.sent_ms,
            });
        }
    }

    /// Tokens of a request in the cache at its next round, assuming that every round adds the same number.
    fn context(&self, one: &Running) -> f64 {
        let need = self.needs[one.request];
        let done = (need.rounds - one.rounds_left) as f64 / need.rounds.max(1) as f64;
        need.prompt_tokens as f64 + done * (need.output_tokens - 1) as f64
    }

    /// The figures, after all requests have ended.
    pub fn forecast(&self) -> Result<Forecast, TunerError> {
        let spread = |of: fn(&Ended) -> f64| {
            let nothing = || TunerError::Configuration("forecast: no request has ended".into());
            Spread::of(self.ended.iter().map(of)).ok_or_else(nothing)
        };
        let output_tokens: u64 = self.needs.iter().map(|need| need.output_tokens as u64).sum();
        let rounds: usize = self.needs.iter().map(|need| need.rounds).sum();
        let rate = |one: &Ended| {
            let after_first = self.needs[one.request].output_tokens - 1;
            (after_first > 0).then(|| after_first as f64 / (one.latency_ms - one.first_token_ms) * 1e3)
        };
        let elapsed_s = self.now_ms / 1e3;
        Ok(Forecast {
            elapsed_s,
            prefill_s: self.prefill_ms / 1e3,
            output_tokens,
            output_tokens_per_s: output_tokens as f64 / elapsed_s,
            tokens_per_s_per_user: Spread::of(self.ended.iter().filter_map(rate)).map(|spread| spread.median),
            accept_length: (rounds > 0).then(|| output_tokens as f64 / rounds as f64),
            mean_latency_ms: self.ended.iter().map(|one| one.latency_ms).sum::<f64>() / self.ended.len() as f64,
            latency_ms: spread(|one| one.latency_ms)?,
            time_to_first_token_ms: spread(|one| one.first_token_ms)?,
            batches: self.batches.clone(),
        })
    }
}

fn checked(milliseconds: f64, of: impl Fn() -> String) -> Result<f64, TunerError> {
    if milliseconds.is_finite() && milliseconds >= 0.0 {
        return Ok(milliseconds);
    }
    Err(TunerError::Configuration(format!(
        "forecast: {} takes {milliseconds} ms: expected a number of at least 0",
        of()
    )))
}

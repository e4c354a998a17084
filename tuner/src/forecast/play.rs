//! The engine's scheduler, simulated on a computed clock.

use std::collections::VecDeque;

use engine::options::padded;
use schemas::tree::TreeShape;

use super::{Arrivals, Forecast, Setup, Stretch, memory::Occupancy};
use crate::{TunerError, trials::record::TrialSpread};

/// How requests proceed in rounds.
pub trait Course {
    /// Whether every member takes part in every round, and the tokens of single rounds are not
    /// known.
    const COUNTS_ALL: bool;

    /// Tokens of a request's prompt.
    fn prompt_tokens(&self, request: usize) -> usize;

    /// Tokens of its whole output, including the first one, which comes from the prefill.
    fn output_tokens(&self, request: usize) -> usize;

    /// Whether a request has ended after these rounds.
    fn has_ended(&self, request: usize, progress: Progress) -> bool;

    /// Tokens of a request in the cache at its next round.
    fn context(&self, request: usize, progress: Progress) -> f64;

    /// Runs a round.
    ///
    /// # Errors
    /// When its time is unknown.
    fn round(&mut self, step: &Step<'_>) -> Result<Ran, TunerError>;

    /// The time in ms of a step that only prefills this many prompt tokens.
    fn prefill_ms(&self, tokens: usize) -> f64;
}

/// What a request has done since its first token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rounds that it took part in.
    pub rounds: usize,
    /// Tokens that they yielded.
    pub tokens: usize,
}

/// A request of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// Its index.
    pub request: usize,
    /// What it has done.
    pub progress: Progress,
    /// Tokens in the cache.
    pub context: f64,
}

/// A round that is about to run.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Running requests whose prompts are prefilled.
    pub members: &'a [Member],
    /// Slots that run after the end of their request.
    pub riders: usize,
    /// The batch, padded to the next capture size.
    pub padded: usize,
    /// Tokens in the cache, all slots together / `padded`.
    pub context: f64,
    /// Requests whose prompts are prefilled in the same step.
    pub prefilling: usize,
    /// Tokens of these prompts.
    pub prefilled: usize,
}

/// A round that has run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Its time in ms.
    pub ms: f64,
    /// The tree, or the limit of a budget's trees.
    pub shape: TreeShape,
    /// Requests and slots of ended ones that took part.
    pub batch: usize,
    /// Rows that the target verified.
    pub rows: usize,
    /// The tokens that each member received, in their order; 0 for one that did not take part.
    pub tokens: Vec<usize>,
}

/// The state of a simulated workload.
pub struct Play<'a, C> {
    course: C,
    requests: usize,
    arrivals: &'a Arrivals,
    setup: &'a Setup,
    /// The simulation ends when this many requests have ended.
    until: usize,
    now_ms: f64,
    prefill_ms: f64,
    /// The next request to be sent.
    next: usize,
    waiting: VecDeque<Sent>,
    running: Vec<Running>,
    /// Slots that still run after the end of their request.
    riders: Vec<Rider>,
    batches: Vec<u64>,
    stretches: Vec<Stretch>,
    ended: Vec<Ended>,
    occupancy: Option<Occupancy>,
    retractions: u64,
}

struct Sent {
    request: usize,
    at_ms: f64,
    /// Rounds launched before the request was sent; they run before its prefill.
    behind: usize,
    /// What it has done, if it was retracted.
    retracted: Option<(Progress, Option<f64>)>,
}

struct Running {
    request: usize,
    sent_ms: f64,
    unread: usize,
    progress: Progress,
    first_token_ms: Option<f64>,
    /// Whether its prompt is read again, which yields a token once more.
    reads_again: bool,
}

struct Rider {
    context: f64,
    rounds_left: usize,
}

struct Ended {
    tokens: usize,
    rounds: usize,
    first_token_ms: f64,
    latency_ms: f64,
    at_ms: f64,
}

/// The prompts that a step prefills.
#[derive(Clone, Copy, Default)]
struct Read {
    tokens: usize,
    requests: usize,
}

impl<'a, C: Course> Play<'a, C> {
    /// The state before the first request.
    pub fn new(course: C, requests: usize, arrivals: &'a Arrivals, setup: &'a Setup) -> Self {
        Self {
            course,
            requests,
            arrivals,
            setup,
            until: requests,
            now_ms: 0.0,
            prefill_ms: 0.0,
            next: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
            riders: Vec::new(),
            batches: Vec::new(),
            stretches: Vec::new(),
            ended: Vec::new(),
            occupancy: setup.memory.map(Occupancy::new),
            retractions: 0,
        }
    }

    /// Ends the simulation when this many requests have ended; the others are aborted.
    pub fn until(mut self, requests: usize) -> Self {
        self.until = requests.clamp(1, self.requests);
        self
    }

    /// Runs until enough requests have ended.
    pub fn run(&mut self) -> Result<(), TunerError> {
        for request in 0..self.requests {
            let (prompt, output) = (self.course.prompt_tokens(request), self.course.output_tokens(request));
            self.occupancy.iter().try_for_each(|occupancy| occupancy.check(prompt, output))?;
        }
        while self.ended.len() < self.until {
            self.send();
            self.make_room();
            self.admit();
            let decoding = self.running.iter().any(|one| self.decodes(one));
            let read = if self.setup.mixed_prefill && decoding { self.read() } else { Read::default() };
            if read.tokens == 0 {
                self.prefill()?;
            }
            // Requests that ended with their first token free their slots before the next round.
            if self.ended.len() < self.until {
                self.round(read)?;
            }
        }
        Ok(())
    }

    /// Whether a request takes part in rounds.
    fn decodes(&self, one: &Running) -> bool {
        one.unread == 0 && one.first_token_ms.is_some() && !one.reads_again
    }

    /// Sends the next requests of a closed loop, or the ones that have arrived.
    fn send(&mut self) {
        match self.arrivals {
            Arrivals::Closed { batch_size } => {
                while self.next < self.requests && self.next - self.ended.len() < *batch_size {
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
        self.waiting.push_back(Sent { request: self.next, at_ms, behind, retracted: None });
        self.next += 1;
    }

    fn admit(&mut self) {
        while self.running.len() + self.riders.len() < self.setup.max_running_requests
            && let Some(sent) = self.waiting.front().filter(|sent| sent.behind == 0)
            && self.fits(sent)
            && let Some(Sent { request, at_ms, retracted, .. }) = self.waiting.pop_front()
        {
            let (progress, first_token_ms) = retracted.unwrap_or_default();
            self.running.push(Running {
                request,
                sent_ms: at_ms,
                unread: self.length(request, progress),
                progress,
                first_token_ms,
                reads_again: first_token_ms.is_some(),
            });
        }
    }

    /// Tokens of a request so far.
    fn length(&self, request: usize, progress: Progress) -> usize {
        self.course.context(request, progress).ceil() as usize
    }

    /// Tokens of running requests so far, each with those of its prompt, the oldest first.
    fn lengths(&self) -> Vec<(usize, usize)> {
        let one = |one: &Running| (self.length(one.request, one.progress), self.course.prompt_tokens(one.request));
        self.running.iter().map(one).collect()
    }

    /// Whether the KV cache can be expected to hold a request and the running ones.
    fn fits(&self, sent: &Sent) -> bool {
        let Some(occupancy) = &self.occupancy else { return true };
        let progress = sent.retracted.unwrap_or_default().0;
        let next = (self.length(sent.request, progress), self.course.prompt_tokens(sent.request));
        occupancy.admits(&self.lengths(), next)
    }

    /// Retracts the youngest requests as long as the KV cache has no room for the next round.
    fn make_room(&mut self) {
        if self.occupancy.is_none() {
            return;
        }
        let lengths = self.lengths();
        let kept = self.occupancy.as_mut().map_or(lengths.len(), |occupancy| occupancy.keeps(&lengths));
        for one in self.running.drain(kept..).rev() {
            self.retractions += 1;
            let retracted = Some((one.progress, one.first_token_ms));
            self.waiting.push_front(Sent { request: one.request, at_ms: one.sent_ms, behind: 0, retracted });
        }
    }

    /// Takes the prompt chunks of one step, first come, first served.
    fn read(&mut self) -> Read {
        let mut budget = self.setup.prefill_budget;
        let mut requests = 0;
        for one in &mut self.running {
            let count = one.unread.min(self.setup.prefill_chunk).min(budget);
            one.unread -= count;
            budget -= count;
            requests += usize::from(count > 0);
        }
        Read { tokens: self.setup.prefill_budget - budget, requests }
    }

    /// Prefills the prompt chunks of one step on their own.
    fn prefill(&mut self) -> Result<(), TunerError> {
        let read = self.read().tokens;
        if read == 0 {
            return Ok(());
        }
        let milliseconds = checked(self.course.prefill_ms(read), || format!("prefill of {read} tokens"))?;
        self.prefill_ms += milliseconds;
        self.now_ms += milliseconds;
        self.first_tokens();
        self.end();
        Ok(())
    }

    /// Hands out the first tokens of prompts that are prefilled.
    fn first_tokens(&mut self) {
        for one in self.running.iter_mut().filter(|one| one.unread == 0) {
            one.first_token_ms.get_or_insert(self.now_ms - one.sent_ms);
            if std::mem::take(&mut one.reads_again) {
                one.progress.tokens += 1;
            }
        }
    }

    fn round(&mut self, read: Read) -> Result<(), TunerError> {
        let member = |one: &Running| Member {
            request: one.request,
            progress: one.progress,
            context: self.course.context(one.request, one.progress),
        };
        let members: Vec<Member> = self.running.iter().filter(|one| self.decodes(one)).map(member).collect();
        let batch = members.len() + self.riders.len();
        if batch == 0 {
            return Ok(());
        }
        let tokens: f64 = members.iter().map(|one| one.context).sum();
        let tokens = self.riders.iter().fold(tokens, |sum, rider| sum + rider.context);
        let padded = padded(&self.setup.capture_sizes, batch);
        let ran = self.course.round(&Step {
            members: &members,
            riders: self.riders.len(),
            padded,
            context: tokens / padded as f64,
            prefilling: read.requests,
            prefilled: read.tokens,
        })?;
        let milliseconds = checked(ran.ms, || format!("a round of {padded}"))?;
        self.note(&ran);
        self.now_ms += milliseconds;
        let mut yields = members.iter().zip(&ran.tokens);
        let decodes = |one: &&mut Running| one.unread == 0 && one.first_token_ms.is_some() && !one.reads_again;
        for one in self.running.iter_mut().filter(decodes) {
            if let Some((_, tokens)) = yields.next() {
                one.progress.rounds += usize::from(*tokens > 0 || C::COUNTS_ALL);
                one.progress.tokens += tokens;
            }
        }
        if read.tokens > 0 {
            self.first_tokens();
        }
        self.waiting.iter_mut().for_each(|sent| sent.behind = sent.behind.saturating_sub(1));
        self.riders.iter_mut().for_each(|rider| rider.rounds_left -= 1);
        self.riders.retain(|rider| rider.rounds_left > 0);
        self.end();
        Ok(())
    }

    /// Counts a round.
    fn note(&mut self, ran: &Ran) {
        let batch = ran.batch;
        if self.batches.len() <= batch {
            self.batches.resize(batch + 1, 0);
        }
        self.batches[batch] += 1;
        let tokens: u64 = ran.tokens.iter().map(|tokens| *tokens as u64).sum();
        match self.stretches.last_mut() {
            Some(last) if (last.batch, last.shape) == (batch, ran.shape) => {
                last.rounds += 1;
                last.rows += ran.rows as u64;
                last.tokens += tokens;
                last.ms += ran.ms;
            }
            _ => self.stretches.push(Stretch {
                from_ms: self.now_ms,
                batch,
                shape: ran.shape,
                rounds: 1,
                rows: ran.rows as u64,
                tokens,
                ms: ran.ms,
            }),
        }
    }

    /// Removes the requests whose last round has run.
    fn end(&mut self) {
        let (course, behind, now_ms) = (&self.course, self.setup.rounds_behind, self.now_ms);
        let done = |one: &mut Running| one.first_token_ms.is_some() && course.has_ended(one.request, one.progress);
        for one in self.running.extract_if(.., done) {
            let (request, rounds) = (one.request, one.progress.rounds);
            // The host knows about a request that ends with its first token before it launches a
            // round.
            if behind > 0 && rounds > 0 {
                let context = (course.prompt_tokens(request) + course.output_tokens(request)) as f64;
                self.riders.push(Rider { context, rounds_left: behind });
            }
            self.ended.push(Ended {
                tokens: course.output_tokens(request),
                rounds,
                first_token_ms: one.first_token_ms.unwrap_or_default(),
                latency_ms: now_ms - one.sent_ms,
                at_ms: now_ms,
            });
        }
    }

    /// The figures, after [`run`](Self::run).
    pub fn forecast(self) -> Result<Forecast, TunerError> {
        let spread = |of: fn(&Ended) -> f64| {
            let nothing = || TunerError::Configuration("forecast: no request has ended".into());
            TrialSpread::from_values(self.ended.iter().map(of)).ok_or_else(nothing)
        };
        let aborted = self.running.iter().filter(|one| one.first_token_ms.is_some());
        let aborted: Vec<Progress> = aborted.map(|one| one.progress).collect();
        let output_tokens = self.ended.iter().map(|one| one.tokens as u64).sum::<u64>()
            + aborted.iter().map(|one| 1 + one.tokens as u64).sum::<u64>();
        let rounds = self.ended.iter().map(|one| one.rounds).sum::<usize>()
            + aborted.iter().map(|one| one.rounds).sum::<usize>();
        let rate = |one: &Ended| {
            let after_first = one.tokens - 1;
            (after_first > 0).then(|| after_first as f64 / (one.latency_ms - one.first_token_ms) * 1e3)
        };
        let elapsed_s = self.now_ms / 1e3;
        Ok(Forecast {
            elapsed_s,
            prefill_s: self.prefill_ms / 1e3,
            output_tokens,
            output_tokens_per_s: output_tokens as f64 / elapsed_s,
            tokens_per_s_per_user: TrialSpread::from_values(self.ended.iter().filter_map(rate))
                .map(|spread| spread.median),
            accept_length: (rounds > 0).then(|| output_tokens as f64 / rounds as f64),
            mean_latency_ms: self.ended.iter().map(|one| one.latency_ms).sum::<f64>() / self.ended.len() as f64,
            latency_ms: spread(|one| one.latency_ms)?,
            time_to_first_token_ms: spread(|one| one.first_token_ms)?,
            ends_s: self.ended.iter().map(|one| one.at_ms / 1e3).collect(),
            retractions: self.retractions,
            batches: self.batches,
            stretches: self.stretches,
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

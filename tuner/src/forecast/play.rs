//! The engine's scheduler, simulated on a computed clock.

use std::collections::VecDeque;

use engine::options::padded;
use schemas::tree::TreeShape;

use super::{Arrivals, Forecast, Setup, Stretch, memory::Occupancy};
use crate::{
    TunerError,
    prediction::latency::{filling::Filling, prefill::PrefillStep},
    trials::record::{FullLoop, TrialSpread},
};

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
    fn has_ended(&self, request: usize, progress: RequestProgress) -> bool;

    /// Tokens of a request in the cache at its next round.
    fn context(&self, request: usize, progress: RequestProgress) -> f64;

    /// Whether a host that knows this many tokens of an output launches another round after those
    /// in flight, each of which yields at least one token.
    fn may_go_on(&self, request: usize, known: usize, in_flight: usize) -> bool;

    /// No request runs.
    fn rest(&mut self) {}

    /// Runs a round.
    ///
    /// # Errors
    /// When its time is unknown.
    fn round(&mut self, step: &NextRound<'_>) -> Result<Ran, TunerError>;

    /// The time in ms of a step that only prefills.
    fn prefill_ms(&self, step: &PrefillStep) -> f64;
}

/// What a request has done since its first token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestProgress {
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
    pub progress: RequestProgress,
    /// Tokens in the cache.
    pub context: f64,
    /// Tokens of its sequence, prompt and output, as the host knows it.
    pub known: usize,
}

/// A round that is about to run.
#[derive(Clone, Copy, Debug)]
pub struct NextRound<'a> {
    /// Running requests whose prompts are prefilled.
    pub members: &'a [Member],
    /// Requests that have ended, which the host does not know yet: their slots run.
    pub riders: &'a [Member],
    /// All slots in the graph of the next capture size.
    pub filling: Filling,
    /// Requests whose prompts are prefilled in the same step.
    pub prefilling: usize,
    /// Those of them whose prompts end in this step.
    pub completing: usize,
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
    /// Number of the latter.
    pub riders: usize,
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
    waiting: VecDeque<SentRequest>,
    running: Vec<ActiveRequest>,
    /// Slots that still run after the end of their request.
    riders: Vec<Rider>,
    /// For each slot of an ended request, the rounds until the host knows that it is free.
    held: Vec<usize>,
    batches: Vec<u64>,
    stretches: Vec<Stretch>,
    ended: Vec<EndedRequest>,
    /// Until the loop was no longer full, if it is closed.
    full: Option<FullLoop>,
    occupancy: Option<Occupancy>,
    retractions: u64,
}

struct SentRequest {
    request: usize,
    at_ms: f64,
    /// Rounds launched before the request was sent; they run before its prefill.
    behind: usize,
    /// What it has done, if it was retracted.
    retracted: Option<(RequestProgress, Option<f64>)>,
}

struct ActiveRequest {
    request: usize,
    sent_ms: f64,
    unread: usize,
    /// Tokens of the prompt that are prefilled.
    read: usize,
    progress: RequestProgress,
    first_token_ms: Option<f64>,
    /// Whether its prompt is read again, which yields a token once more.
    reads_again: bool,
    output: ProducedTokens,
}

struct Rider {
    request: usize,
    progress: RequestProgress,
    context: f64,
    rounds_left: usize,
    output: ProducedTokens,
}

/// The output of a request. The host knows all but the tokens of the last rounds, which are in
/// flight when it launches the next one.
#[derive(Clone, Default)]
struct ProducedTokens {
    /// Tokens so far, including the first one.
    produced: usize,
    /// Those of the last rounds: 0 for one in which the request did not take part.
    recent: VecDeque<usize>,
}

impl ProducedTokens {
    /// A round, or a prefill before one, has yielded tokens.
    fn push(&mut self, tokens: usize, rounds_behind: usize) {
        self.produced += tokens;
        self.recent.push_back(tokens);
        while self.recent.len() > rounds_behind {
            self.recent.pop_front();
        }
    }

    /// Tokens that the host knows.
    fn known(&self) -> usize {
        self.produced - self.recent.iter().sum::<usize>()
    }

    /// Rounds of the request in flight, a first token included.
    fn in_flight(&self) -> usize {
        self.recent.iter().filter(|tokens| **tokens > 0).count()
    }
}

struct EndedRequest {
    tokens: usize,
    rounds: usize,
    first_token_ms: f64,
    latency_ms: f64,
    at_ms: f64,
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
            held: Vec::new(),
            batches: Vec::new(),
            stretches: Vec::new(),
            ended: Vec::new(),
            full: None,
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
            if self.running.is_empty() && self.riders.is_empty() && self.held.is_empty() {
                self.course.rest();
            }
            self.make_room();
            self.admit();
            let decoding = self.running.iter().any(|one| self.decodes(one));
            let read = if self.setup.mixed_prefill && decoding { self.read() } else { PrefillStep::default() };
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
    fn decodes(&self, one: &ActiveRequest) -> bool {
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
                    self.held.clear();
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
        self.waiting.push_back(SentRequest { request: self.next, at_ms, behind, retracted: None });
        self.next += 1;
    }

    fn admit(&mut self) {
        while self.running.len() + self.held.len() < self.setup.max_running_requests
            && let Some(sent) = self.waiting.front().filter(|sent| sent.behind == 0)
            && self.fits(sent)
            && let Some(SentRequest { request, at_ms, retracted, .. }) = self.waiting.pop_front()
        {
            let (progress, first_token_ms) = retracted.unwrap_or_default();
            let produced = if first_token_ms.is_some() { 1 + progress.tokens } else { 0 };
            self.running.push(ActiveRequest {
                output: ProducedTokens { produced, recent: VecDeque::new() },
                request,
                sent_ms: at_ms,
                read: 0,
                unread: self.length(request, progress),
                progress,
                first_token_ms,
                reads_again: first_token_ms.is_some(),
            });
        }
    }

    /// Tokens of a request so far.
    fn length(&self, request: usize, progress: RequestProgress) -> usize {
        self.course.context(request, progress).ceil() as usize
    }

    /// Tokens of running requests so far, each with those of its prompt, the oldest first.
    fn lengths(&self) -> Vec<(usize, usize)> {
        let one =
            |one: &ActiveRequest| (self.length(one.request, one.progress), self.course.prompt_tokens(one.request));
        self.running.iter().map(one).collect()
    }

    /// Whether the KV cache can be expected to hold a request and the running ones.
    fn fits(&self, sent: &SentRequest) -> bool {
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
            self.waiting.push_front(SentRequest { request: one.request, at_ms: one.sent_ms, behind: 0, retracted });
        }
    }

    /// Takes the prompt chunks of one step, first come, first served.
    fn read(&mut self) -> PrefillStep {
        let mut step = PrefillStep::default();
        for one in &mut self.running {
            let count = one.unread.min(self.setup.prefill_chunk).min(self.setup.prefill_budget - step.tokens);
            step.add(one.read, count);
            one.read += count;
            one.unread -= count;
        }
        step
    }

    /// Prefills the prompt chunks of one step on their own.
    fn prefill(&mut self) -> Result<(), TunerError> {
        let step = self.read();
        if step.tokens == 0 {
            return Ok(());
        }
        let tokens = step.tokens;
        let milliseconds = checked(self.course.prefill_ms(&step), || format!("prefill of {tokens} tokens"))?;
        self.prefill_ms += milliseconds;
        self.now_ms += milliseconds;
        self.first_tokens();
        self.end();
        Ok(())
    }

    /// Hands out the first tokens of prompts that are prefilled.
    fn first_tokens(&mut self) {
        let behind = self.setup.rounds_behind;
        for one in self.running.iter_mut().filter(|one| one.unread == 0) {
            if one.first_token_ms.is_none() {
                one.first_token_ms = Some(self.now_ms - one.sent_ms);
                one.output.push(1, behind);
            }
            if std::mem::take(&mut one.reads_again) {
                one.progress.tokens += 1;
                one.output.push(1, behind);
            }
        }
    }

    fn round(&mut self, read: PrefillStep) -> Result<(), TunerError> {
        let of = |request: usize, progress: RequestProgress, context: f64, output: &ProducedTokens| {
            let known = self.course.prompt_tokens(request) + output.known();
            Member { request, progress, context, known }
        };
        let member = |one: &ActiveRequest| {
            of(one.request, one.progress, self.course.context(one.request, one.progress), &one.output)
        };
        let members: Vec<Member> = self.running.iter().filter(|one| self.decodes(one)).map(member).collect();
        let rider = |one: &Rider| of(one.request, one.progress, one.context, &one.output);
        let riders: Vec<Member> = self.riders.iter().map(rider).collect();
        let batch = members.len() + riders.len();
        if batch == 0 {
            // With nothing to launch, the host waits for all that is in flight.
            self.held.clear();
            self.running.iter_mut().for_each(|one| one.output.recent.clear());
            return Ok(());
        }
        let tokens: f64 = members.iter().chain(&riders).map(|one| one.context).sum();
        let places = padded(&self.setup.capture_sizes, batch);
        let ran = self.course.round(&NextRound {
            members: &members,
            riders: &riders,
            filling: Filling { places, requests: batch as f64, context: tokens / batch as f64 },
            prefilling: read.prompts,
            completing: self.running.iter().filter(|one| one.unread == 0 && !self.decodes(one)).count(),
            prefilled: read.tokens,
        })?;
        let milliseconds = checked(ran.ms, || format!("a round of {places}"))?;
        self.note(&ran);
        self.now_ms += milliseconds;
        let mut yields = members.iter().zip(&ran.tokens);
        let decodes = |one: &&mut ActiveRequest| one.unread == 0 && one.first_token_ms.is_some() && !one.reads_again;
        for one in self.running.iter_mut().filter(decodes) {
            if let Some((_, tokens)) = yields.next() {
                one.progress.rounds += usize::from(*tokens > 0 || C::COUNTS_ALL);
                one.progress.tokens += tokens;
                one.output.push(*tokens, self.setup.rounds_behind);
            }
        }
        if read.tokens > 0 {
            self.first_tokens();
        }
        self.waiting.iter_mut().for_each(|sent| sent.behind = sent.behind.saturating_sub(1));
        for rider in &mut self.riders {
            rider.rounds_left -= 1;
            rider.output.push(0, self.setup.rounds_behind);
        }
        self.riders.retain(|rider| rider.rounds_left > 0);
        self.held.iter_mut().for_each(|rounds| *rounds -= 1);
        self.held.retain(|rounds| *rounds > 0);
        // A slot that took part is in flight for one more round.
        self.held.extend(std::iter::repeat_n(1, ran.riders));
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

    /// Removes the requests whose last round has run. Where rounds are in flight, the host knows
    /// that a round later, unless it knew before that the round was the last one.
    fn end(&mut self) {
        let (course, behind, now_ms) = (&self.course, self.setup.rounds_behind, self.now_ms);
        let done =
            |one: &mut ActiveRequest| one.first_token_ms.is_some() && course.has_ended(one.request, one.progress);
        for one in self.running.extract_if(.., done) {
            let (request, rounds) = (one.request, one.progress.rounds);
            // The host knows about a request that ends with its first token before it launches a
            // round.
            let rides = rounds > 0 && course.may_go_on(request, one.output.known(), one.output.in_flight());
            if behind > 0 && rides {
                let context = (course.prompt_tokens(request) + course.output_tokens(request)) as f64;
                let output = one.output.clone();
                self.riders.push(Rider { request, progress: one.progress, context, rounds_left: behind, output });
            }
            if behind > 0 && rounds > 0 {
                self.held.push(behind);
            }
            self.ended.push(EndedRequest {
                tokens: course.output_tokens(request),
                rounds,
                first_token_ms: one.first_token_ms.unwrap_or_default(),
                latency_ms: now_ms - one.sent_ms,
                at_ms: now_ms,
            });
        }
        if let Arrivals::Closed { batch_size } = self.arrivals
            && self.full.is_none()
            && self.requests - self.ended.len() < *batch_size
        {
            self.full = Some(FullLoop { seconds: now_ms / 1e3, output_tokens: self.tokens_so_far() });
        }
    }

    /// Tokens of all requests so far.
    fn tokens_so_far(&self) -> f64 {
        let of = |one: &ActiveRequest| {
            let further =
                self.course.context(one.request, one.progress) - self.course.prompt_tokens(one.request) as f64;
            if one.first_token_ms.is_some() { 1.0 + further } else { 0.0 }
        };
        let ended: f64 = self.ended.iter().map(|one| one.tokens as f64).sum();
        ended + self.running.iter().map(of).sum::<f64>()
    }

    /// The figures, after [`run`](Self::run).
    pub fn forecast(self) -> Result<Forecast, TunerError> {
        let spread = |of: fn(&EndedRequest) -> f64| {
            let nothing = || TunerError::Configuration("forecast: no request has ended".into());
            TrialSpread::from_values(self.ended.iter().map(of)).ok_or_else(nothing)
        };
        let aborted = self.running.iter().filter(|one| one.first_token_ms.is_some());
        let aborted: Vec<RequestProgress> = aborted.map(|one| one.progress).collect();
        let output_tokens = self.ended.iter().map(|one| one.tokens as u64).sum::<u64>()
            + aborted.iter().map(|one| 1 + one.tokens as u64).sum::<u64>();
        let rounds = self.ended.iter().map(|one| one.rounds).sum::<usize>()
            + aborted.iter().map(|one| one.rounds).sum::<usize>();
        let rate = |one: &EndedRequest| {
            let after_first = one.tokens - 1;
            (after_first > 0).then(|| after_first as f64 / (one.latency_ms - one.first_token_ms) * 1e3)
        };
        let elapsed_s = self.now_ms / 1e3;
        Ok(Forecast {
            elapsed_s,
            prefill_s: self.prefill_ms / 1e3,
            output_tokens,
            output_tokens_per_s: output_tokens as f64 / elapsed_s,
            full: self.full.and_then(|full| full.of(output_tokens)),
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

//! Submits requests to the engine and records what it does.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::steady::SteadyStep;
use engine::{Completion, Engine, EngineError, Event, Request, RequestId, backend::RoundTiming, scheduler::Statistics};
use schemas::tree::TreeShape;

/// How requests arrive.
#[derive(Clone, Debug)]
pub enum RequestSource {
    /// This many requests are kept running.
    Closed(usize),
    /// Each at its own time after the start, ascending.
    Open(Vec<Duration>),
}

/// A completed request.
#[derive(Clone, Debug)]
pub struct CompletedRequest {
    /// Time from its arrival to its submission, which waits for the step that is running.
    pub late: Duration,
    /// Time from the start of the trial to its submission.
    pub submitted: Duration,
    /// The engine's completion; its times count from the submission.
    pub completion: Completion,
    /// How many tokens it had by when, ascending, since the submission.
    pub arrivals: Vec<(Duration, usize)>,
}

/// Everything observed in a trial.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// In the order of completion.
    pub served: Vec<CompletedRequest>,
    /// Times of rounds; if several ended in one step, only the last one's.
    pub timings: Vec<RoundTiming>,
    /// Number of all rounds.
    pub rounds: u64,
    /// Entry k counts the rounds of k + 1 requests.
    pub rounds_by_batch: Vec<u64>,
    /// Time from the first arrival to the end of the last request.
    pub elapsed: Duration,
    /// The engine's steps in chronological order.
    pub steps: Vec<SteadyStep>,
    /// Arrival times of an open loop.
    pub arrivals: Option<Vec<Duration>>,
    /// Requests that run together in a closed loop, as long as there are this many.
    pub together: Option<usize>,
    /// Requests not yet served when the last one arrived.
    pub unserved_at_last: usize,
    /// Number of times that a request was retracted because pages of the KV cache ran out.
    pub retractions: Option<u64>,
    /// Time in rounds, as reported by the engine.
    pub round_time: Duration,
    /// Time in prefills, as reported by the engine.
    pub prefill_time: Duration,
}

/// A request that is being served.
#[derive(Clone, Debug)]
struct DrivenRequest {
    late: Duration,
    submitted: Duration,
    arrivals: Vec<(Duration, usize)>,
}

/// Longest single sleep, which bounds the reaction time to an interrupt.
const NAP: Duration = Duration::from_millis(5);
/// For the last part of a wait the thread yields instead of sleeping, because a sleep may last
/// longer than requested.
const LAST_STRETCH: Duration = Duration::from_micros(500);

/// Serves all requests; `None` when interrupted. No request is left in the engine.
///
/// # Errors
/// When the engine fails, or has no room for the batch of a closed loop.
pub fn drive(
    engine: &mut Engine,
    requests: &[Request],
    source: &RequestSource,
    interrupted: &AtomicBool,
) -> Result<Option<Observations>, EngineError> {
    // Rounds that were launched for an earlier trial do not count.
    settle(engine)?;
    let mut running = HashMap::new();
    let seen = feed(engine, requests, source, interrupted, &mut running);
    if !running.is_empty() {
        // The engine is used for the next trial, so nothing may be left running.
        running.keys().for_each(|id| engine.cancel(*id));
        // If serving failed, its error is the one to report, not one from cleaning up.
        let cleared = engine.step(&mut |_| {});
        if seen.is_ok() {
            cleared?;
        }
    }
    seen
}

fn settle(engine: &mut Engine) -> Result<(), EngineError> {
    while !engine.is_idle() {
        engine.step(&mut |_| {})?;
    }
    Ok(())
}

fn feed(
    engine: &mut Engine,
    requests: &[Request],
    source: &RequestSource,
    interrupted: &AtomicBool,
    running: &mut HashMap<RequestId, DrivenRequest>,
) -> Result<Option<Observations>, EngineError> {
    let before = engine.statistics().clone();
    let mut seen = Observations::default();
    let mut waiting = requests.iter().enumerate();
    let mut starved = 0;
    let start = Instant::now();
    let mut last = Duration::ZERO;
    loop {
        let due = source.due(start.elapsed(), requests.len() - waiting.len(), running.len());
        for (at, request) in waiting.by_ref().take(due) {
            let submitted = start.elapsed();
            // A step of the engine may be longer than the time between arrivals; clients would have
            // waited.
            let late = submitted.saturating_sub(source.arrival(at).unwrap_or(submitted));
            running.insert(engine.submit(request.clone())?, DrivenRequest { late, submitted, arrivals: Vec::new() });
            if at + 1 == requests.len() {
                seen.unserved_at_last = running.len();
            }
        }
        // Looked at without taking it: an open loop ends only when nothing is left to arrive.
        let next = waiting.clone().next();
        if running.is_empty() && next.is_none() {
            break;
        }
        if interrupted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // Nothing to serve until the next arrival; that time is no step of the engine.
        if let Some((next, _)) = next.filter(|_| running.is_empty()) {
            // Frees slots that a round in flight still holds, before the next request arrives.
            settle(engine)?;
            wait(start, source.arrival(next).unwrap_or_default(), interrupted);
            last = start.elapsed();
            continue;
        }
        let (rounds, ended) = (engine.statistics().rounds, seen.served.len());
        let (batch, prompt_tokens) = (running.len(), read_tokens(engine));
        engine.step(&mut |event| match event {
            Event::Tokens { request, tokens, .. } => {
                running.entry(request).and_modify(|one| one.arrived(start.elapsed(), tokens.len()));
            }
            Event::Finished { request, completion } => {
                if let Some(DrivenRequest { late, submitted, arrivals }) = running.remove(&request) {
                    seen.served.push(CompletedRequest { late, submitted, completion: *completion, arrivals });
                }
            }
        })?;
        let now = start.elapsed();
        let ran = &engine.statistics().ran;
        seen.steps.push(SteadyStep {
            begin: last.as_secs_f64(),
            took: (now - last).as_secs_f64(),
            rounds: engine.statistics().rounds - rounds,
            batch,
            // Several rounds end in one step only when the last ones are drained.
            shape: ran.iter().map(|round| round.shape).max().unwrap_or(TreeShape::OFF),
            rows: ran.iter().map(|round| round.rows).sum(),
            tokens: ran.iter().map(|round| round.tokens).sum(),
            prompt_tokens: read_tokens(engine) - prompt_tokens,
        });
        last = now;
        // Not every step collects a round, for example while prompts are read.
        if engine.statistics().rounds > rounds {
            seen.timings.extend(engine.statistics().last_round);
        }
        if let RequestSource::Closed(batch_size) = source {
            let none_ended = seen.served.len() == ended;
            // Requests in flight may free slots in the next steps, so one such step proves nothing.
            starved = if none_ended && is_starved(engine, *batch_size) { starved + 1 } else { 0 };
            if starved > engine.capacity().rounds_in_flight {
                return Err(no_room(engine, *batch_size));
            }
        }
    }
    seen.elapsed = start.elapsed();
    seen.rounds = engine.statistics().rounds - before.rounds;
    seen.retractions = Some(engine.statistics().retracted_for_pages - before.retracted_for_pages);
    seen.round_time = engine.statistics().round_time.saturating_sub(before.round_time);
    seen.prefill_time = engine.statistics().prefill_time.saturating_sub(before.prefill_time);
    seen.arrivals = source.arrivals().map(<[Duration]>::to_vec);
    // Requests above the limit only wait.
    seen.together = source.batch_size().map(|batch| batch.min(engine.max_running_requests()));
    seen.rounds_by_batch = rounds_by_batch(engine.statistics(), &before);
    Ok(Some(seen))
}

impl RequestSource {
    /// Number of requests to submit now, after `sent` of them, of which `running` are not
    /// completed.
    fn due(&self, now: Duration, sent: usize, running: usize) -> usize {
        match self {
            Self::Closed(batch_size) => batch_size.saturating_sub(running),
            Self::Open(arrivals) => arrivals.partition_point(|arrival| *arrival <= now).saturating_sub(sent),
        }
    }

    /// The batch of a closed loop.
    fn batch_size(&self) -> Option<usize> {
        match self {
            Self::Closed(batch_size) => Some(*batch_size),
            Self::Open(_) => None,
        }
    }

    /// Arrival times of an open loop.
    fn arrivals(&self) -> Option<&[Duration]> {
        match self {
            Self::Closed(_) => None,
            Self::Open(arrivals) => Some(arrivals),
        }
    }

    /// Arrival time of a request; `None` in a closed loop, where it is sent when there is room.
    fn arrival(&self, at: usize) -> Option<Duration> {
        match self {
            Self::Closed(_) => None,
            Self::Open(arrivals) => arrivals.get(at).copied(),
        }
    }
}

impl DrivenRequest {
    /// Records new tokens, at a time after the start of the trial.
    fn arrived(&mut self, now: Duration, tokens: usize) {
        if tokens > 0 {
            let before = self.arrivals.last().map_or(0, |(_, before)| *before);
            self.arrivals.push((now.saturating_sub(self.submitted), before + tokens));
        }
    }
}

/// Number of prompt tokens prefilled so far, without cached ones.
fn read_tokens(engine: &Engine) -> u64 {
    let Statistics { prompt_tokens, cached_tokens, .. } = engine.statistics();
    prompt_tokens.saturating_sub(*cached_tokens)
}

/// Waits until a time after the start, or an interrupt.
fn wait(start: Instant, until: Duration, interrupted: &AtomicBool) {
    while !interrupted.load(Ordering::Relaxed) {
        let left = until.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        match left.checked_sub(LAST_STRETCH) {
            Some(left) => thread::sleep(left.min(NAP)),
            // A sleep may last longer than asked, so the end is awaited awake.
            None => thread::yield_now(),
        }
    }
}

/// Whether the KV cache keeps fewer requests running than the load requires, so that a smaller
/// batch would be measured than the trial says. A request that has just ended leaves a gap as long
/// as rounds in flight hold its slot, so this must persist for several steps in which no request
/// ends. Requests that wait because of the limit of running requests are part of the load.
fn is_starved(engine: &Engine, batch_size: usize) -> bool {
    let Statistics { waiting, running, .. } = engine.statistics();
    *waiting > 0 && *running < batch_size.min(engine.max_running_requests())
}

fn no_room(engine: &Engine, batch_size: usize) -> EngineError {
    EngineError::Configuration(format!(
        "only {} of {batch_size} requests run together: the KV cache has no space for more; raise \
         engine.mem_fraction_static, or lower batch.sizes or workload.output_length",
        engine.statistics().running
    ))
}

/// Number of rounds by batch since `before`.
fn rounds_by_batch(now: &Statistics, before: &Statistics) -> Vec<u64> {
    let earlier = before.rounds_by_batch.iter().copied().chain(std::iter::repeat(0));
    let mut rounds: Vec<u64> = now.rounds_by_batch.iter().zip(earlier).map(|(now, before)| now - before).collect();
    // Drops the empty entries of larger batches from earlier trials.
    rounds.truncate(rounds.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
    rounds
}

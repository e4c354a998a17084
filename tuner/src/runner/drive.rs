//! Submits requests to the engine and records what it does.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::steady::Step;
use engine::{Completion, Engine, EngineError, Event, Request, RequestId, backend::RoundTiming, scheduler::Statistics};

/// How requests come.
#[derive(Clone, Debug)]
pub enum Source {
    /// This many are kept running together.
    Closed(usize),
    /// Each at its time, counted from the start; ascending.
    Open(Vec<Duration>),
}

/// A request that has been served.
#[derive(Clone, Debug)]
pub struct CompletedRequest {
    /// From its arrival to its submission: the step that ran meanwhile.
    pub late: Duration,
    /// From the start of the trial to its submission.
    pub submitted: Duration,
    /// What the engine says of it, counted from its submission.
    pub completion: Completion,
}

/// Everything seen in a trial.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// In the order in which they ended.
    pub served: Vec<CompletedRequest>,
    /// The rounds' times; of several that ended in one step only the last one's.
    pub timings: Vec<RoundTiming>,
    /// All rounds.
    pub rounds: u64,
    /// Entry k counts the rounds of k + 1 requests.
    pub rounds_by_batch: Vec<u64>,
    /// From the first arrival to the end of the last request.
    pub elapsed: Duration,
    /// The engine's steps in the order of time.
    pub steps: Vec<Step>,
    /// When requests came, of an open loop.
    pub arrivals: Option<Vec<Duration>>,
    /// Requests that were not served yet when the last one came.
    pub unserved_at_last: usize,
    /// Time in rounds, as reported by the engine.
    pub round_time: Duration,
    /// Time in prefills, as reported by the engine.
    pub prefill_time: Duration,
}

/// A request that is being served.
#[derive(Clone, Copy, Debug)]
struct Running {
    late: Duration,
    submitted: Duration,
}

/// Longest sleep at a time: so soon an interrupt is heard.
const NAP: Duration = Duration::from_millis(5);
/// What is left of a wait for its last stretch, in which the processor is given away but not for a fixed time: a sleep
/// may last longer than requested.
const LAST_STRETCH: Duration = Duration::from_micros(500);

/// Serves all requests; `None` when interrupted. Leaves nothing of them in the engine.
///
/// # Errors
/// When the engine fails, or has no room for the batch of a closed loop.
pub fn drive(
    engine: &mut Engine,
    requests: &[Request],
    source: &Source,
    interrupted: &AtomicBool,
) -> Result<Option<Observations>, EngineError> {
    // Rounds that were launched ahead for an earlier trial do not count.
    settle(engine)?;
    let mut running = HashMap::new();
    let seen = feed(engine, requests, source, interrupted, &mut running);
    if !running.is_empty() {
        running.keys().for_each(|id| engine.cancel(*id));
        // After an error that one is the news, not what clearing up meets.
        let cleared = engine.step();
        if seen.is_ok() {
            cleared?;
        }
    }
    seen
}

fn settle(engine: &mut Engine) -> Result<(), EngineError> {
    while !engine.is_idle() {
        engine.step()?;
    }
    Ok(())
}

fn feed(
    engine: &mut Engine,
    requests: &[Request],
    source: &Source,
    interrupted: &AtomicBool,
    running: &mut HashMap<RequestId, Running>,
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
            let late = submitted.saturating_sub(source.arrival(at).unwrap_or(submitted));
            running.insert(engine.submit(request.clone())?, Running { late, submitted });
            if at + 1 == requests.len() {
                seen.unserved_at_last = running.len();
            }
        }
        let next = waiting.clone().next();
        if running.is_empty() && next.is_none() {
            break;
        }
        if interrupted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if let Some((next, _)) = next.filter(|_| running.is_empty()) {
            // A slot that a round launched ahead still holds is to be free when the next request comes.
            settle(engine)?;
            wait(start, source.arrival(next).unwrap_or_default(), interrupted);
            last = start.elapsed();
            continue;
        }
        let (rounds, ended) = (engine.statistics().rounds, seen.served.len());
        let (batch, prompt_tokens) = (running.len(), read_tokens(engine));
        for event in engine.step()? {
            if let Event::Finished { request: id, completion } = event
                && let Some(Running { late, submitted }) = running.remove(&id)
            {
                seen.served.push(CompletedRequest { late, submitted, completion: *completion });
            }
        }
        let now = start.elapsed();
        seen.steps.push(Step {
            begin: last.as_secs_f64(),
            took: (now - last).as_secs_f64(),
            rounds: engine.statistics().rounds - rounds,
            batch,
            prompt_tokens: read_tokens(engine) - prompt_tokens,
        });
        last = now;
        if engine.statistics().rounds > rounds {
            seen.timings.extend(engine.statistics().last_round);
        }
        if let Source::Closed(batch_size) = source {
            let none_ended = seen.served.len() == ended;
            starved = if none_ended && is_starved(engine, *batch_size) { starved + 1 } else { 0 };
            if starved > engine.capacity().rounds_in_flight {
                return Err(no_room(engine, *batch_size));
            }
        }
    }
    seen.elapsed = start.elapsed();
    seen.rounds = engine.statistics().rounds - before.rounds;
    seen.round_time = engine.statistics().round_time.saturating_sub(before.round_time);
    seen.prefill_time = engine.statistics().prefill_time.saturating_sub(before.prefill_time);
    seen.arrivals = source.arrivals().map(<[Duration]>::to_vec);
    seen.rounds_by_batch = rounds_by_batch(engine.statistics(), &before);
    Ok(Some(seen))
}

impl Source {
    /// How many more requests are to be submitted now, after `sent` of them, of which `running` are not served yet.
    fn due(&self, now: Duration, sent: usize, running: usize) -> usize {
        match self {
            Self::Closed(batch_size) => batch_size.saturating_sub(running),
            Self::Open(arrivals) => arrivals.partition_point(|arrival| *arrival <= now).saturating_sub(sent),
        }
    }

    /// When requests come, of an open loop.
    fn arrivals(&self) -> Option<&[Duration]> {
        match self {
            Self::Closed(_) => None,
            Self::Open(arrivals) => Some(arrivals),
        }
    }

    /// When a request comes; `None` where it comes when there is a place.
    fn arrival(&self, at: usize) -> Option<Duration> {
        match self {
            Self::Closed(_) => None,
            Self::Open(arrivals) => arrivals.get(at).copied(),
        }
    }
}

/// Prompt tokens that were prefilled so far; cached ones do not count.
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
            None => thread::yield_now(),
        }
    }
}

/// Whether the KV cache keeps fewer requests running than it should: a batch that is smaller than it says would be
/// measured under a wrong name. A request that has just ended leaves a gap, for as long as rounds in flight hold its place,
/// so this must last over as many steps in which none ends. Who waits because no more are allowed to run is part of the
/// load.
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

/// The rounds since then.
fn rounds_by_batch(now: &Statistics, before: &Statistics) -> Vec<u64> {
    let earlier = before.rounds_by_batch.iter().copied().chain(std::iter::repeat(0));
    let mut rounds: Vec<u64> = now.rounds_by_batch.iter().zip(earlier).map(|(now, before)| now - before).collect();
    // Larger batches of earlier trials do not count.
    rounds.truncate(rounds.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
    rounds
}

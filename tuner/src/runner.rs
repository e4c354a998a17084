//! One trial on the engine: a closed loop that keeps `batch_size` requests running.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use engine::{Completion, Engine, EngineError, Event, Request, RequestId, ShapePolicy, backend::RoundTiming};

use crate::{
    record::{Measurement, Spread, Trial},
    workload::Workload,
};

/// New tokens of each warm-up request.
const WARM_UP_TOKENS: usize = 8;

/// How a trial ended.
#[derive(Debug)]
pub enum Ended {
    /// With figures.
    Measured(Box<Measurement>),
    /// The user wanted to stop: nothing of it is kept.
    Interrupted,
}

/// Everything seen in a trial.
#[derive(Default)]
struct Seen {
    completions: Vec<Completion>,
    rounds: Vec<RoundTiming>,
    elapsed: Duration,
}

/// Runs a trial. The warm-up before it is not counted.
///
/// # Errors
/// When the engine cannot run the shape or fails.
pub fn run(
    engine: &mut Engine,
    trial: &Trial,
    workload: &Workload,
    interrupted: &AtomicBool,
) -> Result<Ended, EngineError> {
    engine.set_policy(ShapePolicy::fixed(trial.shape))?;
    let warm_up: Vec<Request> = workload.requests.iter().cycle().take(trial.batch_size).map(shortened).collect();
    if closed_loop(engine, &warm_up, trial.batch_size, interrupted)?.is_none() {
        return Ok(Ended::Interrupted);
    }
    // Fewer requests than the batch would never fill it.
    let count = workload.requests.len().max(trial.batch_size);
    let requests: Vec<Request> = workload.requests.iter().cycle().take(count).cloned().collect();
    Ok(match closed_loop(engine, &requests, trial.batch_size, interrupted)? {
        Some(seen) => measurement(&seen).map_or(Ended::Interrupted, |figures| Ended::Measured(Box::new(figures))),
        None => Ended::Interrupted,
    })
}

/// Keeps `batch_size` of the requests running until all have ended; `None` when interrupted.
fn closed_loop(
    engine: &mut Engine,
    requests: &[Request],
    batch_size: usize,
    interrupted: &AtomicBool,
) -> Result<Option<Seen>, EngineError> {
    let mut seen = Seen::default();
    let mut waiting = requests.iter();
    let mut running: HashSet<RequestId> = HashSet::new();
    let start = Instant::now();
    loop {
        while running.len() < batch_size
            && let Some(request) = waiting.next()
        {
            running.insert(engine.submit(request.clone())?);
        }
        if running.is_empty() {
            break;
        }
        if interrupted.load(Ordering::Relaxed) {
            running.iter().for_each(|id| engine.cancel(*id));
            engine.step()?;
            return Ok(None);
        }
        let rounds = engine.statistics().rounds;
        for event in engine.step()? {
            if let Event::Finished { request, completion } = event {
                running.remove(&request);
                seen.completions.push(*completion);
            }
        }
        if engine.statistics().rounds > rounds {
            seen.rounds.extend(engine.statistics().last_round);
        }
    }
    seen.elapsed = start.elapsed();
    Ok(Some(seen))
}

fn shortened(request: &Request) -> Request {
    let mut request = request.clone();
    request.stop.max_new_tokens = request.stop.max_new_tokens.map(|tokens| tokens.min(WARM_UP_TOKENS));
    request
}

/// `None` when no request ran a round: there is nothing to measure then.
fn measurement(seen: &Seen) -> Option<Measurement> {
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
    let tokens: u64 = seen.completions.iter().map(|completion| completion.output_ids.len() as u64).sum();
    let request_rounds: usize = seen.completions.iter().map(|completion| completion.rounds).sum();
    let mut accept_histogram = Vec::new();
    for completion in &seen.completions {
        accept_histogram.resize(completion.accept_histogram.len().max(accept_histogram.len()), 0);
        accept_histogram.iter_mut().zip(&completion.accept_histogram).for_each(|(sum, count)| *sum += count);
    }
    // After the first token, since that one is the prompt's.
    let rates = seen.completions.iter().map(|completion| {
        let seconds = (completion.elapsed - completion.time_to_first_token).as_secs_f64();
        (completion.output_ids.len() as f64 - 1.0) / seconds
    });
    let elapsed_s = seen.elapsed.as_secs_f64();
    let part =
        |of: fn(&RoundTiming) -> Option<Duration>| Spread::of(seen.rounds.iter().filter_map(of).map(milliseconds));
    Some(Measurement {
        requests: seen.completions.len(),
        output_tokens: tokens,
        elapsed_s,
        output_tokens_per_s: tokens as f64 / elapsed_s,
        tokens_per_s_per_user: Spread::of(rates).map_or(0.0, |rates| rates.median),
        accept_length: tokens as f64 / request_rounds as f64,
        accept_histogram,
        rounds: seen.rounds.len() as u64,
        round_ms: part(|timing| Some(timing.total))?,
        draft_ms: part(|timing| timing.draft),
        verify_ms: part(|timing| timing.verify),
        extend_ms: part(|timing| timing.extend),
        time_to_first_token_ms: Spread::of(seen.completions.iter().map(|one| milliseconds(one.time_to_first_token)))?,
        latency_ms: Spread::of(seen.completions.iter().map(|one| milliseconds(one.elapsed)))?,
    })
}

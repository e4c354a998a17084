//! One trial on the engine: a closed loop that keeps `batch_size` requests running.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use engine::{Completion, Engine, EngineError, Event, Request, RequestId, ShapePolicy, backend::RoundTiming};

use crate::{
    configuration::Configuration,
    record::{Measurement, Spread, Trial},
    workload::Workload,
};

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
/// When the engine cannot run the shape, cannot keep that many requests running, or fails. The engine is left idle, but
/// for a device that failed.
pub fn run(
    engine: &mut Engine,
    trial: &Trial,
    workload: &Workload,
    interrupted: &AtomicBool,
) -> Result<Ended, EngineError> {
    engine.set_policy(policy(&trial.configuration))?;
    let batch_size = trial.load.batch_size().unwrap_or(1);
    // Fewer requests than the batch would never fill it.
    let count = workload.requests.len().max(batch_size);
    let requests: Vec<Request> = workload.requests.iter().cycle().take(count).cloned().collect();
    if workload.warm_up_tokens > 0 {
        let short = |request: &Request| shortened(request, workload.warm_up_tokens);
        let warm_up: Vec<Request> = requests.iter().take(batch_size).map(short).collect();
        if closed_loop(engine, &warm_up, batch_size, interrupted)?.is_none() {
            return Ok(Ended::Interrupted);
        }
    }
    match closed_loop(engine, &requests, batch_size, interrupted)? {
        Some(seen) => measurement(&seen).map(|figures| Ended::Measured(Box::new(figures))),
        None => Ok(Ended::Interrupted),
    }
}

/// Which tree runs at which batch.
fn policy(configuration: &Configuration) -> ShapePolicy {
    let rows = configuration.table.iter().map(|row| (row.max_running_batch, row.shape)).collect();
    ShapePolicy::table(rows).unwrap_or_else(|| ShapePolicy::fixed(configuration.shape))
}

/// Keeps `batch_size` of the requests running until all have ended; `None` when interrupted.
fn closed_loop(
    engine: &mut Engine,
    requests: &[Request],
    batch_size: usize,
    interrupted: &AtomicBool,
) -> Result<Option<Seen>, EngineError> {
    let mut running = HashSet::new();
    let seen = feed(engine, requests, batch_size, interrupted, &mut running);
    if !running.is_empty() {
        running.iter().for_each(|id| engine.cancel(*id));
        // After an error that one is the news, not what clearing up meets.
        let cleared = engine.step();
        if seen.is_ok() {
            cleared?;
        }
    }
    seen
}

fn feed(
    engine: &mut Engine,
    requests: &[Request],
    batch_size: usize,
    interrupted: &AtomicBool,
    running: &mut HashSet<RequestId>,
) -> Result<Option<Seen>, EngineError> {
    let mut seen = Seen::default();
    let mut waiting = requests.iter();
    let mut starved = 0;
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
        // A batch that is smaller than it says would be measured under a wrong name. Rounds in flight may hold the place
        // of a request that has just ended, but not for longer than they are many.
        starved = if engine.statistics().waiting > 0 { starved + 1 } else { 0 };
        if starved > engine.capacity().rounds_in_flight {
            return Err(EngineError::Configuration(format!(
                "only {} of {batch_size} requests run together: the KV cache has no room for more; raise \
                 engine.mem_fraction_static, or lower batch.sizes or workload.output_length",
                engine.statistics().running
            )));
        }
    }
    seen.elapsed = start.elapsed();
    Ok(Some(seen))
}

fn shortened(request: &Request, tokens: usize) -> Request {
    let mut request = request.clone();
    request.stop.max_new_tokens = request.stop.max_new_tokens.map(|most| most.min(tokens));
    request
}

fn measurement(seen: &Seen) -> Result<Measurement, EngineError> {
    let no_round = || {
        EngineError::InvalidRequest(
            "every request ended with its first token, so that no round ran: raise workload.output_length, or set \
             workload.ignore_eos"
                .into(),
        )
    };
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
    let tokens: u64 = seen.completions.iter().map(|completion| completion.output_ids.len() as u64).sum();
    let request_rounds: usize = seen.completions.iter().map(|completion| completion.rounds).sum();
    if request_rounds == 0 {
        return Err(no_round());
    }
    let mut accept_histogram = Vec::new();
    for completion in &seen.completions {
        accept_histogram.resize(completion.accept_histogram.len().max(accept_histogram.len()), 0);
        accept_histogram.iter_mut().zip(&completion.accept_histogram).for_each(|(sum, count)| *sum += count);
    }
    // After the first token, since that one is the prompt's; a request without a second one has no rate.
    let rates = seen.completions.iter().filter(|completion| completion.output_ids.len() > 1).map(|completion| {
        let seconds = completion.elapsed.saturating_sub(completion.time_to_first_token).as_secs_f64();
        (completion.output_ids.len() - 1) as f64 / seconds
    });
    let elapsed_s = seen.elapsed.as_secs_f64();
    let part =
        |of: fn(&RoundTiming) -> Option<Duration>| Spread::of(seen.rounds.iter().filter_map(of).map(milliseconds));
    let each = |of: fn(&Completion) -> Duration| Spread::of(seen.completions.iter().map(of).map(milliseconds));
    Ok(Measurement {
        requests: seen.completions.len(),
        output_tokens: tokens,
        elapsed_s,
        output_tokens_per_s: tokens as f64 / elapsed_s,
        tokens_per_s_per_user: Spread::of(rates).ok_or_else(no_round)?.median,
        goodput_tokens_per_s: None,
        simulated: false,
        accept_length: tokens as f64 / request_rounds as f64,
        accept_histogram,
        rounds: seen.rounds.len() as u64,
        round_ms: part(|timing| Some(timing.total)).ok_or_else(no_round)?,
        draft_ms: part(|timing| timing.draft),
        verify_ms: part(|timing| timing.verify),
        extend_ms: part(|timing| timing.extend),
        running_batch: Vec::new(),
        inter_token_ms: None,
        time_to_first_token_ms: each(|one| one.time_to_first_token).ok_or_else(no_round)?,
        latency_ms: each(|one| one.elapsed).ok_or_else(no_round)?,
    })
}

//! One trial on a running server: a load, what the client sees of it, and what the server's metrics
//! say meanwhile.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use engine::Request;
use external::{
    ServerError,
    api::{Api, Counters, Generate, Generated},
    load::{self, LoadArrivals, Observed},
};

use super::record::{OtherTraffic, RunningFigures};
use crate::{
    runner::full_loop::{RequestSpan, full_loop},
    statistics::median,
    system::server::{all_rounds, flush, further_tokens, generate},
    trials::record::{FullLoop, TrialSpread},
    workload::prompt_pool::{Draw, other_prompt},
};

/// Interval at which the server's gauges are read during a load.
const LOOK: Duration = Duration::from_millis(50);
/// Longest time until the counters of a server have counted the requests that it has answered.
const LONGEST_COUNT: Duration = Duration::from_secs(2);
/// Longest prompt of a warm-up, in tokens.
const WARM_UP_PROMPT: usize = 64;
/// Tokens beyond ours that are no sign of other traffic: health checks generate one each.
const FEW_TOKENS: f64 = 8.0;
/// The same as a share of ours.
const FEW_SHARE: f64 = 0.01;

/// How a trial is run.
#[derive(Clone, Copy, Debug)]
pub struct RunningOptions<'a> {
    /// New tokens of each warm-up request; 0 for no warm-up.
    pub warm_up_tokens: usize,
    /// Whether the prefix cache is flushed before.
    pub flush: bool,
    /// Whether the server speculates, if told.
    pub speculates: Option<bool>,
    /// Set by another thread when the user requests a stop.
    pub interrupted: &'a AtomicBool,
}

/// The gauges of a server during a load.
#[derive(Debug, Default)]
struct Gauges {
    running_most: Option<f64>,
    waiting_most: Option<f64>,
    samples: usize,
    /// Samples with more requests than ours, and the largest excess.
    exceeding: usize,
    excess: f64,
}

/// Runs a trial; `None` if the user requests a stop.
///
/// # Errors
/// When a request fails, or the cache cannot be flushed.
pub fn run(api: &Api, draw: &Draw, options: &RunningOptions<'_>) -> Result<Option<RunningFigures>, ServerError> {
    if options.flush {
        flush(api)?;
    }
    match warm_up(api, draw, options) {
        Err(ServerError::Interrupted) => return Ok(None),
        other => other?,
    }
    let before = settled(api, None)?;
    let requests: Vec<Generate<'_>> = draw.requests.iter().map(generate).collect();
    let ended = AtomicBool::new(false);
    let (observed, gauges) = thread::scope(|scope| {
        let looking = scope.spawn(|| look(api, &draw.arrivals, &ended));
        let observed = load::run(api, &requests, &draw.arrivals, options.interrupted);
        ended.store(true, Ordering::Relaxed);
        (observed, looking.join().unwrap_or_default())
    });
    let observed = match observed {
        Err(ServerError::Interrupted) => return Ok(None),
        other => other?,
    };
    let ours: usize = observed.served.iter().map(|one| one.generated.output_tokens).sum();
    let after = settled(api, before.generated_tokens.map(|tokens| tokens + ours as f64))?;
    Ok(Some(figures(draw, &observed, options, (&before, &after), &gauges)))
}

/// Flushes the prefix cache, and waits if the server still finishes a request.
///
/// # Errors
/// When the server refuses.
pub fn flush(api: &Api) -> Result<(), ServerError> {
    if flush::succeeds(&mut || api.flush_cache(), LONGEST_COUNT, &AtomicBool::new(false))? {
        return Ok(());
    }
    Err(ServerError::Request {
        url: api.base().to_owned(),
        reason:
            "the server does not flush its prefix cache: requests of others are running, or it has no endpoint for \
                 it (vLLM: VLLM_SERVER_DEV_MODE=1); measure without --flush"
                .into(),
    })
}

/// Sends short requests whose prompts have nothing in common with the ones that are measured: the
/// reversed beginnings of these.
fn warm_up(api: &Api, draw: &Draw, options: &RunningOptions<'_>) -> Result<(), ServerError> {
    if options.warm_up_tokens == 0 {
        return Ok(());
    }
    let together = match draw.arrivals {
        LoadArrivals::Closed(batch) => batch,
        LoadArrivals::Open(_) => 1,
    };
    let reversed = |request: &Request| {
        let mut request = other_prompt(request, WARM_UP_PROMPT);
        request.stop.max_new_tokens = Some(options.warm_up_tokens);
        request
    };
    let requests: Vec<Request> = draw.requests.iter().take(together).map(reversed).collect();
    let requests: Vec<Generate<'_>> = requests.iter().map(generate).collect();
    load::run(api, &requests, &LoadArrivals::Closed(together), options.interrupted).map(|_| ())
}

/// The server's counters once they stand still, or have reached a number of tokens: engines count a
/// request slightly after they have answered it.
fn settled(api: &Api, until: Option<f64>) -> Result<Counters, ServerError> {
    let begin = Instant::now();
    let mut last = api.counters()?;
    loop {
        let reached = match (until, last.generated_tokens) {
            (Some(until), Some(tokens)) => tokens >= until,
            _ => false,
        };
        if last.generated_tokens.is_none() || reached || begin.elapsed() > LONGEST_COUNT {
            return Ok(last);
        }
        thread::sleep(LOOK);
        let now = api.counters()?;
        if until.is_none() && now.generated_tokens == last.generated_tokens {
            return Ok(now);
        }
        last = now;
    }
}

/// Reads the gauges until the load has ended.
fn look(api: &Api, arrivals: &LoadArrivals, ended: &AtomicBool) -> Gauges {
    let most = |one: Option<f64>, other: Option<f64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    };
    let mut gauges = Gauges::default();
    loop {
        let is_last = ended.load(Ordering::Relaxed);
        if let Ok(now) = api.counters() {
            gauges.running_most = most(gauges.running_most, now.running);
            gauges.waiting_most = most(gauges.waiting_most, now.waiting);
            if let (Some(running), LoadArrivals::Closed(ours)) = (now.running, arrivals) {
                let excess = running + now.waiting.unwrap_or_default() - *ours as f64;
                gauges.samples += 1;
                gauges.exceeding += usize::from(excess > 0.0);
                gauges.excess = gauges.excess.max(excess);
            }
        }
        if is_last {
            return gauges;
        }
        thread::sleep(LOOK);
    }
}

fn figures(
    draw: &Draw,
    observed: &Observed,
    options: &RunningOptions<'_>,
    (before, after): (&Counters, &Counters),
    gauges: &Gauges,
) -> RunningFigures {
    let served = || observed.served.iter().map(|one| &one.generated);
    let output_tokens: usize = served().map(|one| one.output_tokens).sum();
    let elapsed_s = observed.elapsed.as_secs_f64();
    let whole_rate = || if elapsed_s > 0.0 { output_tokens as f64 / elapsed_s } else { 0.0 };
    let full = full_loop_of(observed, &draw.arrivals);
    let first = |one: &load::Served| milliseconds(one.late + one.generated.first_token);
    let whole = |one: &load::Served| milliseconds(one.late + one.generated.last_token);
    let gap = |one: &Generated| {
        let further = one.output_tokens.checked_sub(1).filter(|further| *further > 0)?;
        Some(milliseconds(one.last_token.saturating_sub(one.first_token)) / further as f64)
    };
    let gaps: Vec<f64> = served().filter_map(gap).filter(|gap| *gap > 0.0).collect();
    let more = |of: fn(&Counters) -> Option<f64>| Some((of(after)? - of(before)?).max(0.0));
    let of_requests: Option<u64> = served().map(|one| one.cached_tokens).sum();
    let others = other_traffic(more(|counters| counters.generated_tokens), output_tokens as f64, gauges);
    // The server's counters count everyone's tokens.
    let of_server = || more(|counters| counters.cached_tokens).filter(|_| others.is_none()).map(|tokens| tokens as u64);
    RunningFigures {
        requests: observed.served.len(),
        output_tokens: output_tokens as u64,
        prompt_tokens: draw.requests.iter().map(|request| request.input_ids.len() as u64).sum(),
        elapsed_s,
        output_tokens_per_s: full.map_or_else(whole_rate, FullLoop::rate),
        full,
        tokens_per_s_per_user: median(gaps.iter().map(|gap| 1e3 / gap).collect()),
        time_to_first_token_ms: TrialSpread::from_values(observed.served.iter().map(first)).unwrap_or_default(),
        inter_token_ms: TrialSpread::from_values(gaps),
        latency_ms: TrialSpread::from_values(observed.served.iter().map(whole)).unwrap_or_default(),
        accept_length: accept_length(observed, options.speculates, &more, (after.draft_positions, others.is_some())),
        cached_tokens: of_requests.or_else(of_server),
        common_tokens: draw.common.iter().sum(),
        repeated_prompts: draw.repeated,
        flushed: options.flush,
        running_most: gauges.running_most,
        waiting_most: gauges.waiting_most,
        others,
        retracted: more(|counters| counters.retracted).filter(|requests| *requests > 0.0),
    }
}

/// What throughput counts of a closed loop.
fn full_loop_of(observed: &Observed, arrivals: &LoadArrivals) -> Option<FullLoop> {
    let LoadArrivals::Closed(batch) = arrivals else { return None };
    let spans: Vec<RequestSpan<'_>> = observed.served.iter().map(span).collect();
    full_loop(&spans, *batch)
}

fn span(one: &load::Served) -> RequestSpan<'_> {
    RequestSpan { submitted: one.arrival + one.late, took: one.generated.last_token, arrivals: &one.generated.arrivals }
}

/// Signs of requests that are not ours: more tokens than ours, or more requests than ours in at
/// least half of the samples, since a request that has just ended may be counted for a moment
/// longer.
fn other_traffic(generated: Option<f64>, ours: f64, gauges: &Gauges) -> Option<OtherTraffic> {
    let tokens = generated.map(|tokens| tokens - ours).filter(|more| *more > FEW_TOKENS.max(FEW_SHARE * ours));
    let is_steady = gauges.exceeding > 0 && 2 * gauges.exceeding >= gauges.samples;
    let requests = is_steady.then_some(gauges.excess);
    (tokens.is_some() || requests.is_some()).then_some(OtherTraffic { tokens, requests })
}

/// Reads one of a server's counters; `None` if the server does not report it.
type Counter = fn(&Counters) -> Option<f64>;

/// Output tokens / rounds, by the requests' own rounds, else by the server's counters, unless
/// others were counted too.
fn accept_length(
    observed: &Observed,
    speculates: Option<bool>,
    more: &dyn Fn(Counter) -> Option<f64>,
    (drafts, has_others): (Option<usize>, bool),
) -> Option<f64> {
    let served = || observed.served.iter().map(|one| &one.generated);
    // Accepted drafts show that it speculates, whatever it was taken for; spectune reports rounds
    // without speculation too.
    if speculates == Some(false) && served().all(|one| one.accepted_drafts.unwrap_or_default() == 0) {
        return None;
    }
    let tokens: usize = served().map(|one| one.output_tokens).sum();
    let further = further_tokens(observed) as f64;
    // A request that ended with its first token had no round.
    let own: Option<u64> = served().filter(|one| one.output_tokens > 1).map(|one| one.rounds).sum();
    let counted = || {
        let rounds = more(|counters| counters.rounds).filter(|_| !has_others)?;
        match more(|counters| counters.accepted_drafts) {
            Some(accepted) => Some(all_rounds(rounds, accepted, further)),
            None => Some(rounds),
        }
    };
    let rounds = own.map(|rounds| rounds as f64).or_else(counted).filter(|rounds| *rounds > 0.0)?;
    // More than the drafts allow: not all rounds were counted.
    let is_possible = drafts.is_none_or(|drafts| further <= rounds * (drafts + 1) as f64);
    is_possible.then_some(tokens as f64 / rounds)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_loop_counts_until_fewer_than_its_batch_are_left() {
        let served = |arrival: u64, took: u64| load::Served {
            request: 0,
            arrival: Duration::from_millis(arrival),
            late: Duration::ZERO,
            generated: Generated {
                output_tokens: 11,
                output_ids: Vec::new(),
                first_token: Duration::from_millis(10),
                last_token: Duration::from_millis(took),
                arrivals: vec![(Duration::from_millis(10), 1), (Duration::from_millis(took), 11)],
                rounds: None,
                accepted_drafts: None,
                proposed_drafts: None,
                accept_histogram: Vec::new(),
                cached_tokens: None,
            },
        };
        let observed = Observed {
            served: vec![served(0, 60), served(0, 110), served(60, 60)],
            elapsed: Duration::from_millis(120),
        };
        // The last request runs alone from 110 ms on, when it has nine of its tokens.
        let full = full_loop_of(&observed, &LoadArrivals::Closed(2)).expect("most of it is full");
        assert!((full.seconds - 0.11).abs() < 1e-9 && (full.output_tokens - 31.0).abs() < 1e-9, "{full:?}");
        assert_eq!(full_loop_of(&observed, &LoadArrivals::Open(vec![Duration::ZERO; 3])), None);
    }

    #[test]
    fn accept_lengths_count_rounds_without_drafts() {
        let of = |tokens: usize, own: Option<u64>, counted: (f64, f64), speculates| {
            let generated = Generated {
                output_tokens: tokens,
                output_ids: Vec::new(),
                first_token: Duration::from_millis(10),
                last_token: Duration::from_millis(60),
                arrivals: Vec::new(),
                rounds: own,
                accepted_drafts: own.map(|rounds| 99_u64.saturating_sub(rounds)),
                proposed_drafts: None,
                accept_histogram: Vec::new(),
                cached_tokens: None,
            };
            let one = load::Served { request: 0, arrival: Duration::ZERO, late: Duration::ZERO, generated };
            let observed = Observed { served: vec![one], elapsed: Duration::from_millis(60) };
            let after = Counters { rounds: Some(counted.0), accepted_drafts: Some(counted.1), ..Counters::default() };
            let more = |of: Counter| of(&after);
            accept_length(&observed, speculates, &more, (Some(3), false))
        };
        assert_eq!(of(100, None, (33.0, 66.0), Some(true)), Some(100.0 / 33.0));
        // Four rounds with drafts, and all others without.
        assert_eq!(of(100, None, (4.0, 9.0), Some(true)), Some(100.0 / 90.0));
        assert_eq!(of(100, None, (4.0, 9.0), Some(false)), None);
        // What requests report holds, whatever the server was taken for.
        assert_eq!(of(100, Some(50), (0.0, 0.0), Some(false)), Some(2.0));
        assert_eq!(of(100, Some(99), (0.0, 0.0), Some(false)), None, "no draft was accepted");
        assert_eq!(of(100, Some(10), (0.0, 0.0), Some(true)), None, "three drafts yield four tokens");
    }

    #[test]
    fn other_traffic_shows_in_tokens_or_in_steady_gauges() {
        let quiet = Gauges { samples: 9, exceeding: 1, excess: 1.0, ..Gauges::default() };
        assert_eq!(other_traffic(Some(1005.0), 1000.0, &quiet), None, "a health check, and a request that just ended");
        let found = other_traffic(Some(1100.0), 1000.0, &quiet).expect("tokens");
        assert_eq!((found.tokens, found.requests), (Some(100.0), None));
        let busy = Gauges { samples: 9, exceeding: 8, excess: 3.0, ..Gauges::default() };
        let found = other_traffic(None, 1000.0, &busy).expect("requests");
        assert_eq!((found.tokens, found.requests), (None, Some(3.0)));
    }
}

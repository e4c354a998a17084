//! Computes the figures of a trial from the observations.

use std::time::Duration;

use engine::{EngineError, backend::RoundTiming};
use schemas::sweep::Objective;

use super::{
    drive::{CompletedRequest, Observations},
    full_loop::{self, RequestSpan},
    steady::{Clock, Steadied, steadied},
};
use crate::trials::record::{ArrivalFigures, FullLoop, Measurement, Steady, TrialSpread};

/// Selects a part of a round, or all of it.
pub type PartOfRound = fn(&RoundTiming) -> Option<Duration>;

/// Computes the figures of a trial.
///
/// # Errors
/// When no round ran, so that there is nothing to report.
pub fn from_observations(
    seen: &Observations,
    objective: &Objective,
    simulated: bool,
) -> Result<Measurement, EngineError> {
    let no_round = || {
        EngineError::InvalidRequest(
            "every request ended with its first token, so that no round ran: raise workload.output_length, or set \
             workload.ignore_eos"
                .into(),
        )
    };
    let tokens: u64 = seen.served.iter().map(CompletedRequest::tokens).sum();
    let request_rounds: usize = seen.served.iter().map(|one| one.completion.rounds).sum();
    if request_rounds == 0 {
        return Err(no_round());
    }
    let elapsed_s = seen.elapsed.as_secs_f64();
    let spans: Vec<RequestSpan<'_>> = seen.served.iter().map(CompletedRequest::span).collect();
    let full = seen.together.and_then(|together| full_loop::full_loop(&spans, together));
    let counted = CountedPart::new(full, elapsed_s, tokens);
    let Requests { tokens_per_s_per_user, goodput_tokens_per_s, inter_token_ms, time_to_first_token_ms, latency_ms } =
        Requests::from_served(&seen.served, &counted, objective).ok_or_else(no_round)?;
    let steadied = steadied(&seen.steps);
    // Not for an open loop: a stall changes which requests arrive meanwhile and wait for which.
    let steady = if seen.arrivals.is_none() { steady(seen, &steadied, &counted, objective) } else { None };
    let part = |of: PartOfRound| spread(&seen.timings, of);
    Ok(Measurement {
        requests: seen.served.len(),
        output_tokens: tokens,
        elapsed_s,
        output_tokens_per_s: counted.tokens / counted.seconds,
        full,
        tokens_per_s_per_user,
        goodput_tokens_per_s,
        simulated,
        // By SGLang's definition: the first token, which the prefill yields, counts as generated.
        accept_length: tokens as f64 / request_rounds as f64,
        accept_histogram: accept_histogram(seen),
        rounds: seen.rounds,
        round_ms: part(|timing| Some(timing.total)).ok_or_else(no_round)?,
        draft_ms: part(|timing| timing.draft),
        verify_ms: part(|timing| timing.verify),
        extend_ms: part(|timing| timing.extend),
        draft_wait_ms: part(|timing| timing.stall),
        running_batch: seen.rounds_by_batch.clone(),
        inter_token_ms,
        time_to_first_token_ms,
        latency_ms,
        rounds_s: Some(seen.round_time.as_secs_f64()),
        prefills_s: Some(seen.prefill_time.as_secs_f64()),
        mean_batch: full_loop::mean_batch(&spans, counted.seconds),
        cached_share: cached_share(&seen.served),
        retractions: seen.retractions,
        stalls: Some(steadied.stalls),
        steady,
        arrivals: arrivals(seen, tokens),
        in_time: in_time(&seen.served, objective),
        machine: None,
        parts_apart: None,
    })
}

/// What throughput and goodput count of a trial, by one clock.
#[derive(Clone, Copy, Debug)]
struct CountedPart {
    seconds: f64,
    tokens: f64,
    /// The end of a part by the wall clock; `None` for the whole trial.
    until: Option<Duration>,
}

impl CountedPart {
    fn new(full: Option<FullLoop>, elapsed_s: f64, tokens: u64) -> Self {
        match full {
            Some(full) => Self {
                seconds: full.seconds,
                tokens: full.output_tokens,
                until: Some(Duration::from_secs_f64(full.seconds)),
            },
            None => Self { seconds: elapsed_s, tokens: tokens as f64, until: None },
        }
    }

    /// The same by a clock without stalls.
    fn by(self, clock: &Clock<'_>) -> Self {
        Self { seconds: self.until.map_or_else(|| clock.end(), |until| clock.at(until.as_secs_f64())), ..self }
    }
}

/// Figures of requests, by one clock.
struct Requests {
    tokens_per_s_per_user: f64,
    goodput_tokens_per_s: Option<f64>,
    inter_token_ms: Option<TrialSpread>,
    time_to_first_token_ms: TrialSpread,
    latency_ms: TrialSpread,
}

impl Requests {
    /// `None` if no request has a second token.
    fn from_served(served: &[CompletedRequest], counted: &CountedPart, objective: &Objective) -> Option<Self> {
        let each =
            |of: fn(&CompletedRequest) -> Duration| TrialSpread::from_values(served.iter().map(of).map(milliseconds));
        let gaps = || served.iter().filter_map(CompletedRequest::inter_token_ms);
        Some(Self {
            tokens_per_s_per_user: TrialSpread::from_values(gaps().map(|gap| 1e3 / gap))?.median,
            goodput_tokens_per_s: goodput(served, counted, objective),
            inter_token_ms: TrialSpread::from_values(gaps()),
            time_to_first_token_ms: each(CompletedRequest::time_to_first_token)?,
            latency_ms: each(CompletedRequest::latency)?,
        })
    }
}

/// The figures of a closed loop by a clock that pauses during stalls.
fn steady(seen: &Observations, steadied: &Steadied, counted: &CountedPart, objective: &Objective) -> Option<Steady> {
    let clock = Clock::new(&seen.steps, steadied);
    let by_clock = |one: &CompletedRequest| {
        let from = one.submitted.as_secs_f64();
        // Stalls are cut out of every interval of the request, wherever they fall.
        let since = |wall: Duration| {
            Duration::try_from_secs_f64(clock.at(from + wall.as_secs_f64()) - clock.at(from)).unwrap_or_default()
        };
        let mut one = one.clone();
        one.completion.time_to_first_token = since(one.completion.time_to_first_token);
        one.completion.elapsed = since(one.completion.elapsed);
        one
    };
    let served: Vec<CompletedRequest> = seen.served.iter().map(by_clock).collect();
    let counted = counted.by(&clock);
    let requests = Requests::from_served(&served, &counted, objective)?;
    (counted.seconds > 0.0).then(|| Steady {
        elapsed_s: clock.end(),
        output_tokens_per_s: counted.tokens / counted.seconds,
        tokens_per_s_per_user: requests.tokens_per_s_per_user,
        goodput_tokens_per_s: requests.goodput_tokens_per_s,
        inter_token_ms: requests.inter_token_ms,
        time_to_first_token_ms: requests.time_to_first_token_ms,
        latency_ms: requests.latency_ms,
    })
}

/// Arrival figures of an open loop; `None` for a closed one, and if all requests arrived at once.
fn arrivals(seen: &Observations, tokens: u64) -> Option<ArrivalFigures> {
    let span = seen.arrivals.as_ref()?.last()?.as_secs_f64();
    let requests = seen.served.len() as f64;
    let offered_per_s = (requests - 1.0) / span;
    (span > 0.0 && requests > 1.0).then(|| ArrivalFigures {
        offered_per_s,
        offered_tokens_per_s: tokens as f64 / requests * offered_per_s,
        unserved_at_last: seen.unserved_at_last,
    })
}

/// Share of the prompt tokens that were found in the prefix cache.
fn cached_share(served: &[CompletedRequest]) -> Option<f64> {
    let sum = |of: fn(&CompletedRequest) -> usize| served.iter().map(of).sum::<usize>();
    let prompts = sum(|one| one.completion.prompt_tokens);
    (prompts > 0).then(|| sum(|one| one.completion.cached_tokens) as f64 / prompts as f64)
}

/// Share of the requests within the limits; `None` without limits.
fn in_time(served: &[CompletedRequest], objective: &Objective) -> Option<f64> {
    objective.ttft_ms.or(objective.itl_ms)?;
    let kept = served.iter().filter(|one| one.keeps(objective)).count();
    (!served.is_empty()).then(|| kept as f64 / served.len() as f64)
}

/// Spread of a part of the rounds in ms; `None` if it was not measured.
pub fn spread(timings: &[RoundTiming], of: PartOfRound) -> Option<TrialSpread> {
    TrialSpread::from_values(timings.iter().filter_map(of).map(milliseconds))
}

impl CompletedRequest {
    /// Number of output tokens.
    fn tokens(&self) -> u64 {
        self.completion.output_ids.len() as u64
    }

    /// As a client sees it, by the wall clock.
    fn span(&self) -> RequestSpan<'_> {
        RequestSpan { submitted: self.submitted, took: self.completion.elapsed, arrivals: &self.arrivals }
    }

    /// Time from its arrival to its first token.
    fn time_to_first_token(&self) -> Duration {
        self.late + self.completion.time_to_first_token
    }

    /// Time from its arrival to its end.
    fn latency(&self) -> Duration {
        self.late + self.completion.elapsed
    }

    /// Mean time between output tokens after the first one, which comes from the prefill; `None`
    /// without a second one.
    fn inter_token_ms(&self) -> Option<f64> {
        let further = self.tokens().checked_sub(1).filter(|further| *further > 0)?;
        let duration = self.completion.elapsed.saturating_sub(self.completion.time_to_first_token);
        Some(milliseconds(duration) / further as f64)
    }

    fn keeps(&self, objective: &Objective) -> bool {
        let first = objective.ttft_ms.is_none_or(|most| milliseconds(self.time_to_first_token()) <= most);
        // A request of one token has no inter-token time that could exceed the limit.
        let gaps = objective.itl_ms.zip(self.inter_token_ms()).is_none_or(|(most, gap)| gap <= most);
        first && gaps
    }
}

/// Output tokens per second of the requests within the limits; `None` without limits.
fn goodput(served: &[CompletedRequest], counted: &CountedPart, objective: &Objective) -> Option<f64> {
    objective.ttft_ms.or(objective.itl_ms)?;
    let tokens =
        |one: &CompletedRequest| counted.until.map_or(one.tokens() as f64, |until| one.span().tokens_by(until));
    let good: f64 = served.iter().filter(|one| one.keeps(objective)).map(tokens).sum();
    Some(good / counted.seconds)
}

fn accept_histogram(seen: &Observations) -> Vec<u64> {
    let mut sums = Vec::new();
    for counts in seen.served.iter().map(|one| &one.completion.accept_histogram) {
        sums.resize(counts.len().max(sums.len()), 0);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    sums
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use engine::{Completion, FinishReason};
    use schemas::{sweep::Metric, tree::TreeShape};

    use super::{super::steady::SteadyStep, *};
    use crate::trials::record::Stalls;

    /// A request: its delay, first token and end (both from its submission) in ms, and its number
    /// of tokens.
    fn served(late: u64, first: u64, end: u64, tokens: usize) -> CompletedRequest {
        let completion = Completion {
            output_ids: vec![7; tokens],
            text: String::new(),
            prompt_tokens: 3,
            cached_tokens: 0,
            retractions: 0,
            rounds: tokens - 1,
            proposed_drafts: 0,
            accept_histogram: vec![tokens as u64 - 1],
            prompt_logprobs: Vec::new(),
            finish_reason: FinishReason::Length,
            queued: Duration::ZERO,
            time_to_first_token: Duration::from_millis(first),
            elapsed: Duration::from_millis(end),
        };
        CompletedRequest {
            late: Duration::from_millis(late),
            submitted: Duration::ZERO,
            completion,
            arrivals: Vec::new(),
        }
    }

    /// Two seconds in which four requests were served: a quick one, one that arrived during a step,
    /// one that was slow after its first token, and one with a single token.
    fn seen() -> Observations {
        Observations {
            served: vec![
                served(0, 100, 200, 11),
                served(50, 100, 200, 21),
                served(0, 20, 1020, 51),
                served(0, 90, 90, 1),
            ],
            timings: vec![RoundTiming { total: Duration::from_millis(5), ..RoundTiming::default() }],
            rounds: 70,
            rounds_by_batch: vec![60, 10],
            elapsed: Duration::from_secs(2),
            ..Observations::default()
        }
    }

    #[test]
    fn without_stalls_the_steady_figures_are_those_of_the_wall_clock_and_with_them_they_stay() {
        let (shape, rows, tokens) = (TreeShape::OFF, 4, 400);
        let step = |begin: f64, took: f64| SteadyStep {
            begin,
            took,
            rounds: 1,
            batch: 4,
            shape,
            rows,
            tokens,
            prompt_tokens: 0,
        };
        let quiet = Observations { steps: (0..200).map(|at| step(0.01 * f64::from(at), 0.01)).collect(), ..seen() };
        let figures = from_observations(&quiet, &Objective::default(), false).expect("figures");
        let steady = figures.steady.expect("a closed loop");
        assert!((steady.output_tokens_per_s / figures.output_tokens_per_s - 1.0).abs() < 1e-6, "{steady:?}");
        assert!(
            (steady.latency_ms.max - 1020.0).abs() < 1e-6 && figures.stalls == Some(Stalls::default()),
            "{steady:?}"
        );

        // The third request has a stall of eight seconds.
        let mut stalled = quiet.clone();
        stalled.steps[50].took += 8.0;
        stalled.steps[51..].iter_mut().for_each(|step| step.begin += 8.0);
        stalled.served[2].completion.elapsed += Duration::from_secs(8);
        stalled.elapsed += Duration::from_secs(8);
        let figures = from_observations(&stalled, &Objective::default(), false).expect("figures");
        let after = figures.steady.expect("a closed loop");
        assert_eq!(figures.output_tokens_per_s, 8.4);
        assert!((after.output_tokens_per_s / steady.output_tokens_per_s - 1.0).abs() < 1e-6, "{after:?}");
        assert!((after.latency_ms.max - 1020.0).abs() < 1e-6, "{after:?}");
        assert!((figures.stalls.expect("stalls").of_time - 0.8).abs() < 1e-9, "{:?}", figures.stalls);
        let open = Observations { arrivals: Some(vec![Duration::ZERO, Duration::from_secs(1)]), ..stalled };
        let figures = from_observations(&open, &Objective::default(), false).expect("figures");
        assert!(figures.steady.is_none() && figures.exclusion().is_some());
        assert_eq!(figures.arrivals.expect("rates").offered_per_s, 3.0);
        assert_eq!(figures.served_per_s(), Some(3.0), "at most those that were sent after the first");
        let waiting = Measurement {
            arrivals: figures.arrivals.map(|rates| ArrivalFigures { unserved_at_last: 3, ..rates }),
            ..figures
        };
        assert_eq!(waiting.served_per_s(), Some(1.0));
    }

    #[test]
    fn waiting_counts_from_the_arrival() {
        let figures = from_observations(&seen(), &Objective::default(), false).expect("figures");
        assert_eq!((figures.time_to_first_token_ms.max, figures.time_to_first_token_ms.min), (150.0, 20.0));
        assert_eq!((figures.latency_ms.median, figures.latency_ms.max), (225.0, 1020.0));
        let gaps = figures.inter_token_ms.expect("gaps");
        assert_eq!((gaps.min, gaps.median, gaps.max), (5.0, 10.0, 20.0));
        assert_eq!(figures.tokens_per_s_per_user, 100.0);
        assert_eq!((figures.output_tokens, figures.output_tokens_per_s), (84, 42.0));
        assert_eq!((figures.rounds, figures.running_batch.as_slice()), (70, [60, 10].as_slice()));
    }

    #[test]
    fn only_requests_that_keep_every_limit_count_as_good() {
        let check = |ttft_ms, itl_ms, expected: Option<f64>| {
            let objective = Objective { metric: Metric::Goodput, ttft_ms, itl_ms };
            let figures = from_observations(&seen(), &objective, false).expect("figures");
            assert_eq!(figures.goodput_tokens_per_s, expected, "{objective:?}");
        };
        check(None, None, None);
        check(Some(1000.0), Some(1000.0), Some(42.0));
        // The second one has its first token 150 ms after its arrival, although the engine took
        // only 100 ms.
        check(Some(120.0), None, Some((11.0 + 51.0 + 1.0) / 2.0));
        check(None, Some(10.0), Some((11.0 + 21.0 + 1.0) / 2.0));
        check(Some(120.0), Some(10.0), Some((11.0 + 1.0) / 2.0));
        check(Some(1.0), None, Some(0.0));
    }

    #[test]
    fn the_time_of_waiting_for_drafts_is_apart_from_rounds() {
        assert_eq!(from_observations(&seen(), &Objective::default(), false).expect("figures").draft_wait_ms, None);
        let round = |stall| RoundTiming {
            total: Duration::from_millis(5),
            stall: Some(Duration::from_micros(stall)),
            ..RoundTiming::default()
        };
        let seen = Observations { timings: [250, 750, 500].map(round).to_vec(), ..seen() };
        let figures = from_observations(&seen, &Objective::default(), false).expect("figures");
        let waits = figures.draft_wait_ms.expect("the host looks up");
        assert_eq!((waits.median, waits.max, figures.round_ms.max), (0.5, 0.75, 5.0));
    }

    #[test]
    fn made_up_acceptance_is_said() {
        assert!(from_observations(&seen(), &Objective::default(), true).expect("figures").simulated);
        assert!(!from_observations(&seen(), &Objective::default(), false).expect("figures").simulated);
    }

    #[test]
    fn without_a_round_there_is_nothing_to_tell() {
        let seen = Observations { served: vec![served(0, 9, 9, 1)], ..seen() };
        let words = from_observations(&seen, &Objective::default(), false).expect_err("no round").to_string();
        assert!(words.contains("raise workload.output_length"), "{words}");
    }
}

//! Converts what a client observes of a server to the observations of a trial.

use std::time::Duration;

use engine::{Completion, EngineError, FinishReason, Request, backend::RoundTiming};
use external::{
    api::{Counters, Generate, Generated},
    load::{LoadArrivals, Observed, Served},
};

use super::SystemError;
use crate::{
    runner::{CompletedRequest, Observations},
    trials::{
        configuration::{Configuration, TrialLoad},
        record::Trial,
    },
    workload::prompt_pool,
};

/// Allowed deviation of a simulated accept length, as a share: few rounds scatter, and the last one
/// of a request is truncated.
const MADE_UP_WITHIN: f64 = 0.15;
/// Share of prompt tokens that may be cached beyond common beginnings.
const MOST_CACHED: f64 = 0.05;

/// A request in the form that servers take.
pub fn generate(request: &Request) -> Generate<'_> {
    let sampling = &request.sampling;
    Generate {
        input_ids: &request.input_ids,
        max_new_tokens: request.stop.max_new_tokens.unwrap_or(1),
        ignore_eos: request.stop.ignore_eos,
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        top_k: u32::try_from(sampling.top_k).unwrap_or(u32::MAX),
        min_p: sampling.min_p,
        seed: Some(sampling.seed),
    }
}

/// Source of the number of rounds for requests that do not report it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rounds {
    /// One round per token: nothing is drafted.
    OneAToken,
    /// As many tokens per round as the server's counters show for all requests together.
    Counted {
        /// Tokens per round, bonus token included.
        tokens: f64,
    },
    /// Unknown.
    Unknown,
}

impl Rounds {
    /// For a configuration, from the counters before and after its load, which has generated this
    /// many tokens after the first ones of its requests.
    pub fn from_configuration(
        configuration: &Configuration,
        (before, after): (&Counters, &Counters),
        further: usize,
    ) -> Self {
        if configuration.is_off() {
            return Self::OneAToken;
        }
        let more = |after: Option<f64>, before: Option<f64>| Some(after? - before?);
        let drafted = more(after.rounds, before.rounds);
        match (drafted, more(after.accepted_drafts, before.accepted_drafts)) {
            (Some(drafted), Some(accepted)) => {
                let rounds = all_rounds(drafted, accepted, further as f64);
                if rounds > 0.0 { Self::Counted { tokens: 1.0 + accepted / rounds } } else { Self::Unknown }
            }
            _ => Self::Unknown,
        }
    }
}

/// Rounds of requests by vLLM's counters, in which rounds without drafts are missing: each further
/// token is an accepted draft or the last one of a round. Drafts may have been accepted beyond the
/// end of a request, so both numbers are lower bounds.
pub fn all_rounds(drafted: f64, accepted: f64, further: f64) -> f64 {
    drafted.max(further - accepted)
}

/// Number of tokens after the first one of each request, which comes from the prefill.
pub fn further_tokens(observed: &Observed) -> usize {
    observed.served.iter().map(|one| one.generated.output_tokens.saturating_sub(1)).sum()
}

/// Fails if a trial has more tokens per round than the drafts of its configuration allow.
///
/// # Errors
/// A message with both numbers.
pub fn check_possible(configuration: &Configuration, seen: &Observations) -> Result<(), SystemError> {
    let most = configuration.shapes().map(|shape| shape.num_steps + 1).max().unwrap_or(1);
    let each = seen.served.iter().map(|one| (one.completion.output_ids.len().saturating_sub(1), one.completion.rounds));
    let (further, rounds) = each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    if further <= rounds * most {
        return Ok(());
    }
    Err(SystemError::Unsupported(format!(
        "the server reports {rounds} rounds for {further} tokens, which is more than the {most} tokens per round that {configuration} \
         can accept: it does not count all rounds"
    )))
}

/// Observations of a trial. A client does not see single rounds, so all rounds of a request count
/// with its mean.
///
/// # Errors
/// When the server does not report the rounds of a request that speculates, or an answer is shorter
/// than it had to be.
pub fn seen(
    requests: &[Request],
    observed: Observed,
    arrivals: &LoadArrivals,
    unreported: Rounds,
) -> Result<Observations, SystemError> {
    let mut timings = Vec::new();
    let mut ends = Vec::new();
    let mut request_rounds = 0;
    let served = observed.served.into_iter().map(|one| {
        let completion = completion(requests, &one, unreported)?;
        // The first token comes from the prefill; rounds yield all others.
        let between = one.generated.last_token.saturating_sub(one.generated.first_token);
        if let Ok(rounds @ 1..) = u32::try_from(completion.rounds) {
            timings.push(RoundTiming { total: between / rounds, ..RoundTiming::default() });
        }
        request_rounds += completion.rounds as u64;
        ends.push(one.arrival + one.late + one.generated.last_token);
        let submitted = one.arrival + one.late;
        Ok(CompletedRequest { late: one.late, submitted, completion, arrivals: one.generated.arrivals })
    });
    let served = served.collect::<Result<Vec<_>, SystemError>>()?;
    let (together, times) = match arrivals {
        LoadArrivals::Closed(batch) => (Some((*batch).min(requests.len()).max(1)), None),
        LoadArrivals::Open(times) => (None, Some(times.clone())),
    };
    let last = times.as_ref().and_then(|times| times.last().copied());
    Ok(Observations {
        served,
        timings,
        // Requests of a closed loop share their rounds; how many share one in an open loop is
        // unknown.
        rounds: request_rounds.div_ceil(together.unwrap_or(1) as u64),
        elapsed: observed.elapsed,
        unserved_at_last: last.map_or(0, |last| ends.iter().filter(|end| **end > last).count()),
        arrivals: times,
        together,
        ..Observations::default()
    })
}

/// Share of the prompt tokens that the server found in its prefix cache, by the requests, else by
/// its counters; `None` if it reports neither.
pub fn cached_share(requests: &[Request], observed: &Observed, before: &Counters, after: &Counters) -> Option<f64> {
    let of_requests: Option<u64> = observed.served.iter().map(|one| one.generated.cached_tokens).sum();
    let counted = || Some((after.cached_tokens? - before.cached_tokens?).max(0.0));
    let cached = of_requests.map(|tokens| tokens as f64).or_else(counted)?;
    let prompts: usize = requests.iter().map(|request| request.input_ids.len()).sum();
    (prompts > 0).then(|| cached / prompts as f64)
}

/// Share of the prompt tokens that prompts have in common with the beginnings of others: what a
/// prefix cache finds even if it is empty before.
pub fn common_share(requests: &[Request]) -> f64 {
    let prompts: usize = requests.iter().map(|request| request.input_ids.len()).sum();
    let common: u64 = prompt_pool::common(requests).iter().sum();
    if prompts > 0 { common as f64 / prompts as f64 } else { 0.0 }
}

/// A note if a trial found more of its prompts in the cache than their common beginnings explain.
pub fn cached_words(trial: &Trial, cached: Option<f64>, explained: f64) -> Option<String> {
    let cached = cached.filter(|cached| cached - explained > MOST_CACHED)?;
    let Trial { configuration, load, repeat } = trial;
    Some(format!(
        "{configuration}, {load}, repeat {}: the server found {:.0}% of the prompt tokens in its prefix cache, but at most \
         {:.0}% are common beginnings: it may have kept prompts of the warm-up or of earlier trials",
        repeat + 1,
        cached * 100.0,
        explained * 100.0
    ))
}

/// Drafts proposed for all requests, if the server reports them, and their rounds.
pub fn drafted(seen: &Observations) -> (usize, usize) {
    let each = seen.served.iter().map(|one| (one.completion.proposed_drafts as usize, one.completion.rounds));
    each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn completion(requests: &[Request], served: &Served, unreported: Rounds) -> Result<Completion, SystemError> {
    let generated = &served.generated;
    let stop = requests.get(served.request).map(|request| &request.stop);
    let most = stop.and_then(|stop| stop.max_new_tokens);
    let is_short = most.is_some_and(|most| generated.output_tokens < most);
    if let (true, Some(stop), Some(most)) = (is_short, stop, most)
        && stop.ignore_eos
    {
        return Err(SystemError::Unsupported(format!(
            "an answer ended after {} of {most} tokens, although end-of-text tokens are ignored: the server cut it off, so \
             the trial has less work than the others; the server's log may show why",
            generated.output_tokens
        )));
    }
    let rounds = rounds(generated, unreported)?;
    Ok(Completion {
        // If the server does not report the tokens themselves, their number still counts.
        output_ids: match generated.output_ids.len() == generated.output_tokens {
            true => generated.output_ids.clone(),
            false => vec![0; generated.output_tokens],
        },
        text: String::new(),
        prompt_tokens: requests.get(served.request).map_or(0, |request| request.input_ids.len()),
        cached_tokens: generated.cached_tokens.map_or(0, |tokens| usize::try_from(tokens).unwrap_or(usize::MAX)),
        retractions: 0,
        prompt_logprobs: Vec::new(),
        rounds,
        proposed_drafts: generated.proposed_drafts.unwrap_or_default(),
        accept_histogram: generated.accept_histogram.clone(),
        finish_reason: if is_short {
            FinishReason::StopToken(generated.output_ids.last().copied().unwrap_or_default())
        } else {
            FinishReason::Length
        },
        queued: Duration::ZERO,
        time_to_first_token: generated.first_token,
        elapsed: generated.last_token,
    })
}

/// Rounds of a request. Without speculation each token after the first takes one round.
fn rounds(generated: &Generated, unreported: Rounds) -> Result<usize, SystemError> {
    let further = generated.output_tokens.saturating_sub(1);
    let rounds = match (generated.rounds, unreported) {
        (Some(rounds), _) => rounds as usize,
        (None, Rounds::OneAToken) => further,
        (None, Rounds::Counted { tokens }) => ((further as f64 / tokens.max(1.0)).ceil() as usize).min(further),
        // It ended with its first token: no round ran.
        (None, Rounds::Unknown) if further == 0 => 0,
        (None, Rounds::Unknown) => {
            return Err(SystemError::Unsupported(
                "the server reports neither the rounds of a request nor counters of drafts, so accept lengths are unknown: \
                 start it with its metrics (SGLang: --enable-metrics; vLLM without --disable-log-stats)"
                    .into(),
            ));
        }
    };
    if rounds > further {
        let words = format!("the server reports {rounds} rounds for {} tokens", generated.output_tokens);
        return Err(EngineError::InvalidRequest(words).into());
    }
    Ok(rounds)
}

/// Fails if rounds of the measured batch ran without CUDA graphs.
///
/// # Errors
/// A message with the line of the server's log.
pub fn check_graphs(log: &str, load: TrialLoad) -> Result<(), SystemError> {
    let Some(batch) = load.batch_size() else { return Ok(()) };
    let running = format!("#running-req: {batch},");
    let is_bare =
        |line: &&str| line.contains("Decode batch") && line.contains(&running) && line.contains("cuda graph: False");
    match log.lines().find(is_bare) {
        None => Ok(()),
        Some(line) => Err(SystemError::Unsupported(format!(
            "rounds of {batch} requests ran without CUDA graphs, so the trial would be mislabelled: capture this batch size \
             (engine.capture_sizes, or a larger --cuda-graph-max-bs in system.extra_args); the log says: {}",
            line.trim()
        ))),
    }
}

/// Fails if a server that should simulate an accept length accepts by its drafts nevertheless.
///
/// # Errors
/// A message with both lengths.
pub fn check_made_up(requested: f64, runs: f64) -> Result<(), SystemError> {
    if (runs / requested - 1.0).abs() <= MADE_UP_WITHIN {
        return Ok(());
    }
    Err(SystemError::Unsupported(format!(
        "the server accepts {runs:.2} tokens per round instead of simulating the imported acceptance ({requested:.2}): this version of it does \
         not simulate acceptance, or only for some trees"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generated(tokens: usize, rounds: Option<u64>) -> Generated {
        Generated {
            output_tokens: tokens,
            output_ids: vec![],
            first_token: Duration::from_millis(10),
            last_token: Duration::from_millis(50),
            arrivals: vec![(Duration::from_millis(10), 1), (Duration::from_millis(50), tokens)],
            rounds,
            accepted_drafts: None,
            proposed_drafts: None,
            accept_histogram: vec![],
            cached_tokens: None,
        }
    }

    #[test]
    fn rounds_are_the_servers_or_one_a_token() {
        let observed = |rounds| Observed {
            served: vec![Served {
                request: 0,
                arrival: Duration::ZERO,
                late: Duration::from_millis(1),
                generated: generated(9, rounds),
            }],
            elapsed: Duration::from_millis(60),
        };
        for (rounds, expected, each_ms) in [(Some(4), 4, 10), (None, 8, 5)] {
            let seen = seen(&[], observed(rounds), &LoadArrivals::Closed(1), Rounds::OneAToken).expect("seen");
            assert_eq!((seen.rounds, seen.served[0].completion.rounds), (expected, expected as usize));
            assert_eq!(seen.timings[0].total, Duration::from_millis(each_ms));
            assert_eq!(seen.served[0].completion.output_ids.len(), 9);
        }
        let of = |rounds, unreported| seen(&[], observed(rounds), &LoadArrivals::Closed(1), unreported);
        assert!(of(Some(9), Rounds::OneAToken).is_err());
        // Eight tokens after the first one, three per round.
        assert_eq!(of(None, Rounds::Counted { tokens: 3.0 }).expect("seen").rounds, 3);
        assert!(of(None, Rounds::Unknown).is_err_and(|error| error.to_string().contains("accept lengths are unknown")));
    }

    #[test]
    fn an_answer_that_is_too_short_fails_the_trial() {
        let of = |tokens: usize, ignore_eos: bool| {
            let stop = engine::StopConditions { max_new_tokens: Some(9), ignore_eos, ..Default::default() };
            let request = Request { input_ids: vec![1], sampling: engine::SamplingParams::default(), stop };
            let generated = generated(tokens, None);
            let served = Served { request: 0, arrival: Duration::ZERO, late: Duration::ZERO, generated };
            let observed = Observed { served: vec![served], elapsed: Duration::from_millis(60) };
            seen(&[request], observed, &LoadArrivals::Closed(1), Rounds::OneAToken)
        };
        let reason =
            |tokens, ignore_eos| of(tokens, ignore_eos).expect("seen").served[0].completion.finish_reason.clone();
        assert_eq!(reason(9, true), FinishReason::Length);
        assert_eq!(reason(4, false), FinishReason::StopToken(0));
        assert!(of(4, true).is_err_and(|error| error.to_string().contains("after 4 of 9 tokens")));
    }

    #[test]
    fn counters_stand_in_for_what_requests_do_not_tell() {
        let counters = |rounds, accepted_drafts| Counters { rounds, accepted_drafts, ..Counters::default() };
        let chain = Configuration::from_shape("3,1,4".parse().expect("a shape"));
        let of =
            |after, further| Rounds::from_configuration(&chain, (&counters(Some(10.0), Some(5.0)), &after), further);
        assert_eq!(of(counters(Some(110.0), Some(155.0)), 250), Rounds::Counted { tokens: 2.5 });
        // Some drafts were accepted beyond the end.
        assert_eq!(of(counters(Some(110.0), Some(155.0)), 240), Rounds::Counted { tokens: 2.5 });
        // Rounds without drafts are in neither counter.
        assert_eq!(of(counters(Some(20.0), Some(35.0)), 330), Rounds::Counted { tokens: 1.1 });
        assert_eq!(of(counters(Some(10.0), Some(5.0)), 100), Rounds::Counted { tokens: 1.0 }, "nothing was drafted");
        assert_eq!(of(counters(Some(10.0), Some(5.0)), 0), Rounds::Unknown, "nothing ran");
        assert_eq!(of(counters(Some(110.0), None), 100), Rounds::Unknown);
        let off = Configuration::from_shape("0,1,1".parse().expect("no speculation"));
        let none = Counters::default();
        assert_eq!(Rounds::from_configuration(&off, (&none, &none), 100), Rounds::OneAToken);
    }

    #[test]
    fn more_tokens_than_drafts_allow_are_no_figures() {
        let of = |tokens, rounds| {
            let observed = Observed {
                served: vec![Served {
                    request: 0,
                    arrival: Duration::ZERO,
                    late: Duration::ZERO,
                    generated: generated(tokens, Some(rounds)),
                }],
                elapsed: Duration::from_millis(60),
            };
            let seen = seen(&[], observed, &LoadArrivals::Closed(1), Rounds::Unknown).expect("seen");
            check_possible(&Configuration::from_shape("3,1,4".parse().expect("a shape")), &seen)
        };
        assert!(of(9, 2).is_ok());
        assert!(of(10, 2).is_err_and(|error| error.to_string().contains("2 rounds for 9 tokens")));
    }

    #[test]
    fn a_length_that_is_not_made_up_is_reported() {
        assert!(check_made_up(2.5, 2.45).is_ok());
        assert!(check_made_up(2.5, 1.3).is_err_and(|error| error.to_string().contains("accepts 1.30")));
    }

    #[test]
    fn rounds_without_graphs_spoil_the_trial_of_their_batch_alone() {
        let log = "Decode batch, #running-req: 8, #token: 9, cuda graph: False, gen throughput\n\
                   Decode batch, #running-req: 4, #token: 9, cuda graph: True, gen throughput\n";
        assert!(check_graphs(log, TrialLoad::BatchSize(4)).is_ok());
        assert!(check_graphs(log, TrialLoad::BatchSize(8)).is_err());
        assert!(check_graphs(log, TrialLoad::Recorded).is_ok());
    }

    #[test]
    fn cached_prompt_tokens_are_kept_and_more_than_common_beginnings_are_noted() {
        let request = |input_ids: &[u32]| Request {
            input_ids: input_ids.to_vec(),
            sampling: engine::SamplingParams::default(),
            stop: engine::StopConditions::default(),
        };
        let requests = [request(&[1, 2, 3, 4]), request(&[1, 2, 5, 6])];
        let served = |at, cached_tokens| Served {
            request: at,
            arrival: Duration::ZERO,
            late: Duration::ZERO,
            generated: Generated { cached_tokens, ..generated(9, Some(4)) },
        };
        let observed = |cached| Observed {
            served: vec![served(0, Some(cached)), served(1, Some(cached))],
            elapsed: Duration::from_millis(60),
        };
        let none = Counters::default();
        assert_eq!(cached_share(&requests, &observed(4), &none, &none), Some(1.0));
        let seen = seen(&requests, observed(4), &LoadArrivals::Closed(2), Rounds::OneAToken).expect("seen");
        assert_eq!(seen.served[0].completion.cached_tokens, 4);
        let unknown = Observed { served: vec![served(0, None)], elapsed: Duration::from_millis(60) };
        let counted = |cached_tokens| Counters { cached_tokens: Some(cached_tokens), ..Counters::default() };
        assert_eq!(cached_share(&requests, &unknown, &counted(3.0), &counted(5.0)), Some(0.25));
        assert_eq!(cached_share(&requests, &unknown, &none, &none), None);
        assert_eq!(common_share(&requests), 0.5);
        let chain = Configuration::from_shape("3,1,4".parse().expect("a shape"));
        let trial = Trial { configuration: chain, load: TrialLoad::BatchSize(2), repeat: 0 };
        assert_eq!(cached_words(&trial, Some(0.5), 0.5), None);
        assert!(cached_words(&trial, Some(1.0), 0.5).is_some_and(|words| words.contains("found 100%")));
    }

    /// As in spectune's own engine: waiting and prefill included, over the time that throughput
    /// counts.
    #[test]
    fn the_mean_batch_of_a_server_is_that_of_its_full_loop() {
        let request = Request {
            input_ids: vec![1],
            sampling: engine::SamplingParams::default(),
            stop: engine::StopConditions::default(),
        };
        let served = |at: usize, arrival: u64| Served {
            request: at,
            arrival: Duration::from_millis(arrival),
            late: Duration::ZERO,
            generated: generated(9, Some(4)),
        };
        // The third request runs alone for its last 40 ms.
        let observed =
            || Observed { served: vec![served(0, 0), served(1, 0), served(2, 40)], elapsed: Duration::from_millis(90) };
        let of = |arrivals: &LoadArrivals| {
            let seen = seen(&vec![request.clone(); 3], observed(), arrivals, Rounds::OneAToken).expect("seen");
            crate::runner::measurement::from_observations(&seen, &schemas::sweep::Objective::default(), false)
                .expect("figures")
        };
        let closed = of(&LoadArrivals::Closed(2));
        assert_eq!(closed.full.map(|full| full.seconds), Some(0.05));
        assert!((closed.mean_batch.expect("a batch") - 110.0 / 50.0).abs() < 1e-9, "{closed:?}");
        let open = of(&LoadArrivals::Open(vec![Duration::ZERO, Duration::ZERO, Duration::from_millis(40)]));
        assert_eq!(open.full, None);
        assert!((open.mean_batch.expect("a batch") - 150.0 / 90.0).abs() < 1e-9, "{open:?}");
    }
}

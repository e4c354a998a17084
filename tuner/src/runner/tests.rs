use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use engine::{
    Engine, Request, SamplingParams, StopConditions,
    spec::{SuffixRule, TextSpec},
};
use schemas::{
    sweep::{Metric, Objective},
    tree::TreeShape,
};

use super::{
    TrialEnd, TrialOptions,
    drive::{Observations, RequestSource, drive},
    parts, run,
};
use crate::{
    fixtures::demo,
    trials::{
        configuration::{Configuration, Real, TableRow, TrialLoad},
        record::{Measurement, Trial},
    },
    workload::LoadedWorkload,
};

static NEVER: AtomicBool = AtomicBool::new(false);

/// Distinguishable requests: each has one token more than the one before.
fn workload(count: usize) -> LoadedWorkload {
    let request = |at: usize| Request {
        input_ids: (0..6).map(|token| 10 + token + at as u32).collect(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_new_tokens: Some(2 + at), ignore_eos: true, ..StopConditions::default() },
    };
    LoadedWorkload {
        requests: (0..count).map(request).collect(),
        recorded: Vec::new(),
        seed: 3,
        warm_up_tokens: 2,
        hash: String::new(),
        left_out: 0,
        prompts: count,
    }
}

fn trial(load: TrialLoad) -> Trial {
    let shape = TreeShape::whole_tree(2, 2, 4);
    Trial { configuration: Configuration::from_shape(shape), load, repeat: 0 }
}

fn terms<'a>(workload: &'a LoadedWorkload, interrupted: &'a AtomicBool) -> TrialOptions<'a> {
    TrialOptions { workload, objective: Objective::default(), simulate_accept_length: None, interrupted }
}

fn figures(engine: &mut Engine, load: TrialLoad, terms: &TrialOptions<'_>) -> Measurement {
    match run(engine, &trial(load), terms).expect("a trial") {
        TrialEnd::Measured(figures) => *figures,
        TrialEnd::Interrupted => panic!("no one interrupted it"),
    }
}

fn seen(engine: &mut Engine, workload: &LoadedWorkload, source: &RequestSource) -> Observations {
    drive(engine, &workload.requests, source, &NEVER).expect("a trial").expect("no one interrupted it")
}

/// Requests of the warm-up, of earlier trials and of the trial are the same, so what was generated
/// would be drafts that are always right.
#[test]
fn outputs_of_the_warm_up_and_of_earlier_trials_are_no_drafts_of_a_trial() {
    let rule = TextSpec::Suffix(SuffixRule::DEFAULT);
    let mut engine = demo::engine_with_texts(3, rule);
    let mut accept_length = |warm_up_tokens| {
        let mut workload = LoadedWorkload { warm_up_tokens, ..workload(3) };
        workload.requests.iter_mut().for_each(|request| request.stop.max_new_tokens = Some(24));
        let configuration = Configuration::from_shape(TreeShape::chain(6));
        let trial = Trial { configuration, load: TrialLoad::BatchSize(1), repeat: 0 };
        match run(&mut engine, &trial, &terms(&workload, &NEVER)).expect("a trial") {
            TrialEnd::Measured(figures) => figures.accept_length,
            TrialEnd::Interrupted => panic!("no one interrupted it"),
        }
    };
    let [cold, again, after] = [0, 0, 20].map(&mut accept_length);
    assert!((cold - again).abs() < 1e-9, "{cold} at first, {again} again");
    assert!((cold - after).abs() < 1e-9, "{cold} without a warm-up, {after} after one");
}

#[test]
fn an_open_loop_serves_all_and_more_than_fit_wait() {
    let mut engine = demo::engine(3);
    let workload = workload(12);
    let rate = TrialLoad::RequestRate(Real(5000.0));
    let goodput = Objective { metric: Metric::Goodput, ttft_ms: Some(1e9), itl_ms: Some(1e9) };
    let figures = figures(&mut engine, rate, &TrialOptions { objective: goodput, ..terms(&workload, &NEVER) });
    assert_eq!((figures.requests, figures.output_tokens), (12, (2..14).sum()));
    assert_eq!(figures.goodput_tokens_per_s, Some(figures.output_tokens_per_s));
    assert!(figures.running_batch.len() <= 3, "{:?}", figures.running_batch);
    assert_eq!(figures.running_batch.iter().sum::<u64>(), figures.rounds);
    assert!(figures.draft_ms.is_some() && figures.verify_ms.is_some() && figures.extend_ms.is_some());
    assert!(figures.latency_ms.max <= figures.elapsed_s * 1e3);
    assert!(!figures.simulated && engine.is_idle());
}

#[test]
fn requests_are_served_in_the_order_of_their_arrivals_and_count_from_them() {
    let mut engine = demo::engine(1);
    let workload = workload(8);
    let arrivals = workload.arrivals(TrialLoad::RequestRate(Real(2000.0)), 0).expect("an open loop");
    let seen = seen(&mut engine, &workload, &RequestSource::Open(arrivals.clone()));
    let lengths: Vec<usize> = seen.served.iter().map(|one| one.completion.output_ids.len()).collect();
    assert_eq!(lengths, (2..10).collect::<Vec<_>>());
    // One slot for all: each request ends after the one before it, and none after the trial.
    let ends: Vec<Duration> =
        seen.served.iter().zip(&arrivals).map(|(one, arrival)| *arrival + one.late + one.completion.elapsed).collect();
    assert!(ends.is_sorted() && ends.last() <= Some(&seen.elapsed), "{ends:?} of {:?}", seen.elapsed);
}

#[test]
fn recorded_times_need_a_trace() {
    let mut engine = demo::engine(4);
    let plain = workload(3);
    let words =
        run(&mut engine, &trial(TrialLoad::Recorded), &terms(&plain, &NEVER)).expect_err("no times").to_string();
    assert!(words.contains("no recorded arrival times"), "{words}");
    let recorded = (0..3).map(|at| Duration::from_millis(at * 3)).collect();
    let traced = LoadedWorkload { recorded, ..plain };
    let figures = figures(&mut engine, TrialLoad::Recorded, &terms(&traced, &NEVER));
    assert_eq!(figures.requests, 3);
    assert!(figures.elapsed_s >= 0.006, "the last one comes after 6 ms");
}

#[test]
fn an_interrupt_is_heard_while_nothing_runs() {
    let mut engine = demo::engine(2);
    let interrupted = AtomicBool::new(false);
    let workload = workload(2);
    let source = RequestSource::Open(vec![Duration::ZERO, Duration::MAX]);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            interrupted.store(true, Ordering::Relaxed);
        });
        assert!(drive(&mut engine, &workload.requests, &source, &interrupted).expect("no error").is_none());
    });
    assert!(engine.is_idle());
}

/// Requests of 2 to 13 tokens, two at a time: the last one runs alone at the end.
#[test]
fn a_closed_loop_counts_until_fewer_than_its_batch_run() {
    let mut engine = demo::engine(2);
    let workload = workload(12);
    let found = seen(&mut engine, &workload, &RequestSource::Closed(2));
    assert_eq!(found.together, Some(2));
    for one in &found.served {
        let known: Vec<usize> = one.arrivals.iter().map(|(_, tokens)| *tokens).collect();
        assert!(known.is_sorted_by(|a, b| a < b), "{known:?}");
        assert_eq!(known.last(), Some(&one.completion.output_ids.len()));
    }
    let goodput = Objective { metric: Metric::Goodput, ttft_ms: Some(1e9), itl_ms: Some(1e9) };
    let figures =
        figures(&mut engine, TrialLoad::BatchSize(2), &TrialOptions { objective: goodput, ..terms(&workload, &NEVER) });
    let full = figures.full.expect("most of it is full");
    let all = figures.output_tokens as f64;
    assert!(full.output_tokens < all && full.output_tokens > 0.8 * all, "{full:?} of {all}");
    assert!(
        full.seconds < figures.elapsed_s && (full.rate() - figures.output_tokens_per_s).abs() < 1e-9,
        "{figures:?}"
    );
    let good = figures.goodput_tokens_per_s.expect("limits");
    assert!((good / figures.output_tokens_per_s - 1.0).abs() < 1e-9, "{figures:?}");
    let mean = figures.mean_batch.expect("a batch");
    assert!(mean > 1.5 && mean <= 2.0, "one request waits for the next step at most: {mean}");
}

#[test]
fn a_closed_loop_of_more_than_may_run_ends() {
    let mut engine = demo::engine(2);
    let workload = workload(4);
    let figures = figures(&mut engine, TrialLoad::BatchSize(6), &terms(&workload, &NEVER));
    assert_eq!(figures.requests, 6);
    assert_eq!(figures.running_batch.len(), 2);
    assert_eq!(figures.goodput_tokens_per_s, None);
}

#[test]
fn acceptance_is_made_up_for_one_trial() {
    let mut engine = demo::engine(2);
    let workload = LoadedWorkload { warm_up_tokens: 0, ..workload(2) };
    let made_up = TrialOptions { simulate_accept_length: Some(1.0), ..terms(&workload, &NEVER) };
    let figures_made_up = figures(&mut engine, TrialLoad::BatchSize(2), &made_up);
    assert!(figures_made_up.simulated);
    // One token per round: no draft is accepted.
    assert_eq!(figures_made_up.accept_histogram.len(), 1);
    assert_eq!(engine.options().simulated, None);
    assert!(!figures(&mut engine, TrialLoad::BatchSize(2), &terms(&workload, &NEVER)).simulated);
}

#[test]
fn a_batch_without_room_is_an_error_and_a_load_without_room_waits() {
    let mut engine = demo::engine_of(4, 32);
    let mut workload = LoadedWorkload { warm_up_tokens: 0, ..workload(4) };
    workload.requests.iter_mut().for_each(|request| request.stop.max_new_tokens = Some(24));
    // With 64 positions for the tree a request needs more than twice the room.
    let configuration = Configuration::from_shape(TreeShape::whole_tree(4, 8, 64));
    let trial = |load| Trial { configuration: configuration.clone(), load, repeat: 0 };
    let terms = terms(&workload, &NEVER);
    let words = run(&mut engine, &trial(TrialLoad::BatchSize(4)), &terms).expect_err("no room").to_string();
    assert!(words.contains("only 2 of 4 requests run together: the KV cache has no space for more"), "{words}");
    assert!(engine.is_idle());
    match run(&mut engine, &trial(TrialLoad::RequestRate(Real(5000.0))), &terms).expect("a trial") {
        TrialEnd::Measured(figures) => assert_eq!((figures.requests, figures.running_batch.len()), (4, 2)),
        TrialEnd::Interrupted => panic!("no one interrupted it"),
    }
}

#[test]
fn parts_of_a_round_are_timed_next_to_a_trial_at_its_batch_and_halfway() {
    let mut engine = demo::engine(3);
    let workload = workload(12);
    let figures = figures(&mut engine, TrialLoad::BatchSize(2), &terms(&workload, &NEVER));
    let time = |engine: &mut Engine, trial: &Trial| parts::time(engine, trial, &workload, &figures);
    let before = engine.options().policy.clone();
    let found = time(&mut engine, &trial(TrialLoad::BatchSize(2))).expect("they are timed").expect("they are told");
    assert_eq!((found.rounds, found.batch), (15, 2));
    // A prompt of six tokens and half of (2 + … + 13) / 12 more; no prompt has less than one token.
    assert!((found.context - 12.0).abs() < 6.0, "{found:?}");
    assert!(found.draft_ms.is_some() && found.extend_ms.is_some() && found.verify_ms.median > 0.0, "{found:?}");
    assert!(found.verify_ms.max <= found.round_ms.max, "{found:?}");
    assert!(engine.is_idle() && engine.options().policy == before);

    // In a table the rounds without speculation keep their tokens for the draft; a fixed shape has
    // others.
    let row = TableRow::for_any_context;
    let chain = TreeShape::chain(2);
    let table = vec![row(2, TreeShape::OFF), row(8, chain)];
    let mut tabled = trial(TrialLoad::BatchSize(2));
    tabled.configuration = Configuration { table, ..Configuration::from_shape(chain) };
    assert_eq!(time(&mut engine, &tabled).expect("no error"), None);

    // Exceeding the maximum sequence length is an error that leaves the engine unchanged.
    let mut small = demo::engine_of(3, 20);
    let words = time(&mut small, &trial(TrialLoad::BatchSize(2))).expect_err("no room").to_string();
    assert!(words.contains("--context-length"), "{words}");
    assert!(small.is_idle());
}

//! Compares with cases computed by hand, and with the engine itself.

use std::{path::Path, sync::atomic::AtomicBool};

use engine::{
    DeviceChoice, Engine, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions, timing::PrefillTime,
};
use schemas::{sweep::Objective, tree::TreeShape};

use super::*;
use crate::{
    prediction::{
        capture::{CaptureLimits, Demand, optimize},
        latency::{
            LatencyMachine, PrefillKind, RoundClock, RoundModel, TimedSample,
            design::{DesignSpace, design},
            filling::Filling,
            prefill::{PrefillModel, PrefillStep},
        },
    },
    runner::{self, TrialEnd, TrialOptions},
    trials::{
        configuration::{Configuration, TrialLoad},
        record::Trial,
    },
    workload::LoadedWorkload,
};

fn need(prompt_tokens: usize, output_tokens: usize, rounds: usize) -> Need {
    Need { prompt_tokens, output_tokens, rounds }
}

fn setup() -> Setup {
    Setup {
        capture_sizes: Vec::new(),
        max_running_requests: 8,
        memory: None,
        prefill_budget: 1000,
        prefill_chunk: 1000,
        rounds_behind: 0,
        mixed_prefill: false,
    }
}

fn closed(batch_size: usize) -> Arrivals {
    Arrivals::Closed { batch_size }
}

/// A round takes 10 ms plus 1 ms per request; a prefill step 5 ms plus 1 ms per ten tokens.
fn play(needs: &[Need], arrivals: &Arrivals, setup: &Setup) -> Forecast {
    let prefill = |step: &PrefillStep| 5.0 + step.tokens as f64 / 10.0;
    simulate(needs, arrivals, setup, |filling| Ok(10.0 + filling.places as f64), prefill).expect("it can be played")
}

fn close(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-9, "{one}, expected {other}");
}

/// As the throughput of a trial, which predictions are compared with.
#[test]
fn a_closed_loop_counts_until_fewer_than_its_batch_run() {
    let needs = [need(100, 11, 5), need(100, 11, 10)];
    let full = play(&needs, &closed(2), &setup()).full.expect("most of it is full");
    // Both prompts in one step, and five rounds of both; the second request has six tokens then.
    close(full.seconds, (25.0 + 5.0 * 12.0) / 1e3);
    close(full.output_tokens, 17.0);
    assert_eq!(play(&[need(100, 3, 2), need(100, 101, 100)], &closed(2), &setup()).full, None);
    assert_eq!(play(&needs, &Arrivals::Open { at_ms: vec![0.0; 2] }, &setup()).full, None);
}

#[test]
fn one_request_is_its_prompt_and_its_rounds() {
    let forecast = play(&[need(100, 9, 4)], &closed(1), &setup());
    close(forecast.elapsed_s, (15.0 + 4.0 * 11.0) / 1e3);
    close(forecast.prefill_s, 0.015);
    close(forecast.output_tokens_per_s, 9.0 / 0.059);
    close(forecast.tokens_per_s_per_user.expect("it has a second token"), 8.0 / 0.044);
    close(forecast.time_to_first_token_ms.median, 15.0);
    close(forecast.mean_latency_ms, 59.0);
    assert_eq!((forecast.output_tokens, forecast.accept_length), (9, Some(2.25)));
    assert_eq!(forecast.batches, [0, 4]);
    let only_first = play(&[need(100, 1, 0)], &closed(1), &setup());
    close(only_first.elapsed_s, 0.015);
    assert_eq!((only_first.tokens_per_s_per_user, only_first.accept_length), (None, None));
    assert!(only_first.batches.is_empty());
}

#[test]
fn a_small_cache_retracts_the_youngest_and_every_request_ends() {
    let needs = [need(20, 80, 79); 12];
    let memory = |tokens| Setup { memory: Some(Memory { tokens, max_new_tokens: 80, slack: 2 }), ..setup() };
    let without = play(&needs, &closed(8), &setup());
    let plenty = play(&needs, &closed(8), &memory(10_000));
    assert_eq!(plenty, without);
    let few = play(&needs, &closed(8), &memory(300));
    assert!(few.retractions > 0 && few.elapsed_s > plenty.elapsed_s, "{few:?}");
    assert_eq!((few.output_tokens, few.ends_s.len()), (plenty.output_tokens, 12));
    // Two requests of 102 tokens fit with all of their outputs; a third one is admitted, since less
    // is expected of them.
    assert!(few.batches.len() > 3, "{:?}", few.batches);
    let refused = simulate(&needs, &closed(8), &memory(100), |_| Ok(1.0), |_| 1.0).expect_err("it does not fit alone");
    assert!(refused.to_string().contains("102 tokens of a KV cache of 100"), "{refused}");
}

#[test]
fn a_closed_loop_sends_the_next_request_when_one_ends() {
    let needs = [need(50, 3, 2), need(50, 5, 4), need(50, 3, 2)];
    let forecast = play(&needs, &closed(2), &setup());
    // Two prompts in one step of 15 ms; two rounds of two requests in 24: the first has ended. The
    // next prompt takes 10, two rounds of two 24.
    close(forecast.elapsed_s, (15.0 + 24.0 + 10.0 + 24.0) / 1e3);
    assert_eq!(forecast.batches, [0, 0, 4]);
    close(forecast.latency_ms.min, 34.0);
    close(forecast.latency_ms.median, 39.0);
    close(forecast.latency_ms.max, 73.0);
    close(forecast.mean_latency_ms, (39.0 + 73.0 + 34.0) / 3.0);
    close(forecast.time_to_first_token_ms.min, 10.0);
    close(forecast.time_to_first_token_ms.max, 15.0);
}

#[test]
fn long_prompts_are_read_piece_by_piece_between_rounds() {
    let setup = Setup { prefill_budget: 100, prefill_chunk: 60, ..setup() };
    let forecast = play(&[need(60, 3, 2), need(90, 2, 1)], &closed(2), &setup);
    // 60 and 40 tokens in a step of 15 ms, a round of the first alone 11; 50 tokens 10, a round of
    // both 12.
    close(forecast.elapsed_s, 0.048);
    assert_eq!(forecast.batches, [0, 1, 1]);
    close(forecast.time_to_first_token_ms.max, 36.0);
}

#[test]
fn the_steps_of_a_prompt_know_what_was_read_before() {
    let seen = std::cell::RefCell::new(Vec::new());
    let prefill = |step: &PrefillStep| {
        seen.borrow_mut().push(*step);
        1.0
    };
    let setup = Setup { prefill_budget: 100, prefill_chunk: 60, ..setup() };
    simulate(&[need(90, 3, 2), need(30, 2, 1)], &closed(2), &setup, |_| Ok(1.0), prefill).expect("it is played");
    let step = |tokens, prompts, pairs| PrefillStep { tokens, prompts, pairs };
    // 60 and 30 tokens, then 30 after 60.
    let expected = [step(90, 2, 60 * 61 / 2 + 30 * 31 / 2), step(30, 1, 30 * 60 + 30 * 31 / 2)];
    assert_eq!(*seen.borrow(), expected);
}

#[test]
fn rounds_are_padded_and_know_the_mean_context() {
    let setup = Setup { capture_sizes: vec![1, 4], ..setup() };
    let seen = std::cell::RefCell::new(Vec::new());
    let round = |Filling { places, requests, context }| {
        seen.borrow_mut().push((places, requests, context));
        Ok(10.0)
    };
    simulate(&[need(100, 5, 2), need(200, 2, 1)], &closed(2), &setup, round, |_| 1.0).expect("it can be played");
    assert_eq!(*seen.borrow(), [(4, 2.0, 150.0), (1, 1.0, 102.0)]);
}

#[test]
fn with_rounds_in_flight_the_end_is_known_a_round_later() {
    assert_eq!((rounds_behind(2), rounds_behind(1)), (1, 0));
    let setup = Setup { rounds_behind: 1, ..setup() };
    let forecast = play(&[need(50, 4, 2), need(50, 4, 2)], &closed(1), &setup);
    // Prefill 10 and two rounds 22; one round of 11 in which the first request's slot still runs;
    // the same again, and no request waits for the slot that runs after the last one.
    close(forecast.elapsed_s, (32.0 + 11.0 + 32.0) / 1e3);
    assert_eq!(forecast.batches, [0, 5]);
    close(forecast.latency_ms.max, 43.0);

    let speculating = [need(50, 4, 2), need(50, 9, 6), need(50, 4, 2)];
    let forecast = play(&speculating, &closed(2), &setup);
    // Prompts 15, two rounds of two, one round with the first request's slot, the third prompt 10,
    // two rounds of two, and one with the third request's slot.
    close(forecast.elapsed_s, (15.0 + 6.0 * 12.0 + 10.0) / 1e3);
    assert_eq!(forecast.batches, [0, 0, 6]);

    // Without a free slot, the third prompt also waits until the host knows that the slot no longer
    // runs: prompts 15, three rounds of two, one of the second request alone, the third prompt 10,
    // two rounds of two.
    let forecast = play(&speculating, &closed(2), &Setup { max_running_requests: 2, ..setup.clone() });
    close(forecast.elapsed_s, (15.0 + 3.0 * 12.0 + 11.0 + 10.0 + 2.0 * 12.0) / 1e3);

    // Where a round yields one token, the host knows which one is the last, but the third prompt
    // comes after a round of the second request alone.
    let forecast = play(&[need(50, 3, 2), need(50, 7, 6), need(50, 3, 2)], &closed(2), &setup);
    close(forecast.elapsed_s, (15.0 + 2.0 * 12.0 + 11.0 + 10.0 + 2.0 * 12.0 + 11.0) / 1e3);
    assert_eq!(forecast.batches, [0, 2, 4]);
}

#[test]
fn open_arrivals_wait_for_no_request() {
    let needs = [need(50, 3, 2), need(50, 3, 2), need(50, 2, 1)];
    let arrivals = Arrivals::Open { at_ms: vec![5.0, 20.0, 500.0] };
    let forecast = play(&needs, &arrivals, &setup());
    // From 5: prefill until 15, a round until 26. The second request has arrived: its prefill until
    // 36, a round of both until 48, one more until 59. From 500: prefill and a round, until 521.
    close(forecast.elapsed_s, 0.521);
    assert_eq!(forecast.batches, [0, 3, 1]);
    close(forecast.latency_ms.max, 43.0);
    close(forecast.latency_ms.median, 39.0);
    close(forecast.latency_ms.min, 21.0);
    close(forecast.time_to_first_token_ms.max, 16.0);

    let narrow = Setup { max_running_requests: 1, ..setup() };
    let forecast = play(&needs[..2], &Arrivals::Open { at_ms: vec![0.0, 0.0] }, &narrow);
    close(forecast.elapsed_s, 2.0 * 32.0 / 1e3);
    close(forecast.time_to_first_token_ms.max, 42.0);
}

#[test]
fn what_cannot_be_played_is_an_error() {
    let refused = |needs: &[Need], arrivals: &Arrivals, setup: &Setup, expected: &str| {
        let error = simulate(needs, arrivals, setup, |_| Ok(1.0), |_| 1.0).expect_err("it is refused").to_string();
        assert!(error.contains(expected), "{error}");
    };
    let one = [need(5, 3, 2)];
    refused(&[], &closed(1), &setup(), "no request");
    refused(&[need(0, 3, 2)], &closed(1), &setup(), "prompt");
    refused(&[need(5, 2, 2)], &closed(1), &setup(), "at least one token");
    refused(&one, &closed(0), &setup(), "batch size 0");
    refused(&one, &closed(9), &setup(), "batch size 9");
    refused(&one, &closed(1), &Setup { prefill_budget: 0, ..setup() }, "prefill_budget");
    refused(&one, &closed(1), &Setup { capture_sizes: vec![4, 1], ..setup() }, "ascending");
    for at_ms in [vec![], vec![f64::NAN], vec![-1.0]] {
        refused(&one, &Arrivals::Open { at_ms }, &setup(), "arrival times");
    }
    refused(&[one[0]; 2], &Arrivals::Open { at_ms: vec![2.0, 1.0] }, &setup(), "ascending");
    let error = simulate(&one, &closed(1), &setup(), |_| Ok(f64::NAN), |_| 1.0).expect_err("no time");
    assert!(error.to_string().contains("NaN"), "{error}");
    let extrapolated = |_| Err(TunerError::Configuration("extrapolated".into()));
    assert!(simulate(&one, &closed(1), &setup(), extrapolated, |_| 1.0).is_err());
}

fn engine(device: DeviceChoice, shape: TreeShape) -> Engine {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    let options = EngineOptions {
        model_path: models.join("target"),
        draft_model_path: Some(models.join("eagle3")),
        policy: ShapePolicy::fixed(shape),
        context_length: Some(128),
        max_running_requests: 4,
        chunked_prefill_size: 16,
        disable_radix_cache: true,
        device,
        ..EngineOptions::default()
    };
    Engine::load(options).expect("the demo pair loads")
}

/// The rounds that the engine runs for a workload, and the rounds that are forecast from the needs
/// of each request.
fn rounds_of(device: DeviceChoice, shape: TreeShape, batch_size: usize) -> (u64, u64) {
    let mut engine = engine(device, shape);
    let request = |number: u32| Request {
        input_ids: (0..5 + number * 3).map(|at| 20 + (at * 37 + number * 11) % 900).collect(),
        sampling: SamplingParams::default(),
        stop: StopConditions {
            max_new_tokens: Some(1 + number as usize * 7 % 30),
            ignore_eos: true,
            ..StopConditions::default()
        },
    };
    let requests: Vec<Request> = (0..10).map(request).collect();
    let completions = engine.run(requests.clone()).expect("they run");
    let needs: Vec<Need> =
        completions.iter().map(|one| need(one.prompt_tokens, one.output_ids.len(), one.rounds)).collect();
    let workload = LoadedWorkload {
        requests,
        warm_up_tokens: 0,
        hash: String::new(),
        left_out: 0,
        prompts: 1,
        recorded: Vec::new(),
        seed: 0,
    };
    let before = engine.statistics().rounds;
    let trial =
        Trial { configuration: Configuration::from_shape(shape), load: TrialLoad::BatchSize(batch_size), repeat: 0 };
    let interrupted = AtomicBool::new(false);
    let terms = TrialOptions {
        workload: &workload,
        objective: Objective::default(),
        simulate_accept_length: None,
        interrupted: &interrupted,
    };
    let Ok(TrialEnd::Measured(_)) = runner::run(&mut engine, &trial, &terms) else {
        panic!("the trial runs");
    };
    let capacity = engine.capacity();
    let setup = Setup {
        capture_sizes: Vec::new(),
        max_running_requests: 4,
        memory: None,
        prefill_budget: 16,
        prefill_chunk: capacity.prefill_chunk,
        rounds_behind: rounds_behind(capacity.rounds_in_flight),
        mixed_prefill: false,
    };
    let forecast = play(&needs, &closed(batch_size), &setup);
    (engine.statistics().rounds - before, forecast.batches.iter().sum())
}

#[test]
fn the_engine_runs_the_rounds_that_are_forecast() {
    for shape in ["0,1,1", "3,1,4", "3,4,8"] {
        let shape = shape.parse().expect("a shape");
        for batch_size in [1, 3, 4] {
            let (ran, forecast) = rounds_of(DeviceChoice::Cpu, shape, batch_size);
            assert_eq!(ran, forecast, "({shape}) at {batch_size}");
        }
    }
}

/// With two rounds in flight the last one may or may not run, and a request may end in the round
/// that was certain to be its last.
#[test]
fn with_rounds_in_flight_the_forecast_is_near() {
    for batch_size in [1, 3] {
        let (ran, forecast) = rounds_of(DeviceChoice::Emulator, TreeShape::chain(2), batch_size);
        assert!(forecast.abs_diff(ran) * 10 <= ran, "{forecast} forecast, {ran} ran at {batch_size}");
    }
}

/// From timed rounds to capture sizes, on a real device of unknown speed.
#[test]
fn timed_rounds_lead_to_a_forecast_and_to_capture_sizes() {
    let mut engine = engine(DeviceChoice::Cpu, TreeShape::OFF);
    let shape: TreeShape = "2,4,6".parse().expect("a shape");
    let space = DesignSpace {
        shapes: vec![TreeShape::chain(2), shape],
        batches: vec![1, 2, 4],
        contexts: vec![24, 48],
        cache_tokens: None,
    };
    let times = engine.time_rounds(&design(&space, 10), 3).expect("they are timed");
    let samples: Vec<TimedSample> = times.iter().map(|one| TimedSample::from_times(one, RoundClock::Wall)).collect();
    let machine = LatencyMachine::from_engine(&engine).expect("the CPU is measured");
    let model = RoundModel::fit(machine, &samples).expect("it fits");
    let prefill: Vec<PrefillTime> = times.iter().filter_map(|one| one.prefill).collect();
    let prefill = PrefillModel::fit(&prefill).expect("it fits");
    let setup = Setup { capture_sizes: vec![1, 2, 4], max_running_requests: 4, ..setup() };
    let round_ms = |filling| {
        let predicted = model.predict(&model.full_point(shape, filling));
        match predicted.kind {
            PrefillKind::Interpolated => Ok(predicted.ms),
            PrefillKind::Extrapolated(beyond) => Err(TunerError::Configuration(format!("{beyond:?}"))),
        }
    };
    let needs = [need(24, 21, 10), need(28, 19, 9), need(30, 9, 4), need(25, 17, 8)];
    let forecast = simulate(&needs, &closed(2), &setup, round_ms, |step| prefill.step(step)).expect("it is played");
    assert!(forecast.elapsed_s > forecast.prefill_s && forecast.prefill_s > 0.0, "{forecast:?}");
    assert_eq!(forecast.output_tokens, 66);
    assert!(forecast.batches.len() == 3 && forecast.batches[2] > 0, "{forecast:?}");
    let demand = Demand::new(&forecast.batches, 4, |batch| round_ms(Filling::full(batch, 30.0))).expect("it is one");
    let lists = optimize(&demand, &CaptureLimits { graphs: 3, memory: None }).expect("it is possible");
    assert!(lists.iter().all(|list| list.sizes.last() == Some(&4) && list.expected_ms > 0.0));
    let far = simulate(&[need(4000, 21, 10)], &closed(1), &setup, round_ms, |step| prefill.step(step));
    assert!(far.expect_err("nothing was timed there").to_string().contains("Context"));
}

use std::path::Path;

use super::*;
use crate::{DeviceChoice, EngineOptions, Event};

fn engine(device: DeviceChoice, options: EngineOptions) -> Engine {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    let options = EngineOptions {
        model_path: models.join("target"),
        draft_model_path: Some(models.join("eagle3")),
        context_length: Some(64),
        max_running_requests: 4,
        page_size: 4,
        device,
        ..options
    };
    Engine::load(options).expect("the demo pair loads")
}

fn point(shape: &str, batch: usize, context: usize) -> TimingPoint {
    TimingPoint::full(shape.parse().expect("a shape"), batch, context)
}

#[test]
fn every_point_is_timed_and_the_engine_is_as_before() {
    let policy = ShapePolicy::fixed(TreeShape::chain(2));
    for (device, disable_radix_cache) in
        [(DeviceChoice::Cpu, true), (DeviceChoice::Cpu, false), (DeviceChoice::Emulator, true)]
    {
        let mut engine =
            engine(device, EngineOptions { policy: policy.clone(), disable_radix_cache, ..EngineOptions::default() });
        let prompt = request(&[5, 6, 7, 8, 9, 10], 12);
        let expected = engine.run(vec![prompt.clone()]).expect("it runs");
        let points = [point("0,1,1", 2, 30), point("2,4,6", 2, 30), point("1,1,2", 1, 20), point("2,1,3", 2, 30)];
        let times = engine.time_rounds(&points, 4).expect("they are timed");
        assert_eq!(times.iter().map(|one| one.point).collect::<Vec<_>>(), points);
        for one in &times {
            assert_eq!(one.device.len(), one.wall.len());
            assert!((2..=4).contains(&one.wall.len()), "those left out that ran before the device settled: {one:?}");
            assert!(one.device.iter().all(|timing| timing.total > Duration::ZERO), "{one:?}");
            assert!(one.wall.iter().all(|wall| *wall > Duration::ZERO), "{one:?}");
            assert!((one.context - one.point.context as f64).abs() <= 3.0, "{one:?}");
        }
        // A request that ends unexpectedly may leave a round in flight that was launched ahead for
        // it.
        let output = &expected[0].output_ids;
        let late = (3..output.len()).find(|at| !output[..*at].contains(&output[*at])).expect("a token of its own");
        let stop =
            StopConditions { stop_token_ids: vec![output[late]], max_new_tokens: Some(30), ..prompt.stop.clone() };
        engine.submit(Request { stop, ..prompt.clone() }).expect("it fits");
        let mut ended = false;
        while !ended {
            engine.step(&mut |event| ended |= matches!(event, Event::Finished { .. })).expect("it runs");
        }
        assert_eq!(engine.is_idle(), device == DeviceChoice::Cpu, "{device:?}");
        let parts = engine.time_parts(&points, 2).expect("they are timed part by part");
        assert_eq!(parts.iter().map(|one| one.point).collect::<Vec<_>>(), points);
        for one in &parts {
            let all = |timing: &RoundTiming| timing.draft.is_some() && timing.extend.is_some();
            assert!((1..=2).contains(&one.device.len()), "{one:?}");
            assert!(one.device.iter().all(|timing| timing.verify.is_some()), "{one:?}");
            assert!(one.point.shape.is_off() || one.device.iter().all(all), "{one:?}");
        }
        // Prefilled once for each batch and context, in full, and once more without the draft.
        let read = |one: &RoundTimes| one.prefill.map(|prefill| (prefill.tokens, prefill.draft));
        let length = |context| engine.prompt_length(context, 4);
        let expected_reads =
            [Some((2 * length(30), false)), Some((2 * length(30), true)), Some((length(20), true)), None];
        assert_eq!(times.iter().map(read).collect::<Vec<_>>(), expected_reads);
        assert!(engine.is_idle() && engine.options().policy == policy);
        let again = engine.run(vec![prompt]).expect("it runs");
        assert_eq!(again[0].output_ids, expected[0].output_ids, "acceptance is real again");
        assert_eq!(again[0].accept_histogram, expected[0].accept_histogram, "and the shape is the old one");
        let cached = engine.run(vec![request(&[5, 6, 7, 8, 9, 10], 2)]).expect("it runs")[0].cached_tokens;
        assert_eq!(cached, if disable_radix_cache { 0 } else { 4 });
    }
}

#[test]
fn prompts_are_timed_when_others_of_their_lengths_have_been_read() {
    let mut engine = engine(
        DeviceChoice::Cpu,
        EngineOptions { policy: ShapePolicy::fixed(TreeShape::chain(2)), ..EngineOptions::default() },
    );
    let point = point("2,1,3", 2, 40);
    let (warm_up, timed) = (engine.prompts(Prompts::WarmUp, point, 4), engine.prompts(Prompts::Timed, point, 4));
    assert!(warm_up.iter().zip(&timed).all(|(warm_up, timed)| warm_up.len() == timed.len() && warm_up != timed));
    let times = engine.time_rounds(&[point], 4).expect("they are timed");
    let prefill = times[0].prefill.expect("the first of its batch");
    // The rounds prefill only the ends of prompts that fill no page.
    let again = 2 * engine.capacity().page_size;
    let read = (engine.statistics().prompt_tokens - engine.statistics().cached_tokens) as usize;
    assert!((2 * prefill.tokens..=2 * prefill.tokens + again).contains(&read), "{read} {prefill:?}");
}

#[test]
fn prefills_are_timed_in_full_with_and_without_the_draft() {
    let policy = ShapePolicy::fixed(TreeShape::chain(2));
    let mut engine = engine(DeviceChoice::Cpu, EngineOptions { policy: policy.clone(), ..EngineOptions::default() });
    let point = |length, prompts, shape| PrefillPoint { length, prompts, shape };
    let points = [point(20, 1, TreeShape::chain(2)), point(9, 3, TreeShape::OFF)];
    let times = engine.time_prefills(&points, 2).expect("they are timed");
    let found: Vec<_> = times.iter().map(|one| (one.tokens, one.prompts, one.pairs, one.draft)).collect();
    assert_eq!(found, [(20, 1, 210, true), (20, 1, 210, true), (27, 3, 135, false), (27, 3, 135, false)]);
    assert!(times.iter().all(|one| one.steps > 0 && !one.elapsed.is_zero()));
    assert!(engine.is_idle() && engine.options().policy == policy);
    let words = engine.time_prefills(&[point(9999, 1, TreeShape::OFF)], 1).expect_err("too long").to_string();
    assert!(words.contains("9999 tokens") && engine.is_idle(), "{words}");
}

#[test]
fn points_that_do_not_fit_are_refused_and_change_nothing() {
    let policy = ShapePolicy::fixed(TreeShape::chain(1));
    let mut engine = engine(DeviceChoice::Cpu, EngineOptions { policy: policy.clone(), ..EngineOptions::default() });
    for (point, rounds, expected) in [
        (point("2,1,3", 5, 20), 4, "--max-running-requests 4"),
        (point("2,1,3", 0, 20), 4, "at least one"),
        (point("2,1,3", 1, 20), 0, "at least one"),
        (point("2,1,3", 1, 60), 9, "--context-length"),
    ] {
        let error = engine.time_rounds(&[point], rounds).expect_err("it is refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    engine.submit(request(&[1, 2, 3], 20)).expect("it runs");
    let error = engine.time_rounds(&[point("2,1,3", 1, 20)], 4).expect_err("a request runs").to_string();
    assert!(error.contains("no request runs"), "{error}");
    while !engine.is_idle() {
        engine.step(&mut |_| {}).expect("it runs");
    }
    assert_eq!(engine.options().policy, policy);
}

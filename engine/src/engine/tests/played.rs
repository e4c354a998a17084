//! Acceptance that is played from texts: on every device, each round of each request accepts what
//! its text says at that place, whatever the batch, the order of requests, the shape of the round
//! or retractions.

use std::sync::Arc;

use schemas::tree::TreeShape;

use super::{Pair, RandomModels, with_head};
use crate::{
    DeviceChoice, Engine, EngineOptions, PlayedAcceptance, PlayedText, Request, SamplingParams, ShapePolicy, Simulated,
    StopConditions,
};

const CHAIN: TreeShape = TreeShape { num_steps: 3, topk: 1, num_draft_tokens: 4 };
const TREE: TreeShape = TreeShape { num_steps: 2, topk: 2, num_draft_tokens: 5 };

/// Two texts of different lengths: acceptance that is not random, and differs by shape.
fn acceptance() -> Arc<PlayedAcceptance> {
    let list =
        |most: usize, length: usize| (0..length).map(|at| (at * 5 % 7 % (most + 1)) as u16).collect::<Vec<u16>>();
    let shapes = [CHAIN, TREE].map(|shape| (shape, vec![list(shape.num_steps, 11), list(shape.num_steps, 17)]));
    Arc::new(PlayedAcceptance::new(shapes.to_vec()).expect("lists"))
}

fn request(number: usize, played: bool) -> Request {
    let input_ids: Vec<u32> = (0..5 + 3 * number).map(|at| 1 + (number * 7 + at) as u32 % 20).collect();
    let sampling = SamplingParams {
        played: played.then(|| PlayedText { text: number % 2, origin: number * 13 }),
        seed: number as u64,
        ..SamplingParams::default()
    };
    let stop = StopConditions { max_new_tokens: Some(14 + 5 * number), ignore_eos: true, ..StopConditions::default() };
    Request { input_ids, sampling, stop }
}

/// Rounds by accepted drafts of a request that has this shape in all rounds.
fn expected(acceptance: &PlayedAcceptance, shape: TreeShape, request: &Request) -> Vec<u64> {
    let played = request.sampling.played.expect("a text");
    let output = request.stop.max_new_tokens.expect("a limit");
    let (mut histogram, mut produced) = (vec![0; shape.longest_path()], 1);
    while produced < output {
        let length = request.input_ids.len() + produced - 1;
        let count = acceptance.count(shape, played, length).expect("a known shape").min(output - produced);
        // A last round that is cut off keeps drafts only.
        let whole = acceptance.count(shape, played, length) == Some(count);
        histogram[count - usize::from(whole)] += 1;
        produced += count;
    }
    while histogram.last() == Some(&0) {
        histogram.pop();
    }
    histogram
}

#[test]
fn rounds_accept_what_their_texts_say_on_every_device() {
    let models = RandomModels::write_seeded(23).expect("a folder");
    let acceptance = acceptance();
    for device in [DeviceChoice::Cpu, DeviceChoice::Emulator] {
        for shape in [CHAIN, TREE] {
            let (head, _) = with_head(&models, Pair::Eagle3);
            let policy = ShapePolicy::fixed(shape);
            let options =
                EngineOptions { device, policy, simulated: Some(Simulated::Played(Arc::clone(&acceptance))), ..head };
            let mut engine = Engine::load(options).expect("a pair");
            assert!(engine.options().makes_up_acceptance());
            let requests: Vec<Request> = (0..3).map(|number| request(number, true)).collect();
            let completions = engine.run(requests.clone()).expect("they run");
            for (request, completion) in requests.iter().zip(completions) {
                let histogram = expected(&acceptance, shape, request);
                assert_eq!(completion.accept_histogram, histogram, "{device:?}, {shape}");
            }
        }
    }
}

#[test]
fn requests_without_a_text_follow_the_target_and_unknown_shapes_are_refused() {
    let models = RandomModels::write_seeded(23).expect("a folder");
    for device in [DeviceChoice::Cpu, DeviceChoice::Emulator] {
        let (head, _) = with_head(&models, Pair::Eagle3);
        let head = EngineOptions { device, policy: ShapePolicy::fixed(CHAIN), ..head };
        let mut engine = Engine::load(head).expect("a pair");
        let plain = engine.run(vec![request(1, false)]).expect("it runs").remove(0);
        engine.simulate_acceptance(Some(Simulated::Played(acceptance()))).expect("it is idle");
        let together = engine.run(vec![request(0, true), request(1, false)]).expect("they run").remove(1);
        assert_eq!((together.output_ids, together.accept_histogram), (plain.output_ids, plain.accept_histogram));
        let error = engine.set_policy(ShapePolicy::fixed(TreeShape::chain(2))).expect_err("not in the texts");
        assert!(error.to_string().contains("2,1,3"), "{error}");
        engine.set_policy(ShapePolicy::fixed(TreeShape::OFF)).expect("no speculation is always known");
        engine.simulate_acceptance(None).expect("it is idle");
        engine.set_policy(ShapePolicy::fixed(TreeShape::chain(2))).expect("all shapes run again");
    }
}

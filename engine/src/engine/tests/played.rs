//! Acceptance that is played from texts: on every device, each round of each request accepts what
//! its text says at that place, whatever the batch, the order of requests, the shape of the round
//! or retractions.

use std::sync::Arc;

use schemas::tree::TreeShape;

use super::{Pair, RandomModels, with_head};
use crate::{
    DeviceChoice, Engine, EngineOptions, PlayedAcceptance, PlayedText, PlayedTree, Request, SamplingParams,
    ShapePolicy, Simulated, StopConditions,
};

const CHAIN: TreeShape = TreeShape::whole_tree(3, 1, 4);
const TREE: TreeShape = TreeShape::whole_tree(2, 2, 5);

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

/// Trees of two texts: a root with two drafts, and two below the second, of which the last is
/// accepted as far as the position says.
fn trees(shape: TreeShape) -> (TreeShape, Vec<Vec<PlayedTree>>) {
    let tree = |at: usize| PlayedTree {
        drafts: [(0, -0.3), (0, -0.5 - at as f32 % 4.0), (2, -5.0), (2, -4.0 - at as f32 % 3.0)].to_vec(),
        end: [4, 2, 0, 1, 4][at % 5],
    };
    (shape, vec![(0..11).map(tree).collect(), (0..17).map(tree).collect()])
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

/// Whole trees accept what their texts say, whatever the form that the draft would give them. With
/// a budget, the scores of the texts decide what is verified, on a GPU as on the CPU.
#[test]
fn trees_have_the_form_of_their_texts_and_budgets_go_by_their_scores() {
    let models = RandomModels::write_seeded(23).expect("a folder");
    let budgets = ["2,2,5~2", "2,2,5~3.5"].map(|shape| shape.parse::<TreeShape>().expect("a shape"));
    let shapes = [TREE, budgets[0], budgets[1]];
    let acceptance = PlayedAcceptance::with_trees(shapes.map(trees).to_vec()).expect("trees");
    let acceptance = Arc::new(acceptance);
    // One after the other: together, requests that have ended share the rows as long as the host
    // does not know it, which it knows at once on the CPU.
    let played = |device: DeviceChoice, shape: TreeShape| {
        let (head, _) = with_head(&models, Pair::Eagle3);
        let (policy, simulated) = (ShapePolicy::fixed(shape), Some(Simulated::Played(Arc::clone(&acceptance))));
        let mut engine = Engine::load(EngineOptions { device, policy, simulated, ..head }).expect("a pair");
        let mut alone = |number: usize| engine.run(vec![request(number, true)]).expect("it runs").remove(0);
        (0..3).map(|number| alone(number).accept_histogram).collect::<Vec<_>>()
    };
    let whole = played(DeviceChoice::Cpu, TREE);
    for (number, histogram) in whole.iter().enumerate() {
        assert_eq!(*histogram, expected(&acceptance, TREE, &request(number, true)));
    }
    let [few, more] = budgets.map(|shape| played(DeviceChoice::Cpu, shape));
    let rounds = |all: &[Vec<u64>]| all.iter().flatten().sum::<u64>();
    assert!(rounds(&few) > rounds(&more) && rounds(&more) > rounds(&whole), "{few:?} {more:?} {whole:?}");
    for (shape, on_cpu) in shapes.into_iter().zip([whole, few, more]) {
        assert_eq!(played(DeviceChoice::Emulator, shape), on_cpu, "{shape}");
    }
}

#[test]
fn what_is_no_tree_of_its_shape_is_not_played() {
    let played = |drafts: Vec<(usize, f32)>, end: usize| {
        PlayedAcceptance::with_trees(vec![(TREE, vec![vec![PlayedTree { drafts, end }]])])
    };
    assert!(played(vec![(0, -1.0), (1, -2.0)], 2).is_ok() && played(Vec::new(), 0).is_ok());
    for (drafts, end) in [
        (vec![(0, -1.0), (1, -1.0), (2, -1.0)], 0),
        (vec![(0, -1.0); 5], 0),
        (vec![(0, -1.0)], 2),
        (vec![(1, -1.0)], 0),
        (vec![(0, f32::NAN)], 0),
        (vec![(0, -1.0), (1, -1.0), (0, -1.0)], 0),
    ] {
        assert!(played(drafts.clone(), end).is_err(), "{drafts:?}, {end}");
    }
    let budget = "2,2,5~2".parse().expect("a shape");
    assert!(PlayedAcceptance::new(vec![(budget, vec![vec![1]])]).is_err(), "a budget needs trees");
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

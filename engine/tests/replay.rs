//! A replay counts the same as real runs: on the demo pair, shape by shape, request by request.

#[path = "replay/kept.rs"]
mod kept;

use std::{ops::ControlFlow, path::Path};

use engine::{
    Completion, DeviceChoice, Engine, EngineOptions, FinishReason, ReplayText, Request, SamplingParams,
    ShapeAcceptance, ShapePolicy, StopConditions,
};
use schemas::tree::TreeShape;

fn load(head: &str, change: impl FnOnce(&mut EngineOptions)) -> Engine {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    let mut options = EngineOptions {
        model_path: models.join("target"),
        draft_model_path: Some(models.join(head)),
        max_running_requests: 8,
        context_length: Some(256),
        device: DeviceChoice::Cpu,
        batch_invariant: true,
        ..EngineOptions::default()
    };
    change(&mut options);
    Engine::load(options).expect("the demo pair loads")
}

/// Prompts of different lengths, greedy and sampled, some of which end early.
fn requests(engine: &Engine, samplings: &[SamplingParams], new: usize) -> Vec<Request> {
    let text = engine.text().expect("the demo model has a tokenizer");
    let prompts = ["fn main() {\n    let", "def read(self", "The `Option` type"];
    let stops = text.encode(" self.\n").expect("it encodes");
    let one = |(at, prompt): (usize, &&str), sampling: &SamplingParams| Request {
        input_ids: text.encode(prompt).expect("it encodes"),
        sampling: SamplingParams { seed: at as u64, ..sampling.clone() },
        stop: StopConditions {
            max_new_tokens: Some(new - at),
            stop_token_ids: if at == 1 { stops.clone() } else { Vec::new() },
            ..StopConditions::default()
        },
    };
    samplings.iter().flat_map(|sampling| prompts.iter().enumerate().map(move |prompt| one(prompt, sampling))).collect()
}

fn samplings() -> [SamplingParams; 3] {
    let sampled = SamplingParams { temperature: 0.8, top_p: 0.95, ..SamplingParams::default() };
    [
        SamplingParams::default(),
        sampled.clone(),
        SamplingParams { temperature: 1.1, top_k: 30, min_p: 0.02, top_p: 1.0, ..sampled },
    ]
}

fn shape(text: &str) -> TreeShape {
    text.parse().expect("a shape")
}

/// Shapes that look random but are always the same.
fn many_shapes(count: usize) -> Vec<TreeShape> {
    let mut state = 7_u64;
    let mut draw = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % most
    };
    let shapes = std::iter::repeat_with(|| {
        let (steps, topk) = (1 + draw(8), 1 + draw(8));
        let most = TreeShape::whole_tree(steps, topk, 2).largest_num_draft_tokens().min(60);
        let nodes = if topk == 1 { steps + 1 } else { 2 + draw(most - 1) };
        TreeShape::new(steps, topk, nodes).expect("within the bound")
    });
    [TreeShape::OFF].into_iter().chain(shapes.take(count)).collect()
}

fn run(engine: &mut Engine, shape: TreeShape, requests: &[Request]) -> Vec<Completion> {
    engine.set_policy(ShapePolicy::fixed(shape)).expect("it runs");
    engine.run(requests.to_vec()).expect("they run")
}

fn replay(engine: &mut Engine, texts: &[ReplayText], shapes: &[TreeShape]) -> Vec<Vec<ShapeAcceptance>> {
    let mut walked = 0;
    let result = engine.replay(texts, shapes, &mut |progress| {
        assert!(progress.walked >= walked && progress.walked <= progress.total, "{progress:?} behind {walked}");
        walked = progress.walked;
        ControlFlow::Continue(())
    });
    let result = result.expect("they can be replayed").expect("no one broke it off");
    let total: usize = texts.iter().map(|text| (text.output_tokens() - 1) * shapes.len()).sum();
    assert_eq!(walked, total);
    result
}

fn texts(requests: &[Request], completions: &[Completion]) -> Vec<ReplayText> {
    requests.iter().zip(completions).map(|(request, completion)| ReplayText::new(request, completion)).collect()
}

/// Replays every shape along the text of plain decoding, then runs it.
fn check(engine: &mut Engine, requests: &[Request], shapes: &[TreeShape]) -> Vec<Completion> {
    let plain = run(engine, TreeShape::OFF, requests);
    let found = replay(engine, &texts(requests, &plain), shapes);
    let mut accepted = 0;
    for (at, shape) in shapes.iter().enumerate() {
        for (number, (completion, found)) in run(engine, *shape, requests).iter().zip(&found).enumerate() {
            let found = &found[at];
            assert_eq!(completion.output_ids, plain[number].output_ids, "{shape}, request {number}");
            assert_eq!(found.accept_histogram, completion.accept_histogram, "{shape}, request {number}");
            assert_eq!(
                (found.rounds, found.proposed_drafts, found.output_tokens, found.accept_length()),
                (
                    completion.rounds,
                    completion.proposed_drafts,
                    completion.output_ids.len(),
                    completion.accept_length()
                ),
                "{shape}, request {number}"
            );
            assert_eq!(found.expected_drafts.is_some(), !requests[number].sampling.is_greedy());
            accepted += found.accepted_drafts();
        }
    }
    assert!(accepted > 0, "nothing was accepted");
    plain
}

#[test]
fn a_replay_counts_what_every_shape_accepts_in_a_run() {
    for (head, page_size, prefill) in [("eagle3", 1, 2048), ("eagle2", 16, 7)] {
        let mut engine = load(head, |options| {
            (options.page_size, options.chunked_prefill_size) = (page_size, prefill);
        });
        let requests = requests(&engine, &samplings(), 40);
        let plain = check(&mut engine, &requests, &many_shapes(20));
        // Some end by length and some by a token.
        let by_length = |completion: &Completion| completion.finish_reason == FinishReason::Length;
        assert!(plain.iter().any(by_length) && !plain.iter().all(by_length), "{head}");
        assert_eq!(engine.statistics().pages_used, 0);
    }
}

#[test]
fn texts_that_do_not_fit_together_are_replayed_one_after_the_other() {
    let mut roomy = load("eagle3", |_| {});
    let requests = requests(&roomy, &samplings()[..2], 24);
    let texts = texts(&requests, &run(&mut roomy, TreeShape::OFF, &requests));
    let shapes = [shape("3,1,4"), shape("4,4,12"), shape("2,4,9"), TreeShape::OFF];
    let expected = replay(&mut roomy, &texts, &shapes);
    let mut narrow = load("eagle3", |options| {
        (options.max_running_requests, options.page_size) = (2, 7);
    });
    assert_eq!(replay(&mut narrow, &texts, &shapes), expected);
    // In any order, with duplicate shapes.
    let turned: Vec<TreeShape> = shapes.iter().rev().chain(&shapes).copied().collect();
    let found = replay(&mut narrow, &texts, &turned);
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found[4..], expected[..]);
        assert!(found[..4].iter().rev().eq(expected));
    }
    assert!(replay(&mut narrow, &texts, &[]).iter().all(Vec::is_empty));
    assert!(replay(&mut narrow, &[], &shapes).is_empty());
    // A replay leaves no state that could affect a run.
    let completions = run(&mut narrow, shapes[1], &requests);
    assert_eq!(completions[0].accept_histogram, expected[0][1].accept_histogram);
}

#[test]
fn the_expected_acceptance_has_the_mean_of_the_counted_one_and_less_scatter() {
    const REQUESTS: usize = 48;
    let mut engine = load("eagle3", |options| options.max_running_requests = 16);
    let prompt = engine.text().expect("a tokenizer").encode("fn main() {\n    let").expect("it encodes");
    let one = |seed| Request {
        input_ids: prompt.clone(),
        sampling: SamplingParams { temperature: 1.0, seed, ..SamplingParams::default() },
        stop: StopConditions { max_new_tokens: Some(48), ignore_eos: true, ..StopConditions::default() },
    };
    let requests: Vec<Request> = (0..REQUESTS as u64).map(one).collect();
    let completions = run(&mut engine, TreeShape::OFF, &requests);
    let shapes = [shape("3,1,4"), shape("4,4,16")];
    let found = replay(&mut engine, &texts(&requests, &completions), &shapes);
    for (at, shape) in shapes.iter().enumerate() {
        // Drafts per round of each request: counted, expected, and the difference.
        let all: Vec<[f64; 3]> = found
            .iter()
            .map(|found| {
                let found = &found[at];
                let rounds = found.rounds as f64;
                let counted = found.accepted_drafts() as f64 / rounds;
                let expected = found.expected_drafts.expect("a sampled text") / rounds;
                [counted, expected, counted - expected]
            })
            .collect();
        let mean = |of: usize| all.iter().map(|one| one[of]).sum::<f64>() / REQUESTS as f64;
        let variance =
            |of: usize| all.iter().map(|one| (one[of] - mean(of)).powi(2)).sum::<f64>() / (REQUESTS - 1) as f64;
        let error = (variance(2) / REQUESTS as f64).sqrt();
        assert!(mean(2).abs() < 4.0 * error, "{shape}: {} counted, {} expected, ± {error}", mean(0), mean(1));
        assert!(variance(1) < 0.9 * variance(0), "{shape}: {} counted, {} expected", variance(0), variance(1));
    }
}

#[test]
fn what_cannot_be_replayed_says_why() {
    let mut engine = load("eagle3", |_| {});
    let text = |count: usize, prompt_tokens| ReplayText {
        tokens: vec![5; count],
        prompt_tokens,
        sampling: SamplingParams::default(),
    };
    let off = [TreeShape::OFF, shape("3,1,4")];
    let check = |engine: &mut Engine, text: ReplayText, shapes: &[TreeShape], expected: &str| {
        let error = engine.replay(&[text], shapes, &mut |_| ControlFlow::Continue(())).expect_err("it is refused");
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(&mut engine, text(4, 0), &off, "expected both a prompt and an output");
    check(&mut engine, text(4, 4), &off, "expected both a prompt and an output");
    check(&mut engine, text(300, 4), &off, "the context length is 256");
    check(&mut engine, ReplayText { tokens: vec![5, 1 << 20], ..text(2, 1) }, &off, "token 1048576 is outside");
    check(&mut engine, text(9, 4), &[TreeShape::whole_tree(3, 1, 9)], "with topk 1");
    let request = requests(&engine, &samplings(), 4).remove(0);
    let running = engine.submit(request).expect("it fits");
    check(&mut engine, text(9, 4), &off, "only while no request runs");
    engine.cancel(running);
    engine.step(&mut |_| {}).expect("it ends");
    let mut calls = 0;
    let broken_off = engine.replay(&[text(9, 4)], &off, &mut |_| {
        calls += 1;
        ControlFlow::Break(())
    });
    assert_eq!((broken_off.expect("it can be replayed"), calls), (None, 1));
    // An output of one token came with its prompt, so there is no round.
    let single = replay(&mut engine, &[text(5, 4)], &off);
    assert!(single[0].iter().all(|found| found.rounds == 0 && found.accept_histogram.is_empty()), "{single:?}");

    let mut bare = load("eagle3", |options| options.draft_model_path = None);
    check(&mut bare, text(9, 4), &off, "--speculative-draft-model-path");
}

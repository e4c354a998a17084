//! End-to-end generation on the demo pair: drafts, other requests and the layout of the cache must
//! not change the output.

use std::path::{Path, PathBuf};

use engine::{
    Completion, DeviceChoice, Engine, EngineError, EngineOptions, Event, Request, SamplingParams, ShapePolicy,
    Simulated, StopConditions,
};
use schemas::tree::TreeShape;

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny")
}

fn options(head: &str) -> EngineOptions {
    EngineOptions {
        model_path: models().join("target"),
        draft_model_path: Some(models().join(head)),
        max_running_requests: 16,
        context_length: Some(256),
        device: DeviceChoice::Cpu,
        ..EngineOptions::default()
    }
}

fn load(options: EngineOptions) -> Engine {
    Engine::load(options).expect("the demo pair loads")
}

fn request(input_ids: Vec<u32>, sampling: SamplingParams, new: usize) -> Request {
    let stop = StopConditions { max_new_tokens: Some(new), ignore_eos: true, ..StopConditions::default() };
    Request { input_ids, sampling, stop }
}

fn ids(completions: Vec<Completion>) -> Vec<Vec<u32>> {
    completions.into_iter().map(|completion| completion.output_ids).collect()
}

/// Prompts of different lengths with different parameters.
fn mixed_requests(engine: &Engine) -> Vec<Request> {
    let text = engine.text().expect("the demo model has a tokenizer");
    let prompts =
        ["fn main() {", "def read(self", "The `Option` type", "impl<T> Vec<T> {\n    pub fn push", "import os\n\n"];
    let samplings = [
        SamplingParams::default(),
        SamplingParams { temperature: 0.7, ..SamplingParams::default() },
        SamplingParams { temperature: 1.0, top_p: 0.9, ..SamplingParams::default() },
        SamplingParams { temperature: 1.2, top_k: 20, min_p: 0.05, ..SamplingParams::default() },
    ];
    let mut requests = Vec::new();
    for (at, prompt) in prompts.iter().enumerate() {
        for (seed, sampling) in (at as u64..).zip(&samplings) {
            let sampling = SamplingParams { seed, ..sampling.clone() };
            requests.push(request(text.encode(prompt).expect("it encodes"), sampling, 20 + 3 * at));
        }
    }
    requests
}

#[test]
fn a_run_that_is_stopped_keeps_the_requests_that_have_finished() {
    let mut engine = load(options("eagle3"));
    let ask = |new| request(vec![1, 2, 3], SamplingParams::default(), new);
    let whole = engine.run(vec![ask(2), ask(100)]).expect("they run");
    let mut rounds = 0;
    let mut few = || {
        rounds += 1;
        rounds < 8
    };
    let ended = engine.run_while(vec![ask(2), ask(100)], &mut few).expect("they run");
    assert_eq!(ended[0].as_ref().map(|one| &one.output_ids), Some(&whole[0].output_ids));
    assert!(ended[1].is_none() && engine.is_idle());
    assert_eq!(ids(engine.run(vec![ask(2)]).expect("it runs")), [whole[0].output_ids.clone()]);
}

#[test]
fn output_depends_on_neither_tree_nor_batch_nor_pages_nor_pieces() {
    let mut alone = load(EngineOptions { max_running_requests: 1, ..options("eagle3") });
    let requests = mixed_requests(&alone);
    let expected = ids(alone.run(requests.clone()).expect("they run"));
    assert!(expected[0] != expected[1], "sampling samples");
    for head in ["eagle3", "eagle2"] {
        let mut engine = load(EngineOptions { page_size: 16, chunked_prefill_size: 3, ..options(head) });
        for shape in ["0,1,1", "3,1,4", "4,4,12", "2,8,70"] {
            engine.set_policy(ShapePolicy::fixed(shape.parse().expect("a shape"))).expect("it runs");
            let found = ids(engine.run(requests.clone()).expect("they run"));
            assert_eq!(found, expected, "{head} {shape}");
        }
        let by_batch = ["4,4,12", "3,1,4", "0,1,1"].map(|shape| shape.parse().expect("a shape"));
        let policy = ShapePolicy::table([2, 6, 16].into_iter().zip(by_batch).collect()).expect("not empty");
        engine.set_policy(policy).expect("it runs");
        assert_eq!(ids(engine.run(requests.clone()).expect("they run")), expected, "{head}, tree by batch");
        assert_eq!(engine.statistics().pages_used, 0);
    }
}

#[test]
fn what_is_read_from_the_cache_is_what_would_have_been_read_anew() {
    // Prompts in waves, so that later ones find pages of earlier ones: an instruction that all
    // share, questions, and the turns that follow the answers. The cache is too small for all of
    // them, so pages are also evicted.
    fn turns(engine: &mut Engine) -> Vec<Completion> {
        let encode = |text: &str| engine.text().expect("a tokenizer").encode(text).expect("it encodes");
        let instruction = encode("// A library of small functions, each with its test and a line that says why.\n");
        let questions = ["fn main() {", "def read(self", "impl<T> Vec<T> {"].map(encode);
        let samplings = [0.0, 0.9].map(|temperature| SamplingParams { temperature, ..SamplingParams::default() });
        let mut histories = questions.clone().map(|question| [instruction.clone(), question].concat());
        let mut all = Vec::new();
        for (turn, question) in questions.iter().enumerate() {
            let requests = histories.iter().flat_map(|prompt| {
                let sampling = |one: &SamplingParams| SamplingParams { seed: turn as u64, ..one.clone() };
                samplings.iter().map(move |one| request(prompt.clone(), sampling(one), 12))
            });
            let completions = engine.run(requests.collect()).expect("they run");
            for (history, answers) in histories.iter_mut().zip(completions.chunks(samplings.len())) {
                history.extend(&answers[turn % answers.len()].output_ids);
                history.extend(question);
            }
            all.extend(completions);
        }
        all
    }
    /// The output, and the accepted drafts, which depend on the draft's rows.
    fn said(completions: &[Completion]) -> Vec<(Vec<u32>, Vec<u64>)> {
        completions.iter().map(|one| (one.output_ids.clone(), one.accept_histogram.clone())).collect()
    }
    for (head, shape, page_size) in
        [("eagle3", "0,1,1", 1), ("eagle3", "3,1,4", 16), ("eagle3", "4,4,12", 1), ("eagle2", "3,2,6", 5)]
    {
        let anew = EngineOptions {
            policy: ShapePolicy::fixed(shape.parse().expect("a shape")),
            max_running_requests: 2,
            context_length: Some(112),
            page_size,
            disable_radix_cache: true,
            ..options(head)
        };
        let mut engine = load(EngineOptions { disable_radix_cache: false, ..anew.clone() });
        let expected = turns(&mut load(anew));
        assert!(expected.iter().all(|one| one.cached_tokens == 0), "nothing is kept");
        let found = turns(&mut engine);
        assert!(said(&found) == said(&expected), "{head} {shape}, pages of {page_size}");
        let statistics = engine.statistics();
        assert_eq!(statistics.cached_tokens, found.iter().map(|one| one.cached_tokens as u64).sum::<u64>());
        assert_eq!(statistics.pages_used, 0);
        let (cached, all) = (statistics.cached_tokens, statistics.prompt_tokens);
        assert!(cached > all / 4, "{head} {shape}: {cached} of {all}");
    }
}

#[test]
fn a_token_map_changes_what_is_drafted_and_nothing_that_comes_out() {
    let mut whole = load(EngineOptions { policy: ShapePolicy::fixed(TreeShape::chain(3)), ..options("eagle2") });
    let requests = mixed_requests(&whole);
    let expected = ids(whole.run(requests.clone()).expect("they run"));
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let map = folder.path().join("freq.json");
    let vocabulary = whole.capacity().vocab_size as u32;
    // Half of the tokens, in another order.
    let tokens: Vec<u32> = (0..vocabulary).rev().step_by(2).collect();
    std::fs::write(&map, serde_json::to_string(&tokens).expect("a list")).expect("writable");
    let hot = EngineOptions { token_map: Some(map), ..whole.options().clone() };
    let mut engine = load(hot.clone());
    assert_eq!(ids(engine.run(requests).expect("they run")), expected);
    let accepted = |engine: &Engine| engine.statistics().accepted_drafts();
    assert!(accepted(&engine) > 0 && accepted(&engine) < accepted(&whole));

    let eagle3 = EngineOptions { draft_model_path: options("eagle3").draft_model_path, ..hot };
    let error = Engine::load(eagle3).err().expect("an EAGLE-3 head has its own map").to_string();
    assert!(error.contains("--speculative-token-map") && error.contains("d2t"), "{error}");
}

#[test]
fn simulated_acceptance_has_the_length_that_is_requested() {
    for (shape, expected) in [("4,1,5", 2.5), ("3,4,8", 3.0), ("3,1,4", 9.0), ("0,1,1", 3.0)] {
        let shape: TreeShape = shape.parse().expect("a shape");
        let mut engine = load(EngineOptions {
            simulated: Some(Simulated::Length(expected)),
            policy: ShapePolicy::fixed(shape),
            ..options("eagle3")
        });
        let requests =
            (0..8).map(|seed| request(vec![9, 8, 7], SamplingParams { seed, ..SamplingParams::default() }, 121));
        let completions = engine.run(requests.collect()).expect("they run");
        let rounds: usize = completions.iter().map(|completion| completion.rounds).sum();
        let mean = 8.0 * 120.0 / rounds as f64;
        // No round yields more tokens than the tree allows.
        let expected = f64::from(expected).min(shape.max_tokens_per_round() as f64);
        assert!((mean - expected).abs() < 0.08 * expected, "{shape}: {mean} for {expected}");
    }
}

#[test]
fn sampled_speculative_output_has_the_distribution_that_the_target_reports() {
    const LENGTH: usize = 3;
    const OUTPUTS: u64 = 3000;
    let sampling = SamplingParams { temperature: 0.9, top_k: 3, ..SamplingParams::default() };
    let mut engine = load(options("eagle3"));
    let prompt = engine.text().expect("a tokenizer").encode("let mut").expect("it encodes");

    // The target's own distribution: log-probabilities after each prefix, filtered here by the
    // definition.
    let mut expected: Vec<(Vec<u32>, f64)> = vec![(Vec::new(), 1.0)];
    for _ in 0..LENGTH {
        let requests = expected.iter().map(|(prefix, _)| {
            let sampling = SamplingParams { logprobs: Some(sampling.top_k), ..SamplingParams::default() };
            request([prompt.as_slice(), prefix].concat(), sampling, 1)
        });
        let best = best_tokens(&mut engine, requests.collect());
        expected = expected
            .into_iter()
            .zip(best)
            .flat_map(|((prefix, probability), best)| {
                let weight = |logprob: f32| (f64::from(logprob) / f64::from(sampling.temperature)).exp();
                let total: f64 = best.iter().map(|(_, logprob)| weight(*logprob)).sum();
                let extend = |(token, logprob): &(u32, f32)| {
                    ([prefix.as_slice(), &[*token]].concat(), probability * weight(*logprob) / total)
                };
                best.iter().map(extend).collect::<Vec<_>>()
            })
            .collect();
    }
    assert_eq!(expected.len(), sampling.top_k.pow(LENGTH as u32));

    engine.set_policy(ShapePolicy::fixed(TreeShape::new(3, 2, 6).expect("a shape"))).expect("it runs");
    let requests =
        (0..OUTPUTS).map(|seed| request(prompt.clone(), SamplingParams { seed, ..sampling.clone() }, LENGTH));
    let outputs = ids(engine.run(requests.collect()).expect("they run"));
    assert!(engine.statistics().accepted_drafts() > OUTPUTS / 4, "drafts are accepted");

    let (mut cells, mut statistic, mut rare) = (0, 0.0, (0.0, 0.0));
    for (output, probability) in &expected {
        let count = outputs.iter().filter(|found| *found == output).count() as f64;
        let expected = probability * OUTPUTS as f64;
        if expected < 8.0 {
            rare = (rare.0 + expected, rare.1 + count);
        } else {
            cells += 1;
            statistic += (count - expected).powi(2) / expected;
        }
    }
    let known = outputs.iter().filter(|output| expected.iter().any(|(known, _)| known == *output)).count();
    assert_eq!(known, outputs.len(), "a token came that the filter removes");
    assert!(cells >= 8, "{cells} outputs are frequent enough to be compared");
    // With 26 degrees of freedom, the probability of 60 is one in six thousand; with fewer cells it
    // is lower.
    assert!(statistic < 60.0, "chi-square {statistic} over {cells} cells");
    assert!((rare.1 - rare.0).abs() < 4.0 * rare.0.sqrt().max(2.0), "{} rare outputs for {}", rare.1, rare.0);
}

/// The best tokens after each request's prompt, with their log-probabilities.
fn best_tokens(engine: &mut Engine, requests: Vec<Request>) -> Vec<Vec<(u32, f32)>> {
    let ids: Vec<_> = requests.into_iter().map(|request| engine.submit(request).expect("it fits")).collect();
    let mut best = vec![Vec::new(); ids.len()];
    while !engine.is_idle() {
        let mut take = |event| {
            if let Event::Tokens { request, tokens, .. } = event
                && let Some(at) = ids.iter().position(|id| *id == request)
            {
                let logprobs = tokens[0].logprobs.as_ref().expect("they were asked for");
                assert_eq!(logprobs.top[0], (tokens[0].id, logprobs.logprob), "greedy takes the best");
                best[at] = logprobs.top.clone();
            }
        };
        engine.step(&mut take).expect("it runs");
    }
    best
}

#[test]
fn what_cannot_be_loaded_or_run_says_why() {
    fn check(change: impl FnOnce(&mut EngineOptions), expected: &[&str]) {
        let mut options = options("eagle3");
        change(&mut options);
        let error = match Engine::load(options) {
            Ok(_) => panic!("it loads, expected {expected:?}"),
            Err(error) => error.to_string(),
        };
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }
    check(|options| options.model_path = "/nowhere".into(), &["/nowhere"]);
    check(|options| options.draft_model_path = Some(models()), &["config.json"]);
    check(|options| options.device = DeviceChoice::Cuda(99), &["cuda:99", "--device cpu"]);
    check(|options| options.context_length = Some(1 << 20), &["1048576", "2048"]);
    check(|options| options.dtype = "int3".into(), &["--dtype int3"]);
    check(|options| options.page_size = 0, &["--page-size"]);
    check(|options| options.mem_fraction_static = f64::NAN, &["--mem-fraction-static"]);
    check(
        |options| {
            options.draft_model_path = None;
            options.policy = ShapePolicy::fixed(TreeShape::chain(2));
        },
        &["--speculative-draft-model-path"],
    );

    let mut engine = load(options("eagle3"));
    let error = engine.submit(request(vec![5; 300], SamplingParams::default(), 8)).expect_err("it is too long");
    let text = error.to_string();
    assert!(matches!(error, EngineError::InvalidRequest(_)) && text.contains("300") && text.contains("256"), "{text}");
}

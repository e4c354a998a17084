//! Everything that works with EAGLE heads works with each source of drafts: penalties, biases,
//! grammars, log-probabilities, prompts in chunks, prefix hits and cancellation, together in one
//! batch.

mod played;

use std::time::Duration;

use schemas::tree::TreeShape;

use super::Engine;
use crate::{
    Completion, DeviceChoice, EngineOptions, Event, FinishReason, Request, RequestId, ShapePolicy,
    backend::ProducedToken,
    selftest::{
        adjusted,
        models::{Pair, RandomModels},
    },
    spec::{Occurrence, PromptLookup, SuffixRule, TextSpec, TrieRule},
};

const RULES: [TextSpec; 3] = [
    TextSpec::PromptLookup(PromptLookup { min: 1, max: 3, occurrence: Occurrence::LatestFilled }),
    TextSpec::Suffix(SuffixRule::DEFAULT),
    TextSpec::Trie(TrieRule::DEFAULT),
];

fn options(models: &RandomModels, pair: Pair, device: DeviceChoice) -> EngineOptions {
    EngineOptions {
        model_path: models.target(pair),
        dtype: "float32".into(),
        device,
        batch_invariant: true,
        max_running_requests: 4,
        context_length: Some(100),
        page_size: 4,
        chunked_prefill_size: 12,
        // A batch of three is padded.
        capture_sizes: vec![1, 2, 4],
        ..EngineOptions::default()
    }
}

fn with_head(models: &RandomModels, pair: Pair) -> (EngineOptions, TreeShape) {
    let algorithm = Some(pair.algorithm().to_owned());
    let options =
        EngineOptions { draft_model_path: models.draft(pair), algorithm, ..options(models, pair, DeviceChoice::Cpu) };
    (options, TreeShape::new(3, 2, 6).expect("a shape"))
}

fn with_texts(models: &RandomModels, rule: TextSpec, device: DeviceChoice) -> (EngineOptions, TreeShape) {
    let algorithm = Some(rule.algorithm().to_owned());
    let options = EngineOptions { text_rule: Some(rule), algorithm, ..options(models, Pair::Eagle3, device) };
    (options, rule.default_shape())
}

/// What a request has produced.
type Output = (Vec<ProducedToken>, Completion);

/// Runs requests together, and cancels some of them after five steps.
fn run(engine: &mut Engine, requests: &[Request], cancelled: &[usize]) -> Vec<Output> {
    let ids: Vec<RequestId> = requests.iter().map(|request| engine.submit(request.clone()).expect("it fits")).collect();
    let mut outputs: Vec<(Vec<ProducedToken>, Option<Completion>)> = vec![(Vec::new(), None); ids.len()];
    let place = |id: RequestId| ids.iter().position(|known| *known == id).expect("a request of ours");
    for step in 0.. {
        if step == 5 {
            cancelled.iter().for_each(|at| engine.cancel(ids[*at]));
        }
        if engine.is_idle() {
            break;
        }
        let take = &mut |event| match event {
            Event::Tokens { request, tokens, .. } => outputs[place(request)].0.extend(tokens),
            Event::Finished { request, completion } => outputs[place(request)].1 = Some(*completion),
        };
        engine.step(take).expect("a step");
    }
    outputs.into_iter().map(|(tokens, completion)| (tokens, completion.expect("it ends"))).collect()
}

fn tokens(output: &Output) -> (&[ProducedToken], &FinishReason) {
    (&output.0, &output.1.finish_reason)
}

/// Rounds of a shape give what plain decoding gives, whatever the requests want. Returns the number
/// of accepted drafts.
fn check(options: EngineOptions, shape: TreeShape) -> u64 {
    let name = options.algorithm.clone().unwrap_or_default();
    let mut engine = Engine::load(EngineOptions { policy: ShapePolicy::fixed(shape), ..options }).expect("it loads");
    let requests = adjusted::requests(14);
    engine.set_policy(ShapePolicy::fixed(TreeShape::OFF)).expect("no request runs");
    let plain = run(&mut engine, &requests, &[]);
    engine.set_policy(ShapePolicy::fixed(shape)).expect("no request runs");
    let before = engine.statistics().accepted_drafts();
    for is_cached in [false, true] {
        let found = run(&mut engine, &requests, &[]);
        for (at, (found, plain)) in found.iter().zip(&plain).enumerate() {
            assert_eq!(tokens(found), tokens(plain), "{name}, request {at}, prefixes are cached: {is_cached}");
        }
        let hits = found.iter().map(|(_, completion)| completion.cached_tokens).sum::<usize>();
        assert_eq!(hits > 0, is_cached, "{name}");
    }
    let accepted = engine.statistics().accepted_drafts() - before;
    let found = run(&mut engine, &requests, &[0, 2]);
    for (at, (found, plain)) in found.iter().zip(&plain).enumerate() {
        match [0, 2].contains(&at) {
            true => assert!(plain.0.starts_with(&found.0), "{name}, cancelled request {at}"),
            false => assert_eq!(tokens(found), tokens(plain), "{name}, beside cancelled requests, request {at}"),
        }
    }
    assert!(found.iter().any(|(_, one)| one.finish_reason == FinishReason::Cancelled), "{name}");
    assert_eq!(engine.statistics().pages_used, 0, "{name}");
    accepted
}

#[test]
fn every_source_works_with_all_that_requests_may_want() {
    let models = RandomModels::write_seeded(21).expect("a folder");
    for pair in [Pair::Eagle3, Pair::Dflash, Pair::Dspark, Pair::Standalone] {
        let (options, shape) = with_head(&models, pair);
        assert!(check(options, shape) > 0, "{pair}");
    }
    // Random drafts of some of these are never right.
    let of_several_kinds = [Pair::GptOss, Pair::Qwen35, Pair::Qwen35Eagle3, Pair::Qwen35Dspark, Pair::Qwen35MoeDflash];
    let accepted = of_several_kinds.map(|pair| {
        let (options, shape) = with_head(&models, pair);
        check(options, shape)
    });
    assert!(accepted.iter().filter(|accepted| **accepted > 0).count() >= 2, "{accepted:?}");
    for rule in RULES {
        let (options, shape) = with_texts(&models, rule, DeviceChoice::Cpu);
        assert!(check(options, shape) > 0, "{}", rule.algorithm());
    }
}

#[test]
fn a_gpu_verifies_drafts_from_texts_as_the_cpu_does() {
    let models = RandomModels::write_seeded(22).expect("a folder");
    let requests = adjusted::requests(10);
    let by_host = RULES.map(|rule| (rule, None));
    for (at, (rule, device_look_ups)) in [(RULES[0], Some(true))].into_iter().chain(by_host).enumerate() {
        let [cpu, gpu] = [DeviceChoice::Cpu, DeviceChoice::Emulator].map(|device| {
            let (options, shape) = with_texts(&models, rule, device);
            let policy = ShapePolicy::fixed(shape);
            // Once with graphs.
            let disable_cuda_graph = at > 0;
            let options = EngineOptions { policy, disable_cuda_graph, device_look_ups, ..options };
            let mut engine = Engine::load(options).expect("it loads");
            // A GPU that looks drafts up by itself waits for nothing.
            let waits = device == DeviceChoice::Cpu || device_look_ups.is_none();
            let found = [run(&mut engine, &requests, &[]), run(&mut engine, &requests, &[])].concat();
            assert_eq!(engine.statistics().stall_time > Duration::ZERO, waits);
            found
                .into_iter()
                .map(|(_, one)| {
                    (one.output_ids, one.finish_reason, one.accept_histogram, one.proposed_drafts, one.cached_tokens)
                })
                .collect::<Vec<_>>()
        });
        assert_eq!(cpu, gpu, "{}", rule.algorithm());
        assert!(cpu.iter().any(|(_, _, _, proposed, _)| *proposed > 0), "{}", rule.algorithm());
    }
}

/// Rounds wait for look-ups only where they speculate.
#[test]
fn a_table_looks_drafts_up_where_it_speculates() {
    let models = RandomModels::write_seeded(22).expect("a folder");
    let requests = adjusted::requests(6);
    for rule in RULES {
        for device in [DeviceChoice::Cpu, DeviceChoice::Emulator] {
            let (options, shape) = with_texts(&models, rule, device);
            let mut engine = Engine::load(EngineOptions { policy: ShapePolicy::fixed(TreeShape::OFF), ..options })
                .expect("it loads");
            let plain = run(&mut engine, &requests, &[]);
            assert_eq!(engine.statistics().stall_time, Duration::ZERO, "{}", rule.algorithm());
            let table = ShapePolicy::table(vec![(3, shape), (6, TreeShape::OFF)]).expect("two rows");
            engine.set_policy(table).expect("no request runs");
            let found = run(&mut engine, &requests, &[]);
            for (found, plain) in found.iter().zip(&plain) {
                assert_eq!(tokens(found), tokens(plain), "{}", rule.algorithm());
            }
            assert!(engine.statistics().stall_time > Duration::ZERO, "{}", rule.algorithm());
            let shapes = found.iter().filter(|(_, one)| one.proposed_drafts > 0).count();
            assert!((1..=requests.len()).contains(&shapes), "{shapes} requests had drafts");
        }
    }
}

#[test]
fn a_gpu_joins_look_ups_with_the_trees_of_a_head_as_the_cpu_does() {
    let models = RandomModels::write_seeded(22).expect("a folder");
    let requests = adjusted::requests(10);
    let lookup = PromptLookup { min: 1, max: 3, ..PromptLookup::SECOND };
    for rule in [TextSpec::PromptLookup(lookup), TextSpec::Suffix(SuffixRule::DEFAULT)] {
        let [cpu, gpu] = [DeviceChoice::Cpu, DeviceChoice::Emulator].map(|device| {
            let (options, shape) = with_head(&models, Pair::Eagle3);
            let (policy, second_source) = (ShapePolicy::fixed(shape), Some(rule));
            let mut engine =
                Engine::load(EngineOptions { policy, second_source, device, ..options }).expect("it loads");
            let found = run(&mut engine, &requests, &[]);
            // A GPU looks up the own tokens of a request by itself, and waits for nothing.
            let waits = device == DeviceChoice::Cpu || rule != TextSpec::PromptLookup(lookup);
            assert_eq!(engine.statistics().stall_time > Duration::ZERO, waits);
            let of = |(_, one): (_, Completion)| (one.output_ids, one.finish_reason, one.accept_histogram);
            found.into_iter().map(of).collect::<Vec<_>>()
        });
        assert_eq!(cpu, gpu, "{}", rule.algorithm());
    }
}

#[test]
fn a_gpu_refuses_trees_that_it_has_no_room_for() {
    let models = RandomModels::write_seeded(22).expect("a folder");
    let (options, _) = with_texts(&models, RULES[1], DeviceChoice::Emulator);
    let policy = ShapePolicy::fixed(TreeShape::chain(200));
    let error = Engine::load(EngineOptions { policy, ..options }).err().expect("too long a chain").to_string();
    assert!(error.contains("at most"), "{error}");
}

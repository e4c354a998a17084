//! Look-ups joined with the trees of a head: the output stays the target's, a replay accepts what
//! rounds do, and repeated text is accepted that the head does not know.

use std::ops::ControlFlow;

use crate::{
    DeviceChoice, Engine, Event, ReplayText, Request, ShapePolicy,
    options::EngineOptions,
    request::{Completion, SamplingParams, StopConditions},
    selftest::models::{Pair, RandomModels},
    spec::{PromptLookup, SuffixRule, TextSpec, TrieRule},
};

use super::*;

/// The rules, each with the number of requests that run together: what suffixes find depends on
/// the requests before, and a replay takes these one after the other.
const RULES: [(TextSpec, usize); 2] =
    [(TextSpec::PromptLookup(PromptLookup::SECOND), 4), (TextSpec::Suffix(SuffixRule::DEFAULT), 1)];

const PAIRS: [Pair; 4] = [Pair::Eagle3, Pair::Dflash, Pair::Dspark, Pair::Standalone];

fn options(models: &RandomModels, pair: Pair, shape: TreeShape) -> EngineOptions {
    EngineOptions {
        model_path: models.target(pair),
        draft_model_path: models.draft(pair),
        algorithm: Some(pair.algorithm().into()),
        dtype: "float32".into(),
        device: DeviceChoice::Cpu,
        max_running_requests: 4,
        context_length: Some(120),
        page_size: 4,
        chunked_prefill_size: 7,
        policy: ShapePolicy::fixed(shape),
        ..EngineOptions::default()
    }
}

/// Prompts that repeat themselves, so that look-ups find something from the start.
fn requests(sampling: &SamplingParams) -> Vec<Request> {
    let request = |at: u32| Request {
        input_ids: (0..21 + at).map(|token| (token % (5 + at)) * 3 % 20 + 2).collect(),
        sampling: SamplingParams { seed: u64::from(at), ..sampling.clone() },
        stop: StopConditions { max_new_tokens: Some(60), ignore_eos: true, ..StopConditions::default() },
    };
    (0..3).map(request).collect()
}

fn run(options: EngineOptions, requests: &[Request]) -> (Engine, Vec<Completion>) {
    let mut engine = Engine::load(options).expect("it loads");
    requests.iter().for_each(|request| assert!(engine.submit(request.clone()).is_ok()));
    let mut found = Vec::new();
    while !engine.is_idle() {
        let take = &mut |event| {
            if let Event::Finished { request, completion } = event {
                found.push((request.0, completion));
            }
        };
        engine.step(take).expect("a step");
    }
    found.sort_by_key(|(request, _)| *request);
    (engine, found.into_iter().map(|(_, completion)| *completion).collect())
}

fn accepted(completions: &[Completion]) -> u64 {
    let of = |one: &Completion| {
        (0..).zip(&one.accept_histogram).map(|(drafts, rounds): (u64, _)| drafts * rounds).sum::<u64>()
    };
    completions.iter().map(of).sum()
}

#[test]
fn outputs_are_the_targets_and_replay_equals_rounds_with_a_second_source() {
    let models = RandomModels::write_seeded(41).expect("a folder");
    let hot = SamplingParams { temperature: 0.7, top_k: 8, ..SamplingParams::default() };
    for sampling in [SamplingParams { temperature: 0.0, ..SamplingParams::default() }, hot] {
        let requests = requests(&sampling);
        for pair in PAIRS {
            let tree: TreeShape = "4,3,10".parse().expect("a shape");
            let plain = run(options(&models, pair, TreeShape::OFF), &requests).1;
            for shape in [TreeShape::chain(4), tree] {
                let alone = run(options(&models, pair, shape), &requests).1;
                for (rule, together) in RULES {
                    let joined = EngineOptions {
                        second_source: Some(rule),
                        max_running_requests: together,
                        ..options(&models, pair, shape)
                    };
                    check_joined(joined, &requests, [&plain, &alone], shape);
                }
            }
        }
    }
}

/// Checks rounds with a second source against those without speculation and those of the head
/// alone, and against their replay.
#[track_caller]
fn check_joined(options: EngineOptions, requests: &[Request], [plain, alone]: [&[Completion]; 2], shape: TreeShape) {
    let what = format!("{:?} and {:?}, {shape}", options.algorithm, options.second_source);
    let (mut engine, both) = run(options, requests);
    for ((plain, alone), both) in plain.iter().zip(alone).zip(&both) {
        assert_eq!(both.output_ids, plain.output_ids, "{what}");
        assert_eq!(alone.output_ids, plain.output_ids, "{what}");
    }
    let texts: Vec<ReplayText> =
        requests.iter().zip(&both).map(|(request, one)| ReplayText::new(request, one)).collect();
    // The smaller shape shares its expansions with a larger one.
    let shapes = [shape, if shape.topk == 3 { "4,3,30".parse().expect("a shape") } else { shape }];
    let replayed = engine.replay(&texts, &shapes, &mut |_| ControlFlow::Continue(())).expect("a replay");
    for ((request, replayed), both) in requests.iter().zip(replayed.expect("not cancelled")).zip(&both) {
        assert_eq!(replayed[0].accept_histogram, both.accept_histogram, "{what}");
        assert_eq!(replayed[0].expected_drafts.is_some(), request.sampling.temperature > 0.0);
    }
    if requests.iter().all(|request| request.sampling.temperature == 0.0) {
        let (with, without) = (accepted(&both), accepted(alone));
        assert!(with >= without, "{what}: {with} with look-ups, {without} without");
    }
}

#[test]
fn a_second_source_is_refused_where_nothing_joins_it() {
    let models = RandomModels::write_seeded(42).expect("a folder");
    let refusal = |options: EngineOptions, rule: TextSpec| {
        let options = EngineOptions { second_source: Some(rule), ..options };
        Engine::load(options).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let options = options(&models, Pair::Eagle3, TreeShape::chain(2));
    let alone = EngineOptions { draft_model_path: None, algorithm: Some("PROMPT_LOOKUP".into()), ..options.clone() };
    for (rule, _) in RULES {
        let found = refusal(alone.clone(), rule);
        assert!(found.contains("joins look-ups with the trees of a head"), "{found}");
        assert_eq!(refusal(options.clone(), rule), "");
    }
    let found = refusal(options, TextSpec::Trie(TrieRule::DEFAULT));
    assert!(found.contains("use PROMPT_LOOKUP or SUFFIX"), "{found}");
}

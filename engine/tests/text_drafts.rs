//! Drafts from texts against an independent program, on the tiny pair: the rounds of every request
//! equal the reference's, in a replay without a model and in rounds, and the output does not depend
//! on them.
//!
//! A part of the reference ships with the repository. For all of it, set `SPECTUNE_TEXTS` to a
//! folder of `{ngram,edit_set}_PAIR.json`, `SPECTUNE_MODELS` to one of `PAIR/target` and
//! `SPECTUNE_REFERENCE` to one of `PAIR.json`, and run with `--ignored`. `SPECTUNE_PAIR` checks a
//! single pair, and `SPECTUNE_CASE` runs the rounds of cases whose name contains it.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use engine::{
    Completion, DeviceChoice, Engine, EngineOptions, KnownText, Request, SamplingParams, ShapePolicy, StopConditions,
    TextAcceptance, TextHistory, replay_texts,
    spec::{Occurrence, PromptLookup, SuffixRule, TextSpec, TrieMatch, TrieRule},
};
use schemas::tree::TreeShape;
use serde::Deserialize;

/// Results of the independent program on some texts.
#[derive(Deserialize)]
struct Set {
    new_tokens: Vec<usize>,
    ngram: BTreeMap<String, Expected>,
    sglang_ngram: BTreeMap<String, Expected>,
    suffix: BTreeMap<String, Expected>,
}

#[derive(Deserialize)]
struct Expected {
    drafts_per_round: f64,
    rounds: Vec<usize>,
}

#[derive(Deserialize)]
struct Reference {
    prompts: Vec<Prompt>,
}

#[derive(Clone, Deserialize)]
struct Prompt {
    input_ids: Vec<u32>,
    #[serde(alias = "output_ids_float32")]
    output_ids: Vec<u32>,
}

/// A rule with what the reference expects of it.
struct Case<'a> {
    name: &'a str,
    rule: TextSpec,
    shape: TreeShape,
    history: TextHistory,
    expected: &'a Expected,
}

impl Set {
    fn cases(&self) -> Vec<Case<'_>> {
        let of = |results: &'static str| match results {
            "ngram" => &self.ngram,
            "sglang_ngram" => &self.sglang_ngram,
            _ => &self.suffix,
        };
        let mut cases = Vec::new();
        for kind in ["ngram", "sglang_ngram", "suffix"] {
            for (name, expected) in of(kind) {
                let (rule, shape, history) = match kind {
                    "ngram" => prompt_lookup(name),
                    "sglang_ngram" => trie(name),
                    _ => suffix(name),
                };
                cases.push(Case { name, rule, shape, history, expected });
            }
        }
        assert!(!cases.is_empty());
        cases
    }
}

/// Reads a name such as `min=5 max=5 K=3 last fill`.
fn prompt_lookup(name: &str) -> (TextSpec, TreeShape, TextHistory) {
    let words: Vec<&str> = name.split(' ').collect();
    let number = |at: usize| words[at].split_once('=').and_then(|(_, number)| number.parse().ok()).expect("a number");
    let occurrence = match words[3..] {
        ["first"] => Occurrence::Earliest,
        ["last"] => Occurrence::Latest,
        ["last", "fill"] => Occurrence::LatestFilled,
        _ => panic!("{name}"),
    };
    let rule = PromptLookup { min: number(0), max: number(1), occurrence };
    (TextSpec::PromptLookup(rule), TreeShape::chain(number(2)), TextHistory::Cold)
}

/// Reads a name such as `BFS shared trie, in order`.
fn trie(name: &str) -> (TextSpec, TreeShape, TextHistory) {
    let matching = if name.starts_with("BFS") { TrieMatch::Bfs } else { TrieMatch::Prob };
    let rule = TextSpec::Trie(TrieRule { matching, ..TrieRule::DEFAULT });
    let history = if name.ends_with("per request") { TextHistory::OwnRequest } else { TextHistory::Cold };
    (rule, rule.default_shape(), history)
}

fn suffix(name: &str) -> (TextSpec, TreeShape, TextHistory) {
    let rule = TextSpec::Suffix(SuffixRule::DEFAULT);
    let history = match name {
        "this request only" => TextHistory::OwnRequest,
        "with outputs of earlier requests, in order" => TextHistory::Cold,
        "the same, second pass" => TextHistory::Warm,
        _ => panic!("{name}"),
    };
    (rule, rule.default_shape(), history)
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/reference")
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> T {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn texts<'a>(prompts: &'a [Prompt], new: &[usize]) -> Vec<KnownText<'a>> {
    let text = |(prompt, new): (&'a Prompt, &usize)| {
        let (output, after) = prompt.output_ids.split_at(*new);
        KnownText { prompt: &prompt.input_ids, output, after }
    };
    prompts.iter().zip(new).map(text).collect()
}

/// Replays all cases; texts beyond the last one of the set are ignored.
fn check_replay(set: &Set, prompts: &[Prompt]) {
    let texts = texts(prompts, &set.new_tokens);
    for Case { name, rule, shape, history, expected } in set.cases() {
        let found = replay_texts(rule, shape, &texts, history).expect("a replay");
        let rounds: Vec<usize> = found.iter().map(|one| one.acceptance.rounds).collect();
        assert_eq!(rounds, expected.rounds, "{name}");
        let drafts: u64 = found.iter().map(|one| one.acceptance.proposed_drafts).sum();
        let each = drafts as f64 / rounds.iter().sum::<usize>() as f64;
        assert!((each - expected.drafts_per_round).abs() < 6e-4, "{name}: {each} drafts a round");
        found.iter().for_each(joint_histogram_is_consistent);
    }
}

fn joint_histogram_is_consistent(found: &TextAcceptance) {
    let TextAcceptance { acceptance, rounds } = found;
    assert_eq!(rounds.values().sum::<u64>(), acceptance.rounds as u64);
    let drafts: u64 = rounds.iter().map(|((rows, _), count)| (*rows as u64 - 1) * count).sum();
    assert_eq!(drafts, acceptance.proposed_drafts);
    let accepted: u64 = rounds.iter().map(|((_, accepted), count)| *accepted as u64 * count).sum();
    assert_eq!(accepted, acceptance.accepted_drafts());
    assert!(rounds.keys().all(|(rows, accepted)| accepted < rows));
}

/// An engine without a draft model.
fn engine(target: &Path, rule: TextSpec, shape: TreeShape, batch: usize) -> Engine {
    Engine::load(EngineOptions {
        model_path: target.to_owned(),
        algorithm: Some(rule.algorithm().to_owned()),
        text_rule: Some(rule),
        policy: ShapePolicy::fixed(shape),
        device: DeviceChoice::Cpu,
        max_running_requests: batch,
        ..EngineOptions::default()
    })
    .expect("an engine without a draft model")
}

/// Runs the requests of a case one after the other on a fresh engine.
fn check_rounds(target: &Path, prompts: &[Prompt], new: &[usize], case: &Case<'_>) {
    let Case { name, rule, shape, .. } = case;
    let mut engine = engine(target, *rule, *shape, 1);
    let request = |prompt: &Prompt, new: usize| Request {
        input_ids: prompt.input_ids.clone(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_new_tokens: Some(new), ignore_eos: true, ..StopConditions::default() },
    };
    let mut rounds = Vec::new();
    for (prompt, new) in prompts.iter().zip(new) {
        let Completion { output_ids, rounds: count, .. } =
            engine.run(vec![request(prompt, *new)]).expect("a run").remove(0);
        assert_eq!(output_ids, prompt.output_ids[..*new], "{name}: the output without speculation");
        rounds.push(count);
    }
    assert_eq!(rounds, case.expected.rounds[..prompts.len()], "{name}");
}

/// The cases of which rounds of one pass in order can be run.
fn runs(case: &Case<'_>) -> bool {
    case.history == TextHistory::Cold
}

#[test]
fn replays_of_tiny_agree_with_the_reference() {
    let sets: BTreeMap<String, Set> = read(&data().join("texts.json"));
    let Reference { prompts } = read(&data().join("tiny.json"));
    check_replay(&sets["prompts"], &prompts);
    let edits: Vec<Prompt> = read(&data().join("edits.json"));
    check_replay(&sets["edits"], &edits);
}

#[test]
fn rounds_of_tiny_agree_with_the_reference() {
    let sets: BTreeMap<String, Set> = read(&data().join("texts.json"));
    let Reference { prompts } = read(&data().join("tiny.json"));
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny/target");
    let set = &sets["prompts"];
    let cases = set.cases();
    // One of each kind; the others differ in the look-up alone, which replays compare.
    let named = |name: &str| cases.iter().find(|case| case.name == name).expect("a case of the reference");
    for name in ["min=3 max=5 K=5 last fill", "BFS shared trie, in order", "with outputs of earlier requests, in order"]
    {
        check_rounds(&target, &prompts[..20], &set.new_tokens, named(name));
    }
}

#[test]
fn output_of_a_batch_is_the_one_without_speculation_and_a_flush_forgets_all_texts() {
    let Reference { prompts } = read(&data().join("tiny.json"));
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny/target");
    let request = |(seed, prompt): (u64, &Prompt)| Request {
        input_ids: prompt.input_ids.clone(),
        // Every second request is sampled.
        sampling: SamplingParams { temperature: 0.8 * (seed % 2) as f32, seed, ..SamplingParams::default() },
        stop: StopConditions { max_new_tokens: Some(40), ignore_eos: true, ..StopConditions::default() },
    };
    let requests = || (0..).zip(&prompts[..6]).map(request).collect::<Vec<_>>();
    let outputs = |completions: &[Completion]| completions.iter().map(|one| one.output_ids.clone()).collect::<Vec<_>>();
    let rounds = |completions: &[Completion]| completions.iter().map(|one| one.rounds).sum::<usize>();
    for rule in [TextSpec::Suffix(SuffixRule::DEFAULT), TextSpec::Trie(TrieRule::DEFAULT)] {
        let mut engine = engine(&target, rule, rule.default_shape(), 4);
        let cold = engine.run(requests()).expect("a run");
        let statistics = engine.statistics();
        assert!(statistics.drafted_rounds > 0 && statistics.drafted_rounds < statistics.request_rounds);
        assert_eq!(statistics.proposed_drafts, cold.iter().map(|one| one.proposed_drafts).sum::<u64>());
        let warm = engine.run(requests()).expect("a run");
        engine.flush_cache().expect("no request runs");
        let again = engine.run(requests()).expect("a run");
        assert_eq!(rounds(&cold), rounds(&again), "{rule:?}");
        assert!(rounds(&warm) < rounds(&cold), "{rule:?}");
        engine.set_policy(ShapePolicy::fixed(TreeShape::OFF)).expect("no request runs");
        let plain = engine.run(requests()).expect("a run");
        assert_eq!(rounds(&plain), 6 * 39);
        for speculated in [&cold, &warm, &again] {
            assert_eq!(outputs(speculated), outputs(&plain), "{rule:?}");
        }
    }
}

#[test]
fn replayed_rounds_are_those_of_requests_one_after_the_other() {
    let Reference { prompts } = read(&data().join("tiny.json"));
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny/target");
    let requests: Vec<Request> = (prompts[..5].iter())
        .map(|prompt| Request {
            input_ids: prompt.input_ids.clone(),
            sampling: SamplingParams::default(),
            stop: StopConditions { max_new_tokens: Some(48), ignore_eos: true, ..StopConditions::default() },
        })
        .collect();
    let rule = TextSpec::Trie(TrieRule::DEFAULT);
    let shapes = [rule.default_shape(), rule.shape_with_rows(30, 4)];
    let mut engine = engine(&target, rule, shapes[0], 1);
    let completions = engine.run(requests.clone()).expect("a run");
    let texts: Vec<_> =
        requests.iter().zip(&completions).map(|(request, one)| engine::ReplayText::new(request, one)).collect();
    let replayed = engine.replay(&texts, &shapes, &mut |_| ControlFlow::Continue(())).expect("a replay").expect("all");
    for (at, shape) in shapes.into_iter().enumerate() {
        engine.set_policy(ShapePolicy::fixed(shape)).expect("no request runs");
        let completions = engine.run(requests.clone()).expect("a run");
        for (replayed, ran) in replayed.iter().zip(&completions) {
            let replayed = &replayed[at];
            assert_eq!(
                (replayed.rounds, replayed.proposed_drafts, &replayed.accept_histogram),
                (ran.rounds, ran.proposed_drafts, &ran.accept_histogram),
                "{shape}"
            );
        }
    }
}

#[test]
#[ignore = "needs SPECTUNE_TEXTS, SPECTUNE_MODELS and SPECTUNE_REFERENCE"]
fn pairs_agree_with_their_references() {
    let folder = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set")));
    let (texts, models, references) =
        (folder("SPECTUNE_TEXTS"), folder("SPECTUNE_MODELS"), folder("SPECTUNE_REFERENCE"));
    let wanted = std::env::var("SPECTUNE_PAIR").ok();
    for pair in ["tiny", "small"].into_iter().filter(|pair| wanted.as_deref().is_none_or(|wanted| wanted == *pair)) {
        let sets: BTreeMap<String, Set> = read(&texts.join(format!("ngram_{pair}.json")));
        let Reference { prompts } = read(&references.join(format!("{pair}.json")));
        check_replay(&sets["prompts"], &prompts);
        check_replay(&sets["edits"], &read::<Vec<Prompt>>(&texts.join(format!("edit_set_{pair}.json"))));
        let set = &sets["prompts"];
        let part = std::env::var("SPECTUNE_CASE").unwrap_or_default();
        for case in set.cases().iter().filter(|case| runs(case) && case.name.contains(&part)) {
            println!("{pair}: {}", case.name);
            check_rounds(&models.join(pair).join("target"), &prompts, &set.new_tokens, case);
        }
    }
}

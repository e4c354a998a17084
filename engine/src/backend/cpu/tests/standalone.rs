//! Whole models that draft: a target that drafts for itself is always right, what is kept of a text
//! does not depend on how it came in, and models with other tokens are refused.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use super::*;
use crate::{
    DeviceChoice, Engine, Event, Request, ShapePolicy,
    description::describe,
    options::EngineOptions,
    request::{SamplingParams, StopConditions},
    selftest::models::{Pair, RandomModels},
    spec::DraftSpec,
};

fn options(target: PathBuf, draft: PathBuf) -> EngineOptions {
    EngineOptions {
        model_path: target,
        draft_model_path: Some(draft),
        algorithm: Some("STANDALONE".into()),
        dtype: "float32".into(),
        batch_invariant: true,
        max_running_requests: 4,
        context_length: Some(120),
        page_size: 4,
        chunked_prefill_size: 7,
        capture_sizes: vec![1, 2, 4],
        ..EngineOptions::default()
    }
}

fn requests(sampling: &SamplingParams) -> Vec<Request> {
    let request = |at: u32| Request {
        // The second and third have a prefix of the first.
        input_ids: (0..17 + at)
            .map(|token| (token * token * 7 + 3) % 20 + 2 + u32::from(token > 13) * at % 2)
            .collect(),
        sampling: SamplingParams { seed: u64::from(at), ..sampling.clone() },
        stop: StopConditions { max_new_tokens: Some(41), ignore_eos: true, ..StopConditions::default() },
    };
    (0..3).map(request).collect()
}

/// Numbers of accepted drafts in all rounds but a request's last, and outputs.
fn run(engine: &mut Engine, requests: &[Request]) -> (Vec<Vec<u64>>, Vec<Vec<u32>>) {
    requests.iter().for_each(|request| assert!(engine.submit(request.clone()).is_ok()));
    let mut found = Vec::new();
    while !engine.is_idle() {
        let take = &mut |event| {
            if let Event::Finished { request, completion } = event {
                found.push((request, completion));
            }
        };
        engine.step(take).expect("a step");
    }
    found.sort_by_key(|(request, _)| request.0);
    found.into_iter().map(|(_, one)| (one.accept_histogram.clone(), one.output_ids)).unzip()
}

#[test]
fn a_target_that_drafts_for_itself_is_always_right() {
    let models = RandomModels::write_seeded(31).expect("a folder");
    for device in [DeviceChoice::Cpu, DeviceChoice::Emulator] {
        for pair in [Pair::Eagle3, Pair::Qwen3Moe] {
            let same = options(models.target(pair), models.target(pair));
            let shape = TreeShape::chain(4);
            let policy = ShapePolicy::fixed(shape);
            let mut engine = Engine::load(EngineOptions { policy, device, ..same }).expect("it loads");
            let requests = requests(&SamplingParams { temperature: 0.0, ..SamplingParams::default() });
            // Prompts in pieces, then with reused prefixes.
            let (histograms, first) = run(&mut engine, &requests);
            let (again, second) = run(&mut engine, &requests);
            assert_eq!(first, second, "{pair}");
            for histogram in histograms.iter().chain(&again) {
                // The first token comes with the prompt; the other forty are eight rounds of five.
                assert_eq!(histogram, &vec![0, 0, 0, 0, 8], "{pair} on {device:?}");
            }
            // Rounds without speculation leave tokens that the draft reads before it goes on.
            engine.set_policy(ShapePolicy::fixed(TreeShape::OFF)).expect("no request runs");
            assert_eq!(run(&mut engine, &requests).1, first, "{pair}");
        }
    }
}

#[test]
fn trees_of_a_model_next_to_its_target_contain_the_chain_and_accept_no_less() {
    let models = RandomModels::write_seeded(32).expect("a folder");
    let pair = Pair::Standalone;
    let draft = models.draft(pair).expect("a folder");
    let hot = SamplingParams { temperature: 0.9, top_k: 12, ..SamplingParams::default() };
    for sampling in [SamplingParams { temperature: 0.0, ..SamplingParams::default() }, hot] {
        let of_shape = |shape: TreeShape| {
            let policy = ShapePolicy::fixed(shape);
            let options =
                EngineOptions { policy, device: DeviceChoice::Cpu, ..options(models.target(pair), draft.clone()) };
            let mut engine = Engine::load(options).expect("it loads");
            let (histograms, outputs) = run(&mut engine, &requests(&sampling));
            let accepted = |counts: &Vec<u64>| {
                counts.iter().enumerate().map(|(drafts, rounds)| drafts as u64 * rounds).sum::<u64>()
            };
            (outputs, histograms.iter().map(accepted).sum::<u64>())
        };
        let (plain, _) = of_shape(TreeShape::OFF);
        let (chain, few) = of_shape(TreeShape::chain(3));
        let (tree, many) = of_shape(TreeShape::new(3, 3, 16).expect("a shape"));
        assert!(plain == chain && plain == tree, "outputs do not depend on drafts");
        assert!(many > few && few > 0, "{many} drafts of trees and {few} of chains");
    }
}

#[test]
fn a_model_has_kept_the_same_however_its_text_came_in() {
    let models = RandomModels::write_seeded(33).expect("a folder");
    let pair = Pair::Standalone;
    let options = options(models.target(pair), models.draft(pair).expect("a folder"));
    let described = describe(&options).expect("a pair");
    let (draft, own) = described.draft.expect("a draft");
    assert!(matches!(draft, DraftSpec::Model(_)) && draft.algorithm() == "STANDALONE");
    let own = own.expect("its tensors");
    let mut backend =
        load::load((described.spec, &described.weights), Some((draft, &own)), &options, 120).expect("it loads");
    let (slot, shape) = (Slot(0), TreeShape::new(4, 2, 9).expect("a shape"));
    backend.prepare(&[shape, TreeShape::OFF], &[], &mut |_, _| {}).expect("the shape runs");
    let pages: Vec<PageId> = (0..backend.capacity().pages as u32).map(PageId).collect();
    let prompt: Vec<u32> = (0..29).map(|at| (at * at * 7 + 3) % 20 + 2).collect();
    let mut read_text = |text: &[u32], chunk: usize, shapes: &[TreeShape]| {
        backend.open(slot, &SamplingParams::default(), &pages, 0).expect("a free slot");
        let (mut text, mut last) = (text.to_vec(), None);
        for (piece, tokens) in text.chunks(chunk).enumerate() {
            let start = piece * chunk;
            let chunk = PrefillChunk { slot, tokens, start, next: text.get(start + tokens.len()).copied() };
            let first = backend.prefill_collecting(&[chunk]).expect("a prompt");
            last = first[0].as_ref().map(|_| first_token(&first[0]));
        }
        for shape in shapes {
            let ticket = backend.launch(Round { shape: *shape, slots: &[slot] }).expect("a round");
            let tokens = backend.collect(ticket).expect("its output").yields.swap_remove(0).tokens;
            text.extend(last);
            text.extend(tokens.iter().map(|token| token.id));
            last = text.pop();
        }
        let state = backend.slots.get(slot).expect("an open slot");
        // The root too: it is processed before the next round.
        let rows = || state.rows[..=state.length].iter();
        let found: Vec<f32> =
            backend.draft_caches.iter().flat_map(|cache| rows().flat_map(|row| cache.row(*row))).collect();
        let drafted = state.drafted.clone();
        backend.close(slot);
        (text, found, drafted)
    };
    let (_, whole, state) = read_text(&prompt, 128, &[]);
    for chunk in [1, 4, 28] {
        let (_, found, drafted) = read_text(&prompt, chunk, &[]);
        assert!(found == whole && drafted == state, "chunks of {chunk}");
    }
    for rounds in [vec![shape; 1], vec![shape; 6], [TreeShape::OFF, TreeShape::OFF, shape].repeat(3)] {
        let (text, found, drafted) = read_text(&prompt, 128, &rounds);
        let (_, expected, after) = read_text(&text, 128, &[]);
        assert!(found == expected && drafted == after, "{} rounds", rounds.len());
    }
}

/// The error of a target with a draft whose files are changed first.
fn refused(change: impl Fn(&std::path::Path, &std::path::Path), algorithm: Option<&str>) -> String {
    let models = RandomModels::write_seeded(34).expect("a folder");
    let (target, draft) = (models.target(Pair::Standalone), models.draft(Pair::Standalone).expect("a folder"));
    change(&target, &draft);
    let options = EngineOptions { algorithm: algorithm.map(str::to_owned), ..options(target, draft) };
    describe(&options).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn models_that_number_tokens_differently_are_refused() {
    let tokenizer = |tokens: [&str; 3]| {
        let vocab: serde_json::Map<String, Value> =
            tokens.iter().enumerate().map(|(at, token)| ((*token).to_owned(), json!(at))).collect();
        json!({"version": "1.0", "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "a"}}).to_string()
    };
    let write =
        |folder: &std::path::Path, text: &str| fs::write(folder.join("tokenizer.json"), text).expect("our file");
    let found = refused(
        |target, draft| {
            write(target, &tokenizer(["a", "b", "c"]));
            write(draft, &tokenizer(["a", "c", "b"]));
        },
        Some("STANDALONE"),
    );
    assert!(found.contains("\"b\" is token 2 of it and token 1 of the target"), "{found}");
    let same = refused(
        |target, draft| [target, draft].into_iter().for_each(|folder| write(folder, &tokenizer(["a", "b", "c"]))),
        Some("STANDALONE"),
    );
    assert_eq!(same, "");
    let models = RandomModels::write_seeded(35).expect("a folder");
    let larger = root().join("models/tiny/target");
    let other = describe(&options(models.target(Pair::Eagle3), larger));
    let found = other.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(found.contains("tokens and its target 24"), "{found}");
    let linear = describe(&options(models.target(Pair::Eagle3), models.target(Pair::Qwen35)));
    let found = linear.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(found.contains("linear attention"), "{found}");
}

#[test]
fn a_model_is_named_by_its_algorithm() {
    let found = refused(|_, _| {}, Some("EAGLE3"));
    assert!(found.contains("use --speculative-algorithm STANDALONE"), "{found}");
    assert_eq!(refused(|_, _| {}, None), "", "tensors decide");
    let models = RandomModels::write_seeded(36).expect("a folder");
    let head = options(models.target(Pair::Eagle3), models.draft(Pair::Eagle3).expect("a folder"));
    let found = describe(&head).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(found.contains("use --speculative-algorithm EAGLE3"), "{found}");
    // A target with an MTP layer drafts as a whole model if that is what was asked for.
    let whole = options(models.target(Pair::DeepSeek), models.target(Pair::DeepSeek));
    let (spec, _) = describe(&whole).expect("a pair").draft.expect("a draft");
    assert!(matches!(spec, DraftSpec::Model(_)), "{}", spec.algorithm());
}

//! Compares rounds and outputs with two independent programs, on the trained pairs: for every tree
//! shape and both heads, the rounds of each request equal those of an unbatched float32 replay,
//! outputs do not depend on speculation, and the accept length is close to SGLang's (bfloat16, on a
//! GPU).
//!
//! The tiny pair ships with the repository. For the small one, set `SPECTUNE_MODELS` to a folder
//! that contains `small/{target,eagle3,eagle2}` and `SPECTUNE_REFERENCE` to the folder of
//! `small.json`. For trained checkpoints of other families, set `SPECTUNE_FAMILIES` to a folder of
//! `NAME/{target,reference.json}`, with `NAME/eagle3` if the family drafts with a head instead of
//! its own MTP layer. For DFLASH and DSPARK heads, set `SPECTUNE_BLOCKS` to a folder of
//! `PAIR/HEAD/{config.json, model.safetensors, reference.json}`, `SPECTUNE_MODELS` to one of
//! `PAIR/target`, and `SPECTUNE_REFERENCE` to one of `PAIR.json`; `SPECTUNE_BLOCK=PAIR/HEAD` checks
//! a single head. These tests run only with `--ignored`. `SPECTUNE_DEVICE=cuda:0` runs them on a
//! GPU, in float32 and batch-invariant mode. With `SPECTUNE_DTYPE=bfloat16` they run in that type
//! and in the default mode, where text may deviate from the reference at near ties, and accept
//! lengths must be within 5% of the float32 replay's (deviations of more than 3% from that or from
//! SGLang's are printed). `SPECTUNE_TP=2` sets the number of GPUs that share the target, starting
//! with that one.
//!
//! Run by the crate `engine`: `cargo test -p engine --test reference`.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use engine::{
    Completion, DeviceChoice, Engine, EngineOptions, ReplayText, Request, SamplingParams, ShapePolicy, StopConditions,
};
use schemas::tree::TreeShape;
use serde::Deserialize;

/// Two logits closer than this may swap their order between two float32 programs that sum in
/// different orders.
const NEAR_TIE: f64 = 2e-3;
/// The same with 8 or 11 significant bits in activations: logits of about 20 are exact to a few
/// tenths.
const NEAR_TIE_OF_HALVES: f64 = 0.5;
/// Maximum number of requests whose rounds may differ because of near ties in the draft's choice of
/// branches; the reference does not contain these gaps.
const ROUNDS_MAY_DIFFER: usize = 2;

#[derive(Deserialize)]
struct Reference {
    max_new_tokens: usize,
    prompts: Vec<Prompt>,
    eagle3: BTreeMap<String, Shape>,
    eagle2: BTreeMap<String, Shape>,
    /// Whether the target has MoE layers.
    #[serde(default)]
    has_experts: bool,
}

/// The reference of a family with a single kind of draft.
#[derive(Deserialize)]
struct FamilyReference {
    max_new_tokens: usize,
    prompts: Vec<Prompt>,
    shapes: BTreeMap<String, Shape>,
}

/// A draft: a separate folder, or the target's MTP layer.
struct Draft {
    folder: Option<&'static str>,
    algorithm: &'static str,
}

const EAGLE3: Draft = Draft { folder: Some("eagle3"), algorithm: "EAGLE3" };
const EAGLE2: Draft = Draft { folder: Some("eagle2"), algorithm: "EAGLE" };
const MTP: Draft = Draft { folder: None, algorithm: "NEXTN" };

#[derive(Deserialize)]
struct Prompt {
    input_ids: Vec<u32>,
    output_ids_float32: Vec<u32>,
    top2_gap_float32: Vec<f64>,
}

#[derive(Deserialize)]
struct Shape {
    float32: Float32,
    sglang: Option<Sglang>,
}

#[derive(Deserialize)]
struct Float32 {
    accept_length: f64,
    rounds: Vec<usize>,
    accepted_drafts_histogram: Vec<u64>,
}

#[derive(Deserialize)]
struct Sglang {
    accept_length: f64,
}

#[test]
fn tiny_agrees_with_the_references() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    check_pair(&root.join("models/tiny"), &root.join("tests/data/reference/tiny.json"));
}

#[test]
#[ignore = "needs SPECTUNE_MODELS and SPECTUNE_REFERENCE, the folders of the small pair and of small.json"]
fn small_agrees_with_the_references() {
    let folder = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set")));
    check_pair(&folder("SPECTUNE_MODELS").join("small"), &folder("SPECTUNE_REFERENCE").join("small.json"));
}

#[test]
#[ignore = "needs SPECTUNE_FAMILIES, a folder of trained checkpoints (models/families/README.md)"]
fn families_agree_with_their_references() {
    let folder = PathBuf::from(std::env::var_os("SPECTUNE_FAMILIES").expect("SPECTUNE_FAMILIES is set"));
    let wanted = std::env::var("SPECTUNE_FAMILY").ok();
    let mut found = Vec::new();
    let entries = std::fs::read_dir(&folder).expect("the folder of families");
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.expect("an entry").file_name().into_string().ok()).collect();
    names.sort();
    for name in names {
        let models = folder.join(&name);
        if !models.join("reference.json").exists() || wanted.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        println!("{name}");
        let text = std::fs::read_to_string(models.join("reference.json")).expect("the reference file");
        let FamilyReference { max_new_tokens, prompts, shapes } = serde_json::from_str(&text).expect("a reference");
        let config = std::fs::read_to_string(models.join("target/config.json")).expect("the target's config.json");
        let has_experts =
            ["\"num_experts\"", "\"n_routed_experts\"", "\"num_local_experts\""].iter().any(|key| config.contains(key));
        let reference =
            Reference { max_new_tokens, prompts, eagle3: BTreeMap::new(), eagle2: BTreeMap::new(), has_experts };
        let draft = if models.join("eagle3").exists() { EAGLE3 } else { MTP };
        check(&models, &reference, &[(draft, &shapes)]);
        found.push(name);
    }
    assert!(!found.is_empty(), "no family in {}", folder.display());
    println!("checked: {}", found.join(", "));
}

/// The reference of a block head. Keys of chains are numbers of drafts; trees are
/// `own nodes=N topk=K`, N with the root.
#[derive(Deserialize)]
struct BlockReference {
    new_tokens: usize,
    block_size: usize,
    drafts: usize,
    chain: BlockChains,
    trees: BTreeMap<String, Float32>,
    probe: BlockProbe,
}

/// The first round of the first prompt.
#[derive(Deserialize)]
struct BlockProbe {
    /// The confidence head's probability of each draft; empty without such a head.
    confidence: Vec<f64>,
}

#[derive(Deserialize)]
struct BlockChains {
    prefix_of_full_block: BTreeMap<usize, Float32>,
    block_of_its_own: BTreeMap<usize, Float32>,
}

#[test]
#[ignore = "needs SPECTUNE_BLOCKS, SPECTUNE_MODELS and SPECTUNE_REFERENCE: see the top of this file"]
fn block_heads_agree_with_their_references() {
    let folder = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set")));
    let wanted = std::env::var("SPECTUNE_BLOCK").ok();
    let children = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        found.sort();
        found
    };
    let mut checked = 0;
    for head in children(&folder("SPECTUNE_BLOCKS")).iter().flat_map(|pair| children(pair)) {
        let (pair, name) = (head.parent().and_then(Path::file_name), head.file_name());
        let pair = pair.expect("a pair's folder").to_string_lossy();
        let name = format!("{pair}/{}", name.expect("a head's folder").to_string_lossy());
        if !head.join("reference.json").exists() || wanted.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        let prompts = folder("SPECTUNE_REFERENCE").join(format!("{pair}.json"));
        let prompts = std::fs::read_to_string(prompts).expect("the pair's reference");
        let reference: Reference = serde_json::from_str(&prompts).expect("a reference");
        check_block_head(&name, &folder("SPECTUNE_MODELS").join(&*pair).join("target"), &head, reference);
        checked += 1;
    }
    assert!(checked > 0, "no block head was found");
}

fn check_block_head(name: &str, target: &Path, head: &Path, mut reference: Reference) {
    let text = std::fs::read_to_string(head.join("reference.json")).expect("the head's reference");
    let expected: BlockReference = serde_json::from_str(&text).expect("a reference of a block head");
    reference.max_new_tokens = expected.new_tokens;
    reference.prompts.iter_mut().for_each(|prompt| prompt.output_ids_float32.truncate(expected.new_tokens));
    let reference = &reference;
    let engine = |draft_block_size| {
        let options = EngineOptions { draft_block_size, ..options(target.to_owned(), Some(head.to_owned())) };
        Engine::load(options).expect("the models load")
    };
    let mut of_the_shape = engine(None);
    let without = run(&mut of_the_shape, reference, TreeShape::OFF);
    check_greedy(reference, &without);
    println!("{name}\ndrafted    shape     accept  float32  requests with equal rounds");
    let check = |engine: &mut Engine, what: &str, shape: TreeShape, float32: Float32| {
        let completions = run(engine, reference, shape);
        if halves().is_some() {
            check_greedy(reference, &completions);
            let expected = Shape { float32, sglang: None };
            return check_accept_length(&format!("{name} {what}"), &shape.to_string(), &expected, &completions);
        }
        assert_eq!(ids(&completions), ids(&without), "{name} {what}: output differs from plain decoding");
        // Only rounds are compared: the reference also counts the drafts that a last round accepts
        // past the end.
        let rounds: Vec<usize> = completions.iter().map(|completion| completion.rounds).collect();
        let equal = rounds.iter().zip(&float32.rounds).filter(|(found, expected)| found == expected).count();
        let (found, expected) = (accept_length(&completions), float32.accept_length);
        println!("{what:<10} {shape:<8} {found:>7.4} {expected:>8.4}  {equal} of {}", rounds.len());
        let may_differ = if device() == DeviceChoice::Cpu { 0 } else { ROUNDS_MAY_DIFFER };
        assert!(
            equal + may_differ >= rounds.len(),
            "{name} {what} {shape}: rounds {rounds:?}, not {:?}",
            float32.rounds
        );
    };
    for (drafts, float32) in expected.chain.block_of_its_own {
        check(&mut of_the_shape, "own block", TreeShape::chain(drafts), float32);
    }
    for (tree, float32) in expected.trees {
        // The other kinds of trees correct a row less exactly; this engine does not draft them.
        let Some(numbers) = tree.strip_prefix("own nodes=") else { continue };
        let (nodes, topk) = numbers.split_once(" topk=").expect("two numbers");
        let (nodes, topk): (usize, usize) = (nodes.parse().expect("nodes"), topk.parse().expect("topk"));
        let shape = TreeShape::whole_tree(expected.drafts.min(nodes - 1), topk, nodes);
        check(&mut of_the_shape, "tree", shape, float32);
    }
    let mut of_the_head = engine(Some(expected.block_size));
    if device() == DeviceChoice::Cpu {
        check_confidences(&mut of_the_head, reference, expected.drafts, &expected.probe.confidence);
    }
    for (drafts, float32) in expected.chain.prefix_of_full_block {
        check(&mut of_the_head, "prefix", TreeShape::chain(drafts), float32);
    }
}

/// Compares the confidences of the first round of the first prompt.
fn check_confidences(engine: &mut Engine, reference: &Reference, drafts: usize, expected: &[f64]) {
    let prompt = &reference.prompts[0];
    let text = ReplayText {
        tokens: [prompt.input_ids.as_slice(), &prompt.output_ids_float32].concat(),
        prompt_tokens: prompt.input_ids.len(),
        sampling: SamplingParams::default(),
    };
    let traces = engine.trace_positions(&[text], &[TreeShape::chain(drafts)], &mut |_| ControlFlow::Continue(()));
    let traces = traces.expect("a trace");
    let found = &traces[0].texts[0].positions[0].confidence;
    let near = |(found, expected): (&f32, &f64)| (1.0 / (1.0 + (-f64::from(*found)).exp()) - expected).abs() < 1e-4;
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(near), "{found:?}, not {expected:?}");
    println!("confidences of the first round: {} agree", found.len());
}

/// The dtype, unless it is float32.
fn halves() -> Option<String> {
    std::env::var("SPECTUNE_DTYPE").ok().filter(|dtype| dtype != "float32")
}

fn check_pair(models: &Path, reference: &Path) {
    let text = std::fs::read_to_string(reference).expect("the reference file");
    let reference: Reference = serde_json::from_str(&text).expect("a reference");
    check(models, &reference, &[(EAGLE3, &reference.eagle3), (EAGLE2, &reference.eagle2)]);
}

fn check(models: &Path, reference: &Reference, drafts: &[(Draft, &BTreeMap<String, Shape>)]) {
    let mut plain: Option<Vec<Completion>> = None;
    println!("draft  shape     accept  float32  SGLang  rounds that differ");
    for (draft, shapes) in drafts {
        let head = draft.algorithm;
        let mut engine = load(models, draft);
        let without = run(&mut engine, reference, TreeShape::OFF);
        check_greedy(reference, &without);
        let unchanged = plain.as_ref().is_none_or(|plain| ids(plain) == ids(&without));
        assert!(unchanged, "the head changes plain decoding");
        for (shape, expected) in *shapes {
            let completions = run(&mut engine, reference, shape.parse().expect("a shape"));
            if halves().is_some() {
                check_greedy(reference, &completions);
                check_accept_length(head, shape, expected, &completions);
                continue;
            }
            assert_eq!(ids(&completions), ids(&without), "{head} {shape}: output differs from plain decoding");
            check_rounds(reference, head, shape, expected, &completions);
        }
        plain = Some(without);
    }
}

fn device() -> DeviceChoice {
    std::env::var("SPECTUNE_DEVICE").map_or(DeviceChoice::Cpu, |name| name.parse().expect("a device"))
}

fn load(models: &Path, draft: &Draft) -> Engine {
    let folder = draft.folder.map(|folder| models.join(folder));
    let options = EngineOptions { algorithm: Some(draft.algorithm.into()), ..options(models.join("target"), folder) };
    Engine::load(options).expect("the models load")
}

fn options(model_path: PathBuf, draft_model_path: Option<PathBuf>) -> EngineOptions {
    EngineOptions {
        model_path,
        draft_model_path,
        max_running_requests: 20,
        page_size: 16,
        context_length: Some(512),
        device: device(),
        dtype: halves().unwrap_or_else(|| "float32".into()),
        batch_invariant: halves().is_none(),
        tp_size: std::env::var("SPECTUNE_TP").map_or(1, |size| size.parse().expect("a number of GPUs")),
        ..EngineOptions::default()
    }
}

fn run(engine: &mut Engine, reference: &Reference, shape: TreeShape) -> Vec<Completion> {
    engine.set_policy(ShapePolicy::fixed(shape)).expect("the shape runs");
    let request = |prompt: &Prompt| Request {
        input_ids: prompt.input_ids.clone(),
        sampling: SamplingParams::default(),
        stop: StopConditions {
            max_new_tokens: Some(reference.max_new_tokens),
            ignore_eos: true,
            ..StopConditions::default()
        },
    };
    engine.run(reference.prompts.iter().map(request).collect()).expect("the requests run")
}

fn ids(completions: &[Completion]) -> Vec<&[u32]> {
    completions.iter().map(|completion| completion.output_ids.as_slice()).collect()
}

/// Plain decoding agrees with transformers in float32, or deviates at a near tie. In 16 bits, a
/// router with nearly equal scores sends rows to other experts, as in transformers; then a third of
/// the texts may deviate elsewhere.
fn check_greedy(reference: &Reference, completions: &[Completion]) {
    assert_eq!(completions.len(), reference.prompts.len());
    let mut elsewhere = 0;
    for (at, (prompt, completion)) in reference.prompts.iter().zip(completions).enumerate() {
        assert_eq!(completion.output_ids.len(), prompt.output_ids_float32.len(), "prompt {at}: tokens");
        let differs = prompt.output_ids_float32.iter().zip(&completion.output_ids).position(|(a, b)| a != b);
        if let Some(place) = differs {
            let gap = prompt.top2_gap_float32[place];
            println!("prompt {at} leaves the float32 reference at token {place}: its two best logits are {gap} apart");
            let near = if halves().is_some() { NEAR_TIE_OF_HALVES } else { NEAR_TIE };
            elsewhere += usize::from(gap > near);
        }
    }
    let most = if halves().is_some() && reference.has_experts { reference.prompts.len() / 3 } else { 0 };
    assert!(elsewhere <= most, "{elsewhere} texts leave the reference where there is no near tie, {most} may");
}

fn accept_length(completions: &[Completion]) -> f64 {
    let tokens: usize = completions.iter().map(|completion| completion.output_ids.len()).sum();
    tokens as f64 / completions.iter().map(|completion| completion.rounds).sum::<usize>() as f64
}

fn check_accept_length(head: &str, shape: &str, expected: &Shape, completions: &[Completion]) {
    let found = accept_length(completions);
    let others = [Some(expected.float32.accept_length), expected.sglang.as_ref().map(|sglang| sglang.accept_length)];
    println!("{head} {shape:<8} {found:>7.4} {others:?}");
    for other in others.into_iter().flatten() {
        let off = (found / other - 1.0).abs();
        if off > 0.03 {
            println!("{head} {shape}: {:.1}% off {other}", 100.0 * off);
        }
    }
    assert!((found / expected.float32.accept_length - 1.0).abs() < 0.05, "{head} {shape}: accept length {found}");
}

fn check_rounds(reference: &Reference, head: &str, shape: &str, expected: &Shape, completions: &[Completion]) {
    // Rounds can be compared only if the texts are the same.
    let same = |at: usize| reference.prompts[at].output_ids_float32 == completions[at].output_ids;
    let rounds: Vec<usize> = completions.iter().map(|completion| completion.rounds).collect();
    let differing: Vec<usize> =
        (0..rounds.len()).filter(|at| same(*at) && rounds[*at] != expected.float32.rounds[*at]).collect();
    let accept_length = accept_length(completions);
    let sglang = expected.sglang.as_ref().map(|sglang| sglang.accept_length);
    println!(
        "{head} {shape:<8} {accept_length:>7.4} {:>8.4} {:>7} {}",
        expected.float32.accept_length,
        sglang.map_or_else(|| "-".into(), |length| format!("{length:.4}")),
        differing
            .iter()
            .map(|at| format!("[prompt {at}: {} for {}]", rounds[*at], expected.float32.rounds[*at]))
            .collect::<String>()
    );
    assert!(differing.len() <= ROUNDS_MAY_DIFFER, "{head} {shape}: rounds differ for prompts {differing:?}");
    let off = |other: f64| (accept_length / other - 1.0).abs();
    assert!(off(expected.float32.accept_length) < 0.01, "{head} {shape}: accept length {accept_length}");
    assert!(sglang.is_none_or(|length| off(length) < 0.05), "{head} {shape}: accept length {accept_length}");
    if differing.is_empty() && (0..rounds.len()).all(same) {
        let mut histogram = vec![0; expected.float32.accepted_drafts_histogram.len()];
        for completion in completions {
            for (drafts, count) in completion.accept_histogram.iter().enumerate() {
                histogram[drafts] += count;
            }
        }
        assert_eq!(histogram, expected.float32.accepted_drafts_histogram, "{head} {shape}: accepted drafts per round");
    }
}

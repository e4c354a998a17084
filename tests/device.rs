//! Guarantees of a GPU on trained checkpoints in batch-invariant mode: the output is bit-identical
//! regardless of the tree, the batch and how rounds are launched, and under a random load.
//!
//! Set `SPECTUNE_DEVICE` (such as `cuda:0`), `SPECTUNE_MODELS` to a folder of pairs (`tiny`,
//! `small`, each with `target`, `eagle3`, `eagle2`) and `SPECTUNE_REFERENCE` to the folder of their
//! prompts (`tiny.json`, `small.json`). Without them the random load runs on the CPU, on the pair
//! that ships with the repository. With `SPECTUNE_FAMILIES` (a folder of
//! `NAME/{target,reference.json}`, with `NAME/eagle3` if the family drafts with a head instead of
//! its own MTP layer) these checkpoints are run too. `SPECTUNE_SECONDS` makes the load longer.
//! `SPECTUNE_TP` sets the number of GPUs that share the target, starting with that one.
//!
//! Run by the crate `engine`: `cargo test -p engine --test device`.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use engine::{
    Completion, DeviceChoice, Engine, EngineOptions, Event, FinishReason, Request, RequestId, SamplingParams,
    ShapePolicy, StopConditions,
};
use schemas::tree::TreeShape;
use serde::Deserialize;

const SHAPES: [&str; 11] =
    ["1,1,2", "3,1,4", "5,1,6", "3,4,8", "5,4,8", "5,4,16", "7,4,32", "5,8,32", "8,10,60", "6,8,64", "4,12,128"];
const BATCHES: [usize; 5] = [1, 3, 8, 17, 40];

#[derive(Deserialize)]
struct Reference {
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    input_ids: Vec<u32>,
}

/// A target with its drafts and prompts.
struct Pair {
    folder: PathBuf,
    heads: Vec<Head>,
    prompts: Vec<Vec<u32>>,
}

/// A draft: a separate folder, or the target's MTP layer.
#[derive(Clone, Copy)]
struct Head {
    folder: Option<&'static str>,
    algorithm: &'static str,
}

const EAGLE3: Head = Head { folder: Some("eagle3"), algorithm: "EAGLE3" };
const EAGLE2: Head = Head { folder: Some("eagle2"), algorithm: "EAGLE" };
const MTP: Head = Head { folder: None, algorithm: "NEXTN" };

impl Pair {
    /// Opens a folder with `target` and heads; `None` without a target or a reference.
    fn open(folder: PathBuf, reference: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(reference).ok()?;
        let reference: Reference = serde_json::from_str(&text).expect("a reference");
        let prompts = reference.prompts.into_iter().map(|prompt| prompt.input_ids).collect();
        let mut heads: Vec<Head> = [EAGLE3, EAGLE2].into_iter().filter(|head| head.is_in(&folder)).collect();
        if heads.is_empty() {
            heads.push(MTP);
        }
        folder.join("target").is_dir().then_some(Self { folder, heads, prompts })
    }

    fn load(&self, head: Head, options: EngineOptions) -> Engine {
        Engine::load(EngineOptions {
            model_path: self.folder.join("target"),
            draft_model_path: head.folder.map(|name| self.folder.join(name)),
            algorithm: Some(head.algorithm.into()),
            batch_invariant: true,
            tp_size: std::env::var("SPECTUNE_TP").map_or(1, |size| size.parse().expect("a number of GPUs")),
            context_length: Some(512),
            page_size: 16,
            ..options
        })
        .expect("the pair loads")
    }

    fn request(&self, at: usize, sampling: SamplingParams, tokens: usize) -> Request {
        Request {
            input_ids: self.prompts[at % self.prompts.len()].clone(),
            sampling,
            stop: StopConditions { max_new_tokens: Some(tokens), ignore_eos: true, ..StopConditions::default() },
        }
    }
}

impl Head {
    fn is_in(self, folder: &Path) -> bool {
        self.folder.is_some_and(|name| folder.join(name).is_dir())
    }
}

/// The requested device, and the pairs that exist.
fn device() -> Option<(DeviceChoice, Vec<Pair>)> {
    let device = std::env::var("SPECTUNE_DEVICE").ok()?.parse().expect("a device");
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut pairs = Vec::new();
    if let (Some(models), Some(references)) = (folder("SPECTUNE_MODELS"), folder("SPECTUNE_REFERENCE")) {
        let open = |name: &str| Pair::open(models.join(name), &references.join(format!("{name}.json")));
        pairs.extend(["tiny", "small"].into_iter().filter_map(open));
    }
    if let Some(families) = folder("SPECTUNE_FAMILIES") {
        let entries = std::fs::read_dir(&families).expect("the folder of families");
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        folders.sort();
        pairs.extend(
            folders.into_iter().filter_map(|folder| Pair::open(folder.clone(), &folder.join("reference.json"))),
        );
    }
    assert!(!pairs.is_empty(), "no pair in SPECTUNE_MODELS (with SPECTUNE_REFERENCE) or SPECTUNE_FAMILIES");
    Some((device, pairs))
}

#[test]
#[ignore = "needs SPECTUNE_DEVICE, a GPU, and folders of trained checkpoints"]
fn output_has_the_same_bits_for_every_tree_batch_and_way_of_launching() {
    let (device, pairs) = device().expect("SPECTUNE_DEVICE is set");
    for pair in &pairs {
        for head in &pair.heads {
            for (dtype, eager) in [("bfloat16", false), ("float16", false), ("bfloat16", true), ("float32", false)] {
                let options = EngineOptions {
                    device,
                    dtype: dtype.into(),
                    max_running_requests: 40,
                    capture_sizes: vec![1, 2, 4, 8, 16, 24, 32, 40],
                    disable_cuda_graph: eager,
                    // Prompts must be prefilled every time: the cache would hide how they are
                    // prefilled.
                    disable_radix_cache: true,
                    ..EngineOptions::default()
                };
                let mut engine = pair.load(*head, options);
                let requests: Vec<Request> =
                    (0..40).map(|at| pair.request(at, SamplingParams::default(), 48)).collect();
                let distinct = requests.len().min(pair.prompts.len());
                let alone: Vec<Completion> = requests[..distinct]
                    .iter()
                    .flat_map(|request| engine.run(vec![request.clone()]).expect("it runs"))
                    .collect();
                let mut compared = 0;
                for shape in SHAPES.into_iter().chain(["0,1,1"]) {
                    let shape: TreeShape =
                        if shape == "0,1,1" { TreeShape::OFF } else { shape.parse().expect("a shape") };
                    engine.set_policy(ShapePolicy::fixed(shape)).expect("the shape runs");
                    for batch in BATCHES {
                        let together = engine.run(requests[..batch].to_vec()).expect("it runs");
                        for (at, completion) in together.iter().enumerate() {
                            let expected = &alone[at % distinct].output_ids;
                            let run = format!("{} {dtype} {shape}, {at} of {batch}", head.algorithm);
                            assert_eq!(&completion.output_ids, expected, "{run}");
                            compared += 1;
                        }
                    }
                }
                let (name, head) = (pair.folder.display(), head.algorithm);
                println!("{name} {head} {dtype}, eager {eager}: {compared} outputs are those of single requests");
            }
        }
    }
}

#[test]
fn a_random_load_leaks_nothing_and_changes_no_output() {
    let seconds = std::env::var("SPECTUNE_SECONDS").ok().and_then(|text| text.parse().ok());
    match device() {
        Some((device, pairs)) => {
            let limit = Limit::Time(Duration::from_secs(seconds.unwrap_or(30) / pairs.len() as u64));
            pairs.iter().for_each(|pair| random_load(pair, device, "bfloat16", limit));
        }
        None => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            let pair =
                Pair::open(root.join("models/tiny"), &root.join("tests/data/reference/tiny.json")).expect("it ships");
            let limit = seconds.map_or(Limit::Requests(40), |seconds| Limit::Time(Duration::from_secs(seconds)));
            random_load(&pair, DeviceChoice::Cpu, "float32", limit);
        }
    }
}

#[derive(Clone, Copy)]
enum Limit {
    Requests(usize),
    Time(Duration),
}

/// A reproducible stream of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound as u64) as usize
    }
}

/// Requests of all kinds arrive in waves and trickles, and some are cancelled; the shape changes
/// from time to time.
fn random_load(pair: &Pair, device: DeviceChoice, dtype: &str, limit: Limit) {
    const LONGEST: usize = 96;
    let slots = if device == DeviceChoice::Cpu { 6 } else { 40 };
    let options = EngineOptions {
        device,
        dtype: dtype.into(),
        max_running_requests: slots,
        capture_sizes: vec![1, 2, 4, 8, 16, 24, 32, 40],
        chunked_prefill_size: 64,
        ..EngineOptions::default()
    };
    let mut engine = pair.load(pair.heads[0], options);
    // The output of each prompt alone, greedy and sampled; a shorter request must get a prefix of
    // it.
    let kinds = [
        SamplingParams::default(),
        SamplingParams { temperature: 0.8, top_p: 0.9, top_k: 40, seed: 3, ..SamplingParams::default() },
    ];
    let prompts = if device == DeviceChoice::Cpu { 4 } else { pair.prompts.len() };
    let mut alone = HashMap::new();
    for at in 0..prompts {
        for (kind, sampling) in kinds.iter().enumerate() {
            let request = pair.request(at, sampling.clone(), LONGEST);
            let completion = engine.run(vec![request]).expect("it runs").remove(0);
            alone.insert((at, kind), completion.output_ids);
        }
    }
    let mut numbers = Numbers(7);
    let begin = Instant::now();
    let mut running: HashMap<RequestId, (usize, usize, usize)> = HashMap::new();
    let (mut submitted, mut finished, mut cancelled, mut compared, mut rounds) = (0, 0, 0, 0, 0_usize);
    let mut wave = 0;
    loop {
        let over = match limit {
            Limit::Requests(count) => submitted >= count,
            Limit::Time(time) => begin.elapsed() >= time,
        };
        if over && engine.is_idle() {
            break;
        }
        if engine.is_idle() {
            // While idle, switch to another shape or to no speculation.
            let at = numbers.below(SHAPES.len() + 1);
            let shape = SHAPES.get(at).map_or(TreeShape::OFF, |shape| shape.parse().expect("a shape"));
            engine.set_policy(ShapePolicy::fixed(shape)).expect("the shape runs");
            wave = 1 + numbers.below(3 * slots);
        }
        if !over && wave > 0 {
            let count = if numbers.below(8) == 0 { numbers.below(slots) } else { usize::from(numbers.below(3) == 0) };
            for _ in 0..count.min(wave) {
                let (at, kind, tokens) = (numbers.below(prompts), numbers.below(2), 1 + numbers.below(LONGEST));
                let request = pair.request(at, kinds[kind].clone(), tokens);
                running.insert(engine.submit(request).expect("it fits"), (at, kind, tokens));
                submitted += 1;
                wave -= 1;
            }
        } else {
            wave = 0;
        }
        if numbers.below(40) == 0
            && let Some(id) = running.keys().min_by_key(|id| id.0).copied()
        {
            engine.cancel(id);
        }
        let mut check = |event| {
            let Event::Finished { request, completion } = event else { return };
            let Some((at, kind, tokens)) = running.remove(&request) else { panic!("{request:?} ended twice") };
            let expected = &alone[&(at, kind)];
            assert!(expected.starts_with(&completion.output_ids), "prompt {at}, kind {kind}, {tokens} tokens");
            if completion.finish_reason == FinishReason::Cancelled {
                cancelled += 1;
            } else {
                assert_eq!(completion.output_ids.len(), tokens, "prompt {at}, kind {kind}");
                finished += 1;
            }
            compared += completion.output_ids.len();
        };
        engine.step(&mut check).expect("the device works");
        rounds += 1;
        assert!(rounds < 100_000_000, "a request is stuck");
    }
    assert!(running.is_empty(), "{} requests are stuck", running.len());
    assert_eq!(engine.statistics().pages_used, 0, "pages are leaked");
    assert_eq!(engine.statistics().window_pages_used, 0, "window pages are leaked");
    println!(
        "{}: {finished} requests, {cancelled} cancelled, {compared} tokens equal to single runs, {rounds} steps, \
         {:.0} s",
        pair.folder.display(),
        begin.elapsed().as_secs_f64()
    );
}

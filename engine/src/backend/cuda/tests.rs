//! The CUDA backend in the emulator: everything but the GPU is real, and in float32 the shipped models must say what the
//! CPU backend says, token by token.

use std::{ops::ControlFlow, path::Path};

use kernels::device::{Device, DeviceError, Element};
use schemas::tree::TreeShape;

use super::{AttentionKernels, CudaBackend, CudaOptions, Models, WeightSource, load};
use crate::{
    Acceptance, Engine, ReplayText,
    backend::{Backend, PageId, PrefillChunk, Round, Slot},
    checkpoint::Folder,
    model::{TargetFacts, head_facts},
    options::{DeviceChoice, EngineOptions, ShapePolicy},
    request::{Request, SamplingParams, StopConditions},
};

/// A machine without a C++ compiler cannot emulate; continuous integration has one.
fn device() -> Option<Device> {
    match Device::emulated() {
        Ok(device) => Some(device),
        Err(error @ DeviceError::Missing { .. }) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn backend(device: &Device, head: &str, options: CudaOptions) -> CudaBackend {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    let folder = Folder::open(&models.join("target")).expect("the shipped target");
    let weights = folder.weights().expect("its tensors");
    let target = TargetFacts::read(&folder, &weights).expect("its facts");
    let head_folder = Folder::open(&models.join(head)).expect("the shipped head");
    let head_weights = head_folder.weights().expect("its tensors");
    let head = head_facts(&head_folder, &head_weights, &target, &EngineOptions::default()).expect("its facts");
    let models = Models {
        target: (target, WeightSource::Checkpoint(&weights)),
        head: Some((head, WeightSource::Checkpoint(&head_weights))),
    };
    load(device.clone(), "emulated".into(), models, options).expect("a backend")
}

fn options(element: Element) -> CudaOptions {
    CudaOptions {
        element,
        slots: 4,
        page_size: 1,
        context_length: 256,
        mem_fraction_static: 0.9,
        prefill_chunk: 64,
        shapes: Vec::new(),
        disable_cuda_graph: false,
        batch_invariant: true,
        attention: None,
        simulate_accept_length: None,
    }
}

const PROMPT: [u32; 24] =
    [0, 45, 300, 12, 77, 500, 9, 33, 210, 5, 611, 40, 8, 90, 15, 700, 31, 2, 64, 128, 256, 19, 44, 7];

/// Greedy tokens of one request, alone in rounds of a shape.
fn generate(backend: &mut CudaBackend, shape: TreeShape, slot: u32, count: usize) -> (Vec<u32>, usize) {
    let pages: Vec<PageId> = (0..200).map(|page| PageId(page + 200 * slot)).collect();
    let slot = Slot(slot);
    backend.open(slot, &SamplingParams::default(), &pages, 0).expect("a free slot");
    let mut tokens = Vec::new();
    for (start, piece) in [(0, &PROMPT[..10]), (10, &PROMPT[10..])] {
        let next = PROMPT.get(start + piece.len()).copied();
        let first = backend.prefill(&[PrefillChunk { slot, tokens: piece, start, next }]).expect("a prompt");
        tokens.extend(first.into_iter().flatten().map(|token| token.id));
    }
    let mut rounds = 0;
    while tokens.len() < count {
        let ticket = backend.launch(Round { shape, slots: &[slot], extend_draft: true }).expect("a round");
        let output = backend.collect(ticket).expect("its tokens");
        tokens.extend(output.yields[0].tokens.iter().map(|token| token.id));
        rounds += 1;
    }
    backend.close(slot);
    tokens.truncate(count);
    (tokens, rounds)
}

fn check(options: CudaOptions, head: &str, shapes: &[(usize, usize, usize)]) {
    let Some(device) = device() else { return };
    let element = options.element;
    let mut backend = backend(&device, head, options);
    let count = 12;
    backend.prepare(&[TreeShape::OFF], &[1]).expect("no speculation");
    let (plain, rounds) = generate(&mut backend, TreeShape::OFF, 0, count);
    assert_eq!(rounds, count - 1);
    for (steps, topk, nodes) in shapes {
        let shape = TreeShape::new(*steps, *topk, *nodes).expect("a shape");
        backend.prepare(&[shape], &[1]).expect("graphs");
        let (speculated, rounds) = generate(&mut backend, shape, 1, count);
        assert_eq!(speculated, plain, "{element:?} {head} {shape}");
        assert!(rounds < count - 1, "{element:?} {head} {shape}: nothing was accepted in {rounds} rounds");
    }
}

#[test]
fn eagle3_changes_nothing_but_the_number_of_rounds() {
    check(options(Element::BF16), "eagle3", &[(3, 1, 4), (3, 3, 8)]);
}

#[test]
fn eagle2_changes_nothing_but_the_number_of_rounds() {
    check(options(Element::F32), "eagle2", &[(1, 1, 2), (4, 4, 16)]);
}

/// The default mode promises no bits, but where no two logits are near each other it finds the same tokens.
#[test]
fn attention_on_tensor_cores_sees_what_rows_of_trees_see() {
    let options =
        CudaOptions { batch_invariant: false, attention: Some(AttentionKernels::Tiles), ..options(Element::F16) };
    check(options, "eagle3", &[(3, 1, 4), (4, 6, 32)]);
}

/// Runs requests with a shape, and replays them with shapes.
fn replay(device: DeviceChoice, shapes: &[TreeShape]) -> (Vec<Vec<u64>>, Vec<Vec<Acceptance>>) {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    let mut engine = Engine::load(EngineOptions {
        model_path: models.join("target"),
        draft_model_path: Some(models.join("eagle2")),
        policy: ShapePolicy::fixed(shapes[0]),
        device,
        dtype: "float32".into(),
        batch_invariant: true,
        max_running_requests: 2,
        context_length: Some(64),
        page_size: 4,
        disable_cuda_graph: true,
        ..EngineOptions::default()
    })
    .expect("the demo pair loads");
    let samplings = [0.0, 0.9].map(|temperature| SamplingParams { temperature, seed: 3, ..SamplingParams::default() });
    let requests = samplings.map(|sampling| Request {
        input_ids: PROMPT[..9].to_vec(),
        sampling,
        stop: StopConditions { max_new_tokens: Some(8), ignore_eos: true, ..StopConditions::default() },
    });
    let completions = engine.run(requests.to_vec()).expect("they run");
    let texts: Vec<ReplayText> =
        requests.iter().zip(&completions).map(|(request, completion)| ReplayText::new(request, completion)).collect();
    let replayed = engine.replay(&texts, shapes, &mut |_| ControlFlow::Continue(())).expect("they can be replayed");
    (completions.into_iter().map(|one| one.accept_histogram).collect(), replayed.expect("nobody broke it off"))
}

#[test]
fn a_replay_counts_what_rounds_count_and_what_the_cpu_counts() {
    if device().is_none() {
        return;
    }
    let shapes = ["4,3,12", "2,1,3", "2,3,5", "5,3,20"].map(|shape| shape.parse().expect("a shape"));
    let (rounds, found) = replay(DeviceChoice::Emulator, &shapes);
    let (_, expected) = replay(DeviceChoice::Cpu, &shapes);
    for (request, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found[0].accept_histogram, rounds[request], "request {request}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.accept_histogram, expected.accept_histogram, "request {request}");
            // Sums in float32 are taken in another order.
            let close = |(found, expected): (f64, f64)| (found - expected).abs() < 1e-3;
            assert_eq!(found.expected_drafts.is_some(), expected.expected_drafts.is_some());
            assert!(found.expected_drafts.zip(expected.expected_drafts).is_none_or(close), "{found:?}, {expected:?}");
        }
    }
}

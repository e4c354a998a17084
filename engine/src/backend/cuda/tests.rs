//! The CUDA backend in the emulator: everything but the GPU is real, and in float32 the shipped
//! models must produce the CPU backend's tokens exactly.

mod delta;
mod expanded;
mod prefill;

use std::{ops::ControlFlow, path::Path, time::Duration};

use kernels::device::{Device, Element};
use schemas::tree::TreeShape;

use super::{AttentionKernels, CudaBackend, CudaOptions, Models, WeightSource, load};
use crate::{
    Engine, KeepStates, ReplayText, ShapeAcceptance, WeightFolders,
    backend::{
        Decode, MAX_PENDING_DRAFT, Measure, PageId, Prefill, PrefillChunk, ProducedToken, Round, RoundTiming, Slot,
        Slots, VerifyPlan, Yield, first_token, state_places::StateOptions,
    },
    checkpoint::Folder,
    drafts::{DraftTarget, read_draft},
    families::read_target,
    options::{DeviceChoice, EngineOptions, ShapePolicy},
    played::Simulated,
    request::{Request, SamplingParams, StopConditions},
    selftest::models::{Pair, RandomModels},
};

/// The emulator, which needs a C++ compiler; without one these tests fail.
fn device() -> Device {
    Device::emulated().unwrap_or_else(|error| panic!("{error}"))
}

fn backend(device: &Device, head: &str, options: CudaOptions) -> CudaBackend {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    let folder = Folder::open(&models.join("target")).expect("the shipped target");
    let weights = folder.weights().expect("its tensors");
    let target = read_target(&folder, &weights).expect("its description");
    let head_folder = Folder::open(&models.join(head)).expect("the shipped head");
    let head_weights = head_folder.weights().expect("its tensors");
    let head = read_draft(
        &head_folder,
        &head_weights,
        DraftTarget { folder: &folder, spec: &target },
        &EngineOptions::default(),
    )
    .expect("its description");
    let models = Models {
        target: (target, WeightSource::Checkpoint(&weights)),
        draft: Some((head, WeightSource::Checkpoint(&head_weights))),
    };
    load(device.clone(), "emulated".into(), models, options, None).expect("a backend")
}

fn options(element: Element) -> CudaOptions {
    CudaOptions {
        element,
        slots: 4,
        page_size: 1,
        context_length: 256,
        mem_fraction_static: 0.9,
        max_pages: usize::MAX,
        prefill_chunk: 64,
        shapes: Vec::new(),
        disable_cuda_graph: false,
        batch_invariant: true,
        attention: None,
        verify_plan: None,
        joins_chains: false,
        looks_up: None,
        split_draft: None,
        states: StateOptions { ratio: 0.9, most: None, keeps: true },
    }
}

const PROMPT: [u32; 24] =
    [0, 45, 300, 12, 77, 500, 9, 33, 210, 5, 611, 40, 8, 90, 15, 700, 31, 2, 64, 128, 256, 19, 44, 7];

fn simulate(backend: &mut CudaBackend, length: Option<f32>) {
    backend.simulate_acceptance(length.map(Simulated::Length)).expect("an idle device");
}

/// Greedy tokens of one request, alone in rounds of a shape, and the times of the rounds.
fn generate(backend: &mut CudaBackend, shape: TreeShape, slot: u32, count: usize) -> (Vec<u32>, Vec<RoundTiming>) {
    generate_behind(0, backend, shape, slot, count)
}

/// The same if the cache already holds this many tokens of the prompt.
fn generate_behind(
    cached: usize,
    backend: &mut CudaBackend,
    shape: TreeShape,
    slot: u32,
    count: usize,
) -> (Vec<u32>, Vec<RoundTiming>) {
    let sampling = SamplingParams::default();
    let (mut tokens, timings) =
        produce_behind(cached, backend, Round { shape, slots: &[Slot(slot)] }, &sampling, count);
    tokens.truncate(count);
    (tokens.into_iter().map(|token| token.id).collect(), timings)
}

/// At least `count` tokens of the one request of a round, which is repeated, and the times of the
/// rounds.
fn produce(
    backend: &mut CudaBackend,
    round: Round<'_>,
    sampling: &SamplingParams,
    count: usize,
) -> (Vec<ProducedToken>, Vec<RoundTiming>) {
    produce_behind(0, backend, round, sampling, count)
}

fn produce_behind(
    cached: usize,
    backend: &mut CudaBackend,
    round: Round<'_>,
    sampling: &SamplingParams,
    count: usize,
) -> (Vec<ProducedToken>, Vec<RoundTiming>) {
    let slot = round.slots[0];
    let pages: Vec<PageId> = (0..200).map(|page| PageId(page + 200 * slot.0)).collect();
    backend.open(slot, sampling, &pages, cached).expect("a free slot");
    let mut tokens = Vec::new();
    let middle = cached + 10.min((PROMPT.len() - cached) / 2);
    for (start, piece) in [(cached, &PROMPT[cached..middle]), (middle, &PROMPT[middle..])] {
        let next = PROMPT.get(start + piece.len()).copied();
        let first = backend.prefill_collecting(&[PrefillChunk { slot, tokens: piece, start, next }]).expect("a prompt");
        tokens.extend(first.into_iter().flatten().flat_map(|one| one.tokens));
    }
    let mut timings = Vec::new();
    while tokens.len() < count {
        let ticket = backend.launch(round).expect("a round");
        let output = backend.collect(ticket).expect("its tokens");
        tokens.extend(output.yields.into_iter().flat_map(|one| one.tokens));
        timings.push(output.timing);
    }
    backend.close(slot);
    (tokens, timings)
}

fn check(options: CudaOptions, head: &str, shapes: &[(usize, usize, usize)]) {
    let device = device();
    let element = options.element;
    let mut backend = backend(&device, head, options);
    let count = 9;
    backend.prepare(&[TreeShape::OFF], &[1], &mut |_, _| {}).expect("no speculation");
    let (plain, rounds) = generate(&mut backend, TreeShape::OFF, 0, count);
    assert_eq!(rounds.len(), count - 1);
    for (steps, topk, nodes) in shapes {
        let shape = TreeShape::new(*steps, *topk, *nodes).expect("a shape");
        backend.prepare(&[shape], &[1], &mut |_, _| {}).expect("graphs");
        let (speculated, rounds) = generate(&mut backend, shape, 1, count);
        let rounds = rounds.len();
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
    check(options(Element::F32), "eagle2", &[(1, 1, 2), (3, 3, 9)]);
}

/// The default mode is not bit-exact, but unless two logits are nearly equal it finds the same
/// tokens.
#[test]
fn attention_on_tensor_cores_sees_what_rows_of_trees_see() {
    let options =
        CudaOptions { batch_invariant: false, attention: Some(AttentionKernels::Tiles), ..options(Element::F16) };
    check(options, "eagle3", &[(3, 1, 4), (4, 6, 32)]);
}

#[test]
fn a_target_that_runs_over_inner_nodes_first_or_is_requested_on_the_way_says_what_it_says_everywhere() {
    for verify_plan in [VerifyPlan::AcceptedPathOnly, VerifyPlan::InnerNodesFirst] {
        check(
            CudaOptions { verify_plan: Some(verify_plan), ..options(Element::BF16) },
            "eagle3",
            &[(3, 1, 4), (3, 3, 8)],
        );
    }
    // With a head that reads final states, and with the kernels for groups of rows.
    let inner_first = CudaOptions { verify_plan: Some(VerifyPlan::InnerNodesFirst), ..options(Element::BF16) };
    check(inner_first.clone(), "eagle2", &[(3, 3, 8)]);
    let tiles = Some(AttentionKernels::Tiles);
    check(CudaOptions { batch_invariant: false, attention: tiles, ..inner_first }, "eagle3", &[(4, 6, 32)]);
    // Sampled, with log-probabilities, and with simulated acceptance.
    let device = device();
    let sampling =
        SamplingParams { temperature: 0.9, top_p: 0.9, seed: 7, logprobs: Some(2), ..SamplingParams::default() };
    for simulate_accept_length in [None, Some(2.5)] {
        let [all, few, inner_first] = [VerifyPlan::AllNodes, VerifyPlan::AcceptedPathOnly, VerifyPlan::InnerNodesFirst]
            .map(|verify_plan| {
                let options = CudaOptions { verify_plan: Some(verify_plan), ..options(Element::BF16) };
                let mut backend = backend(&device, "eagle3", options);
                simulate(&mut backend, simulate_accept_length);
                let shape = TreeShape::new(3, 3, 8).expect("a shape");
                backend.prepare(&[shape], &[2], &mut |_, _| {}).expect("graphs");
                produce(&mut backend, Round { shape, slots: &[Slot(1)] }, &sampling, 12).0
            });
        assert_eq!(all, few, "{simulate_accept_length:?}");
        assert_eq!(all, inner_first, "{simulate_accept_length:?}");
    }
}

/// In the default mode, with a number of rows for which kernels skip layers whose output is not
/// needed; and in float32, where none does.
#[test]
fn products_that_no_one_awaits_are_left_out_and_change_nothing() {
    let device = device();
    let shape = TreeShape::new(3, 3, 8).expect("a shape");
    for element in [Element::F16, Element::F32] {
        let [all, few, inner_first] = [VerifyPlan::AllNodes, VerifyPlan::AcceptedPathOnly, VerifyPlan::InnerNodesFirst]
            .map(|verify_plan| {
                let options = CudaOptions {
                    verify_plan: Some(verify_plan),
                    batch_invariant: false,
                    slots: 8,
                    ..options(element)
                };
                let mut backend = backend(&device, "eagle3", options);
                backend.prepare(&[shape], &[8], &mut |_, _| {}).expect("graphs");
                generate(&mut backend, shape, 1, 9).0
            });
        assert_eq!(all, few, "{element:?}");
        assert_eq!(all, inner_first, "{element:?}");
    }
}

/// What autotuning compares before or between requests changes neither the output of rounds nor the
/// pages that are kept for requests with the same prefix.
#[test]
fn rounds_over_synthetic_requests_leave_nothing_behind() {
    let device = device();
    let mut backend = backend(&device, "eagle3", options(Element::BF16));
    let shape = TreeShape::new(3, 3, 8).expect("a shape");
    backend.prepare(&[shape], &[2], &mut |_, _| {}).expect("graphs");
    let (expected, _) = generate(&mut backend, shape, 0, 9);
    let marks = [device.event().expect("an event"), device.event().expect("an event")];
    for cached in [0, 16] {
        let timed = backend.with_synthetic_requests(2, |backend| {
            let graph = backend.graphs.values().next().expect("a graph");
            backend.timed(2, graph, &marks)
        });
        timed.expect("rounds");
        let (found, _) = generate_behind(cached, &mut backend, shape, 0, 9);
        assert_eq!(found, expected, "{cached} tokens of the prompt cached");
    }
}

/// Log-probabilities of tokens from rounds of several shapes, in one mode.
fn log_probabilities(device: &Device, batch_invariant: bool, shapes: &[TreeShape]) -> Vec<Vec<ProducedToken>> {
    let mut backend = backend(device, "eagle3", CudaOptions { batch_invariant, ..options(Element::BF16) });
    backend.prepare(shapes, &[1], &mut |_, _| {}).expect("graphs");
    let sampling = SamplingParams { logprobs: Some(4), ..SamplingParams::default() };
    let of_shape = |(slot, shape): (usize, &TreeShape)| {
        produce(&mut backend, Round { shape: *shape, slots: &[Slot(slot as u32)] }, &sampling, 6).0
    };
    shapes.iter().enumerate().map(of_shape).collect()
}

/// In the default mode norms leave their scale to the next layer, and layers and attention use
/// different kernels: for prompts of 10 and 14 rows, and for trees of 4, 8 and 32. As long as both
/// modes choose the same tokens, their distributions are nearly equal.
#[test]
fn norms_that_leave_their_scale_to_the_next_layer_change_little() {
    /// Maximum effect of other summation orders in bfloat16 on a log-probability of this model: up
    /// to 0.1 was observed.
    const NOISE: f32 = 0.2;
    let device = device();
    let shapes = [(3, 1, 4), (3, 3, 8), (4, 6, 32)];
    let shapes = shapes.map(|(steps, topk, nodes)| TreeShape::new(steps, topk, nodes).expect("a shape"));
    let [default, invariant] = [false, true].map(|mode| log_probabilities(&device, mode, &shapes));
    for ((shape, found), expected) in shapes.iter().zip(&default).zip(&invariant) {
        let mut compared = 0;
        for (found, expected) in found.iter().zip(expected) {
            let best = |token: &ProducedToken| token.logprobs.as_ref().map(|logprobs| logprobs.top[0].1);
            let (Some(one), Some(other)) = (best(found), best(expected)) else {
                panic!("{shape}: no log-probabilities")
            };
            assert!((one - other).abs() < NOISE, "{shape}: token {compared} has {one}, expected {other}");
            compared += 1;
            if found.id != expected.id {
                break;
            }
        }
        assert!(compared >= 2, "{shape}: the modes part at once");
    }
}

/// With a target that breaks between two rounds, in a padded batch.
#[test]
fn logits_that_are_not_finite_are_no_token_wherever_the_target_is_requested() {
    let device = device();
    let tree = TreeShape::new(3, 3, 8).expect("a shape");
    for (verify_plan, shape, temperature, simulate_accept_length) in [
        (None, TreeShape::OFF, 0.0, None),
        (Some(VerifyPlan::AllNodes), tree, 0.9, Some(2.5)),
        (Some(VerifyPlan::AcceptedPathOnly), tree, 0.0, None),
        (Some(VerifyPlan::InnerNodesFirst), tree, 0.9, None),
    ] {
        let what = format!("{verify_plan:?}, {shape}, temperature {temperature}, simulated {simulate_accept_length:?}");
        let options = CudaOptions { verify_plan, ..options(Element::BF16) };
        let mut backend = backend(&device, "eagle3", options);
        simulate(&mut backend, simulate_accept_length);
        backend.prepare(&[shape], &[2], &mut |_, _| {}).expect("graphs");
        let sampling = SamplingParams { temperature, ..SamplingParams::default() };
        let chunk = |slot| PrefillChunk { slot, tokens: &PROMPT, start: 0, next: None };
        for slot in 0..2 {
            let pages: Vec<PageId> = (0..100).map(|page| PageId(page + 100 * slot)).collect();
            backend.open(Slot(slot), &sampling, &pages, 0).expect("a free slot");
        }
        backend.prefill_collecting(&[chunk(Slot(1))]).expect("a prompt");
        let run = |backend: &mut CudaBackend| {
            let ticket = backend.launch(Round { shape, slots: &[Slot(1)] }).expect("a round");
            backend.collect(ticket).expect("what it yields").yields.remove(0)
        };
        let whole = run(&mut backend);
        assert!(!whole.tokens.is_empty() && whole.not_finite.is_none(), "{what}: {whole:?}");
        let norm = &backend.machine.target.norm;
        device.write(norm.slice(), &vec![u32::MAX; norm.bytes() / 4]).expect("weights");
        let broken = run(&mut backend);
        assert_eq!(
            (broken.tokens, broken.not_finite),
            (Vec::new(), Some(PROMPT.len() + 1 + whole.tokens.len())),
            "{what}"
        );
        let first = backend.prefill_collecting(&[chunk(Slot(0))]).expect("a prompt");
        assert_eq!(first, [Some(Yield { tokens: Vec::new(), not_finite: Some(PROMPT.len()) })], "{what}");
    }
}

#[test]
fn a_tree_that_the_draft_has_not_followed_is_refused() {
    let device = device();
    let mut backend = backend(&device, "eagle3", options(Element::BF16));
    backend.prepare(&[TreeShape::OFF], &[], &mut |_, _| {}).expect("no speculation");
    backend.open(Slot(0), &SamplingParams::default(), &[PageId(0), PageId(1)], 0).expect("a free slot");
    let error = backend.launch(Round { shape: TreeShape::chain(2), slots: &[Slot(0)] }).expect_err("no draft follows");
    assert!(error.to_string().contains("no speculating shape was prepared"), "{error}");
}

/// Plain rounds for slot 0, and for slot 1 from round `begin` on; then rounds of a tree for both.
/// Returns the yields of each tree round.
fn trees_behind_plain_rounds(backend: &mut CudaBackend, plain_rounds: usize, begin: usize) -> Vec<Vec<Vec<u32>>> {
    let mut texts = [PROMPT.to_vec(), PROMPT[7..].to_vec()];
    let tree = TreeShape::new(3, 3, 8).expect("a shape");
    let mut yields = Vec::new();
    // First the rounds run on texts as they grow; then the same texts are prefilled as prompts.
    for plain_rounds in [plain_rounds, 0] {
        let mut last = [0, 0];
        for (at, text) in texts.iter().enumerate() {
            let slot = Slot(at as u32);
            let pages: Vec<PageId> = (0..200).map(|page| PageId(page + 200 * slot.0)).collect();
            backend.open(slot, &SamplingParams::default(), &pages, 0).expect("a free slot");
            for (piece, tokens) in text.chunks(64).enumerate() {
                let (start, next) = (piece * 64, text.get(piece * 64 + tokens.len()).copied());
                let first =
                    backend.prefill_collecting(&[PrefillChunk { slot, tokens, start, next }]).expect("a prompt");
                last[at] = first_token(&first[0]);
            }
        }
        let mut run = |shape, slots: &[Slot]| -> Vec<Vec<u32>> {
            let ticket = backend.launch(Round { shape, slots }).expect("a round");
            let yields = backend.collect(ticket).expect("its tokens").yields;
            yields.into_iter().map(|one| one.tokens.into_iter().map(|token| token.id).collect()).collect()
        };
        let both = [Slot(1), Slot(0)];
        for round in 0..plain_rounds {
            let slots = if round < begin { &both[1..] } else { &both[..] };
            for (slot, tokens) in slots.iter().zip(run(TreeShape::OFF, slots)) {
                let at = slot.0 as usize;
                texts[at].push(std::mem::replace(&mut last[at], tokens[0]));
            }
        }
        yields.push((0..2).flat_map(|_| run(tree, &both)).collect());
        both.into_iter().for_each(|slot| backend.close(slot));
    }
    yields
}

#[test]
fn the_draft_is_where_it_would_be_had_it_read_every_token_at_once() {
    let device = device();
    for (element, head, plain_rounds, begin) in
        [(Element::F16, "eagle3", 3, 2), (Element::BF16, "eagle2", MAX_PENDING_DRAFT + 2, MAX_PENDING_DRAFT - 4)]
    {
        let mut backend = backend(&device, head, options(element));
        backend
            .prepare(&[TreeShape::OFF, TreeShape::new(3, 3, 8).expect("a shape")], &[2], &mut |_, _| {})
            .expect("graphs");
        let yields = trees_behind_plain_rounds(&mut backend, plain_rounds, begin);
        assert_eq!(yields[0], yields[1], "{element:?} {head} behind {plain_rounds} plain rounds");
    }
}

#[test]
fn a_round_in_parts_yields_what_a_whole_one_does_and_takes_what_its_parts_take() {
    let device = device();
    let sampling = SamplingParams { logprobs: Some(2), ..SamplingParams::default() };
    let [off, tree] = ["0,1,1", "2,2,4"].map(|shape| shape.parse().expect("a shape"));
    for (disable_cuda_graph, shapes, drafts, extends) in [
        (false, &[off][..], false, false),
        (false, &[off, tree], false, true),
        (false, &[tree], true, true),
        (true, &[tree], true, true),
    ] {
        let round = Round { shape: shapes[0], slots: &[Slot(1)] };
        let mut backend = backend(&device, "eagle2", CudaOptions { disable_cuda_graph, ..options(Element::BF16) });
        backend.prepare(shapes, &[], &mut |_, _| {}).expect("a shape that fits");
        let (whole, timings) = produce(&mut backend, round, &sampling, 3);
        let unsplit = |timing: &RoundTiming| timing.verify.or(timing.draft).or(timing.extend).is_none();
        assert!(timings.iter().all(unsplit), "{round:?}: {timings:?}");
        let graphs = backend.graphs.len();

        backend.time_parts(true);
        let (in_parts, timings) = produce(&mut backend, round, &sampling, 3);
        assert_eq!(in_parts, whole, "{round:?}");
        for timing in timings {
            let RoundTiming { draft, verify, extend, total, stall } = timing;
            assert_eq!(stall, None, "this device drafts");
            let found = (draft.is_some(), verify.is_some(), extend.is_some());
            assert_eq!(found, (drafts, true, extends), "{round:?}: {timing:?}");
            let parts: Duration = [draft, verify, extend].into_iter().flatten().sum();
            assert_eq!(parts, total, "{round:?}: {timing:?}");
        }
        backend.time_parts(false);
        assert_eq!(backend.graphs.len(), graphs, "what was made for parts is given back");
    }
}

/// A table by batch and context switches between rounds: the graphs of all its trees are there
/// before the first request.
#[test]
fn a_switch_between_prepared_shapes_captures_nothing() {
    let device = device();
    let shapes: [TreeShape; 3] = ["0,1,1", "1,1,2", "2,2,4"].map(|shape| shape.parse().expect("a shape"));
    let mut backend = backend(&device, "eagle3", options(Element::BF16));
    backend.prepare(&shapes, &[1, 2, 4], &mut |_, _| {}).expect("shapes that fit");
    assert_eq!(backend.graphs.len(), 9);
    for shape in shapes.into_iter().chain(shapes) {
        generate(&mut backend, shape, 1, 3);
    }
    assert_eq!(backend.graphs.len(), 9);
}

/// The demo pair, with memory for two short texts.
fn short_engine(device: DeviceChoice, head: &str, dtype: &str, shape: TreeShape) -> Engine {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    Engine::load(EngineOptions {
        model_path: models.join("target"),
        draft_model_path: Some(models.join(head)),
        policy: ShapePolicy::fixed(shape),
        device,
        dtype: dtype.into(),
        batch_invariant: true,
        max_running_requests: 2,
        context_length: Some(64),
        page_size: 4,
        chunked_prefill_size: 12,
        disable_cuda_graph: true,
        ..EngineOptions::default()
    })
    .expect("the demo pair loads")
}

/// Runs `count` requests, alternately greedy and sampled.
fn short_texts(engine: &mut Engine, count: usize) -> (Vec<Vec<u64>>, Vec<ReplayText>) {
    let request = |at: usize| Request {
        input_ids: PROMPT[..9 + at / 2].to_vec(),
        sampling: SamplingParams { temperature: [0.0, 0.9][at % 2], seed: 3, ..SamplingParams::default() },
        stop: StopConditions { max_new_tokens: Some(8), ignore_eos: true, ..StopConditions::default() },
    };
    let requests: Vec<Request> = (0..count).map(request).collect();
    let completions = engine.run(requests.clone()).expect("they run");
    let texts = requests.iter().zip(&completions).map(|(request, completion)| ReplayText::new(request, completion));
    let texts = texts.collect();
    (completions.into_iter().map(|one| one.accept_histogram).collect(), texts)
}

/// Runs requests with the first shape, and replays them with all shapes.
fn replay(device: DeviceChoice, shapes: &[TreeShape]) -> (Vec<Vec<u64>>, Vec<Vec<ShapeAcceptance>>) {
    let mut engine = short_engine(device, "eagle2", "float32", shapes[0]);
    let (histograms, texts) = short_texts(&mut engine, 2);
    let replayed = engine.replay(&texts, shapes, &mut |_| ControlFlow::Continue(())).expect("they can be replayed");
    (histograms, replayed.expect("no one broke it off"))
}

#[test]
fn a_replay_from_kept_states_is_the_one_that_kept_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("states");
    let shapes = ["3,2,6", "2,1,3"].map(|shape| shape.parse().expect("a shape"));
    for (head, dtype) in [("eagle2", "float32"), ("eagle3", "bfloat16")] {
        let mut engine = short_engine(DeviceChoice::Emulator, head, dtype, TreeShape::OFF);
        let (_, texts) = short_texts(&mut engine, 3);
        let expected =
            engine.replay(&texts, &shapes, &mut |_| ControlFlow::Continue(())).expect("they can be replayed");
        let mut said = Vec::new();
        for _ in 0..2 {
            let mut note = |words: &str| said.push(words.to_owned());
            let keep = KeepStates { path: &path, most_bytes: 1 << 30, note: &mut note };
            let found = engine.replay_keeping(&texts, &shapes, keep, &mut |_| ControlFlow::Continue(()));
            assert_eq!(found.expect("they can be replayed"), expected, "{head}");
        }
        assert!(said.len() <= 2 && said.last().is_some_and(|words| words.contains("3 of 3")), "{head}: {said:?}");
    }
}

#[test]
fn a_trace_has_the_confidences_that_the_cpu_computes() {
    let models = RandomModels::write_seeded(15).expect("a folder");
    let traced = |device: DeviceChoice| {
        let mut engine = Engine::load(EngineOptions {
            model_path: models.target(Pair::Dspark),
            draft_model_path: models.draft(Pair::Dspark),
            device,
            dtype: "float32".into(),
            batch_invariant: true,
            max_running_requests: 2,
            context_length: Some(64),
            page_size: 4,
            disable_cuda_graph: true,
            ..EngineOptions::default()
        })
        .expect("the pair loads");
        let tokens: Vec<u32> = (0..20).map(|at| (at * at * 7 + 3) % 20 + 2).collect();
        let text = ReplayText { tokens, prompt_tokens: 9, sampling: SamplingParams::default() };
        let limits = ["4,1,5", "3,2,9"].map(|limit| engine.cost().nodes.parse(limit).expect("a shape"));
        let traces = engine.trace_positions(&[text], &limits, &mut |_| ControlFlow::Continue(()));
        let traces = traces.expect("they are traced");
        let positions = traces.into_iter().flat_map(|trace| trace.texts).flat_map(|text| text.positions);
        positions.map(|nodes| nodes.confidence).collect::<Vec<_>>()
    };
    let (on_cpu, emulated) = (traced(DeviceChoice::Cpu), traced(DeviceChoice::Emulator));
    assert_eq!((on_cpu.len(), on_cpu[0].len()), (20, 4));
    for (expected, found) in on_cpu.iter().zip(&emulated) {
        let near = |(one, other): (&f32, &f32)| (one - other).abs() < 1e-3;
        assert!(expected.len() == found.len() && expected.iter().zip(found).all(near), "{found:?}, not {expected:?}");
    }
}

#[test]
fn a_replay_counts_what_rounds_count_and_what_the_cpu_counts() {
    let shapes = ["4,3,12", "2,1,3", "2,3,5", "5,3,20"].map(|shape| shape.parse().expect("a shape"));
    let (rounds, found) = replay(DeviceChoice::Emulator, &shapes);
    let (_, expected) = replay(DeviceChoice::Cpu, &shapes);
    for (request, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found[0].accept_histogram, rounds[request], "request {request}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.accept_histogram, expected.accept_histogram, "request {request}");
            // Float32 sums use a different order.
            let close = |(found, expected): (f64, f64)| (found - expected).abs() < 1e-3;
            assert_eq!(found.expected_drafts.is_some(), expected.expected_drafts.is_some());
            assert!(found.expected_drafts.zip(expected.expected_drafts).is_none_or(close), "{found:?}, {expected:?}");
        }
    }
}

/// The demo target with the halves of its last norm swapped.
fn other_target(to: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny/target");
    for name in ["config.json", "tokenizer.json"] {
        std::fs::copy(from.join(name), to.join(name)).expect("a copy");
    }
    let mut bytes = std::fs::read(from.join("model.safetensors")).expect("weights");
    let length = bytes.first_chunk::<8>().map_or(0, |length| u64::from_le_bytes(*length) as usize);
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).expect("a header");
    let at = |end: usize| header["model.norm.weight"]["data_offsets"][end].as_u64().expect("a norm") as usize;
    let norm = &mut bytes[8 + length + at(0)..8 + length + at(1)];
    norm.rotate_left(norm.len() / 2);
    std::fs::write(to.join("model.safetensors"), bytes).expect("weights");
}

#[test]
fn weights_of_another_folder_are_written_over_the_loaded_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    other_target(folder.path());
    let mut engine = short_engine(DeviceChoice::Emulator, "eagle2", "float32", "2,2,4".parse().expect("a shape"));
    let outputs = |engine: &mut Engine| {
        let (_, texts) = short_texts(engine, 2);
        texts.into_iter().map(|text| text.tokens).collect::<Vec<_>>()
    };
    let old = outputs(&mut engine);
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    let update = |engine: &mut Engine, folder: &Path| {
        let folders = WeightFolders { model: Some(folder.to_owned()), draft: None };
        engine.update_weights(&folders, true)
    };
    update(&mut engine, folder.path()).expect("they fit");
    let new = outputs(&mut engine);
    let mut fresh = Engine::load(EngineOptions {
        device: DeviceChoice::Cpu,
        model_path: folder.path().to_owned(),
        ..engine.options().clone()
    })
    .expect("it loads");
    assert_eq!(new, outputs(&mut fresh));
    assert_ne!(new, old);
    assert!(update(&mut engine, &models.join("eagle3")).is_err(), "another kind of draft");
    assert!(update(&mut engine, &models).is_err(), "no checkpoint");
    assert_eq!(outputs(&mut engine), new);
    for folder in ["eagle2", "target"] {
        update(&mut engine, &models.join(folder)).expect("they fit");
    }
    assert_eq!(outputs(&mut engine), old);
}

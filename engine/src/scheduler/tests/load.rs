//! A random load on real models with few pages and snapshots: every request gets the output that it
//! would get alone, and after each step every page and snapshot is in one place.

use std::collections::HashMap;

use super::{super::recording::Recording, *};
use crate::{
    DeviceChoice,
    load::{Loaded, load},
    selftest::models::{Pair, RandomModels, VOCABULARY},
};

const PAGE: usize = 4;
const BUDGET: usize = 12;
const LONGEST_OUTPUT: usize = 24;
/// Less than all that can run would fill.
const PAGES: usize = 22;
/// The same for models whose window pages are fewer than pages.
const PAGES_BESIDE_WINDOWS: usize = 48;
/// Fewer than the places at which prompts part.
const SNAPSHOTS: usize = 3;
/// A token that no model has: outputs end by their limit, but that is not certain.
const NEVER: u32 = u32::MAX;
/// More than any load takes, so that a request that is stuck ends the test.
const MOST_STEPS: usize = 5_000;

/// A reproducible stream of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound as u64) as usize
    }
}

/// Requests of which many begin alike and some are sampled.
fn requests(count: usize, numbers: &mut Numbers) -> Vec<Request> {
    let mut one = |number: usize| {
        let (beginning, shared, own) = (numbers.below(2), 4 * (1 + numbers.below(4)), 1 + numbers.below(8));
        let token = |seed: usize, at: usize| ((seed * 31 + at * at * 7 + at) % VOCABULARY) as u32;
        let shared = (0..shared).map(|at| token(beginning, at));
        let sampling = SamplingParams {
            temperature: if numbers.below(3) == 0 { 0.8 } else { 0.0 },
            seed: number as u64,
            ..SamplingParams::default()
        };
        Request {
            sampling,
            ..request(
                shared.chain((0..own).map(|at| token(number, at + 50))).collect(),
                1 + numbers.below(LONGEST_OUTPUT),
            )
        }
    };
    (0..count).map(&mut one).collect()
}

fn options(models: &RandomModels, pair: Pair, device: DeviceChoice, shape: TreeShape) -> EngineOptions {
    EngineOptions {
        model_path: models.target(pair),
        draft_model_path: models.draft(pair),
        algorithm: Some(pair.algorithm().to_owned()),
        dtype: "float32".into(),
        device,
        batch_invariant: true,
        context_length: Some(64),
        max_running_requests: 5,
        page_size: PAGE,
        chunked_prefill_size: BUDGET,
        policy: ShapePolicy::fixed(shape),
        capture_sizes: vec![2, 5],
        ..EngineOptions::default()
    }
}

fn scheduler_of(options: &EngineOptions, reuse: Reuse) -> Scheduler {
    let Loaded { backend, .. } = load(options).expect("the model loads");
    let windows = backend.capacity().windows;
    let mut backend = Recording::new(backend).0;
    if reuse == Reuse::All {
        let pages = if windows.is_some() { PAGES_BESIDE_WINDOWS } else { PAGES };
        backend = backend.with_pages(pages).with_windows(pages - 2).with_snapshots(SNAPSHOTS);
    }
    let shapes: Vec<TreeShape> = options.policy.shapes().collect();
    backend.prepare(&shapes, &options.graph_sizes(), &mut |_, _| {}).expect("the shape runs");
    let scheduling = SchedulerOptions { largest_batch: options.max_running_requests, prefill_budget: BUDGET, reuse };
    let model = ModelEnds { end_tokens: vec![NEVER], text: None };
    Scheduler::new(Box::new(backend), model, options.policy.clone(), scheduling)
}

fn audit(scheduler: &Scheduler) {
    scheduler
        .pages
        .audit(scheduler.running.iter().filter_map(ScheduledRequest::pages), scheduler.statistics.pages_total);
    scheduler.snapshots.iter().for_each(|kept| kept.audit(SNAPSHOTS));
    let held = scheduler.running.iter().filter(|running| running.slot().is_some()).count();
    assert_eq!(scheduler.slots.len() + held, scheduler.options.largest_batch, "a slot is lost or free twice");
}

/// Output of each request without speculation, alone and from an empty cache.
fn alone(options: &EngineOptions, requests: &[Request]) -> Vec<Vec<u32>> {
    let options = EngineOptions { policy: ShapePolicy::fixed(TreeShape::OFF), ..options.clone() };
    let mut scheduler = scheduler_of(&options, Reuse::Off);
    let mut output = |request: &Request| {
        let id = scheduler.submit(request.clone()).expect("it fits");
        completion(&drain(&mut scheduler), id).output_ids
    };
    requests.iter().map(&mut output).collect()
}

fn random_load(models: &RandomModels, pair: Pair, device: DeviceChoice, shape: &str, count: usize) {
    let options = options(models, pair, device, shape.parse().expect("a shape"));
    let name = format!("{pair}, {device:?}");
    let mut numbers = Numbers(pair.to_string().len() as u64);
    let requests = requests(count, &mut numbers);
    let alone = alone(&options, &requests);
    let mut scheduler = scheduler_of(&options, Reuse::All);
    let mut running: HashMap<RequestId, usize> = HashMap::new();
    let (mut next, mut cancelled) = (0, 0);
    for step in 0.. {
        assert!(step < MOST_STEPS, "{name}: {} requests are stuck", running.len());
        let arriving = if numbers.below(6) == 0 { 4 } else { numbers.below(2) };
        for (at, request) in requests.iter().enumerate().skip(next).take(arriving) {
            running.insert(scheduler.submit(request.clone()).expect("it fits"), at);
            next = at + 1;
        }
        if numbers.below(12) == 0
            && let Some(id) = running.keys().min_by_key(|id| id.0)
        {
            scheduler.cancel(*id);
        }
        let mut events = Vec::new();
        if numbers.below(20) == 0 {
            scheduler.retract(&mut |event| events.push(event)).expect("the device works");
            audit(&scheduler);
        }
        scheduler.step(&mut |event| events.push(event)).expect("the device works");
        for event in events {
            let Event::Finished { request, completion } = event else { continue };
            let at = running.remove(&request).expect("it ends once");
            if completion.finish_reason == FinishReason::Cancelled {
                cancelled += 1;
                assert!(alone[at].starts_with(&completion.output_ids), "{name}, cancelled request {at}");
            } else {
                assert_eq!(completion.output_ids, alone[at], "{name}, request {at}");
            }
        }
        audit(&scheduler);
        if next == requests.len() && scheduler.is_idle() {
            break;
        }
    }
    assert!(running.is_empty() && cancelled > 0, "{name}: {} requests are stuck, {cancelled} cancelled", running.len());
    let statistics = scheduler.statistics().clone();
    assert_eq!((statistics.pages_used, statistics.running, statistics.waiting), (0, 0, 0), "{name}");
    assert!(statistics.retracted > 0, "{name}: no request was put back");
    assert!(statistics.cached_tokens > 0, "{name}: no prefix was reused");
    assert!(statistics.accepted_drafts() > 0, "{name}: no draft was accepted");
}

#[test]
fn a_random_load_on_models_with_states_leaks_no_slot_page_or_snapshot() {
    let models = RandomModels::write_seeded(41).expect("a folder");
    for (pair, shape) in [
        (Pair::Qwen35, "3,2,6"),
        (Pair::Qwen35Moe, "3,1,4"),
        (Pair::Qwen35Eagle3, "3,2,6"),
        (Pair::Qwen35Dspark, "4,2,8"),
        (Pair::Qwen35MoeDflash, "4,1,5"),
    ] {
        random_load(&models, pair, DeviceChoice::Cpu, shape, 60);
    }
}

#[test]
fn a_random_load_on_a_model_with_windows_leaks_no_window_page() {
    let models = RandomModels::write_seeded(43).expect("a folder");
    let options = options(&models, Pair::GptOss, DeviceChoice::Cpu, TreeShape::OFF);
    let windows = scheduler_of(&options, Reuse::All).backend.capacity().windows.expect("window pages");
    assert!(windows.count < PAGES_BESIDE_WINDOWS, "{windows:?}");
    for shape in ["3,2,6", "3,1,4"] {
        random_load(&models, Pair::GptOss, DeviceChoice::Cpu, shape, 60);
    }
}

#[test]
fn a_random_load_on_a_device_with_states_leaks_no_slot_page_or_snapshot() {
    let models = RandomModels::write_seeded(42).expect("a folder");
    random_load(&models, Pair::Qwen35Eagle3, DeviceChoice::Emulator, "3,2,6", 16);
}

#[test]
fn a_random_load_on_a_device_with_windows_leaks_no_window_page() {
    let models = RandomModels::write_seeded(44).expect("a folder");
    random_load(&models, Pair::GptOss, DeviceChoice::Emulator, "3,2,6", 16);
}

//! Memory as it is used: more requests run than would fit with their whole outputs, and retraction
//! changes no output.

use std::{path::Path, sync::Arc};

use schemas::tree::TreeShape;

use super::{
    super::{fake::Script, recording::Recording, *},
    CAPACITY, END, RANDOM, completion, drain, request, scheduler,
};
use crate::{
    DeviceChoice,
    adjust::{Adjustments, Constraint, Follow, Grammar},
    backend::{Capacity, Decode},
    load::{Loaded, load},
    request::{Completion, SamplingParams},
    selftest::{
        adjusted,
        models::{Pair, RandomModels},
    },
};

/// Ten tokens, whatever the limit.
const SHORT: Script =
    Script { token: |prompt, at| if prompt.len() + at >= 11 { END } else { 5 }, accepted: |_, _, most| most };
/// No token ends it.
const LONG: Script = Script { token: |prompt, at| 1 + (prompt[0] as usize + prompt.len() + at) as u32 % 997, ..RANDOM };

/// Runs requests for this many tokens.
fn run(
    capacity: Capacity,
    script: Script,
    shape: TreeShape,
    prompts: &[Vec<u32>],
    new: usize,
) -> (Vec<Completion>, Statistics) {
    let (mut scheduler, world) = scheduler(capacity, script, ShapePolicy::fixed(shape));
    let ids: Vec<RequestId> =
        prompts.iter().map(|prompt| scheduler.submit(request(prompt.clone(), new)).expect("it fits")).collect();
    let events = drain(&mut scheduler);
    scheduler.pages.audit(std::iter::empty(), capacity.pages);
    assert!(world.lock().expect("no panic while it was held").is_clean());
    (ids.into_iter().map(|id| completion(&events, id)).collect(), scheduler.statistics().clone())
}

#[test]
fn short_outputs_with_large_limits_run_together() {
    // Two requests of 1 + 90 tokens fit on the 60 pages of 4 tokens; their real outputs are a ninth
    // of that.
    let capacity = Capacity { pages: 60, ..CAPACITY };
    let prompts: Vec<Vec<u32>> = (1..=40).map(|first| vec![first]).collect();
    let (completions, statistics) = run(capacity, SHORT, TreeShape::OFF, &prompts, 90);
    assert!(completions.iter().all(|one| one.output_ids.len() == 11), "{completions:?}");
    assert!(statistics.rounds_by_batch.len() > 2, "{:?}", statistics.rounds_by_batch);
    assert_eq!(statistics.retracted, 0);
}

#[test]
fn long_outputs_retract_the_youngest_and_come_out_the_same() {
    for (rounds_in_flight, shape) in [(1, "0,1,1"), (2, "0,1,1"), (1, "3,4,8"), (3, "2,1,3")] {
        let shape: TreeShape = shape.parse().expect("a shape");
        let capacity = Capacity { rounds_in_flight, context_length: 400, slots: 8, ..CAPACITY };
        let prompts: Vec<Vec<u32>> = (1..=8).map(|first| (first..first + 20).collect()).collect();
        let (plenty, calm) = run(Capacity { pages: 1000, ..capacity }, LONG, shape, &prompts, 150);
        let (few, busy) = run(Capacity { pages: 150, ..capacity }, LONG, shape, &prompts, 150);
        assert_eq!((calm.retracted, busy.retracted), (0, busy.retracted_for_pages));
        assert!(busy.retracted > 0, "{shape}: {busy:?}");
        assert_eq!(few.iter().map(|one| one.retractions as u64).sum::<u64>(), busy.retracted);
        assert_eq!(few[0].retractions, 0, "the oldest one runs to its end");
        for (few, plenty) in few.iter().zip(&plenty) {
            assert_eq!((&few.output_ids, &few.finish_reason), (&plenty.output_ids, &plenty.finish_reason));
        }
    }
}

#[test]
fn outputs_of_certain_length_are_never_retracted() {
    let capacity = Capacity { pages: 100, context_length: 400, slots: 8, ..CAPACITY };
    let (mut scheduler, _world) = scheduler(capacity, LONG, ShapePolicy::fixed(TreeShape::OFF));
    for first in 1..=8 {
        let mut request = request((first..first + 20).collect(), 150);
        request.stop.ignore_eos = true;
        scheduler.submit(request).expect("it fits");
    }
    drain(&mut scheduler);
    // 171 positions are 43 pages.
    assert_eq!((scheduler.statistics().retracted, scheduler.statistics().rounds_by_batch.len()), (0, 2));
}

/// The outputs of requests on this many pages, and how many were retracted. `end` is the model's
/// end-of-text token.
fn outputs(options: &EngineOptions, pages: usize, requests: &[Request], end: u32) -> (Vec<Vec<u32>>, u64) {
    let Loaded { backend, .. } = load(options).expect("the model loads");
    let mut backend = Recording::new(backend).0.with_pages(pages);
    let shapes: Vec<TreeShape> = options.policy.shapes().collect();
    backend.prepare(&shapes, &options.graph_sizes(), &mut |_, _| {}).expect("the shape runs");
    let scheduling = SchedulerOptions { largest_batch: requests.len(), prefill_budget: 64, reuse: Reuse::All };
    let model = ModelEnds { end_tokens: vec![end], text: None };
    let scheduler = Scheduler::new(Box::new(backend), model, options.policy.clone(), scheduling);
    let mut scheduler = scheduler.with_texts(options.text_draft());
    let ids: Vec<RequestId> =
        requests.iter().map(|request| scheduler.submit(request.clone()).expect("it fits")).collect();
    let events = drain(&mut scheduler);
    scheduler.pages.audit(std::iter::empty(), pages);
    let outputs = ids.into_iter().map(|id| completion(&events, id).output_ids).collect();
    (outputs, scheduler.statistics().retracted)
}

#[test]
fn models_with_states_and_text_drafts_survive_retraction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let requests: Vec<Request> = (0..6_usize)
        .map(|number| {
            let prompt = (0..24).map(|at| 3 + (number * 7 + at * at) as u32 % 50).collect();
            let adjustments =
                Adjustments { presence_penalty: if number == 2 { 0.5 } else { 0.0 }, ..Adjustments::default() };
            let sampling = SamplingParams {
                temperature: (number % 2) as f32,
                seed: number as u64,
                adjustments,
                ..SamplingParams::default()
            };
            Request { sampling, ..request(prompt, 60) }
        })
        .collect();
    let tiny = EngineOptions {
        model_path: root.join("models/tiny/target"),
        device: DeviceChoice::Cpu,
        context_length: Some(128),
        max_running_requests: 6,
        page_size: 4,
        policy: ShapePolicy::fixed(TreeShape::OFF),
        ..EngineOptions::default()
    };
    let eagle = EngineOptions {
        draft_model_path: Some(root.join("models/tiny/eagle3")),
        policy: ShapePolicy::fixed(TreeShape::new(3, 2, 6).expect("a shape")),
        ..tiny.clone()
    };
    let suffix = EngineOptions {
        algorithm: Some("SUFFIX".into()),
        policy: ShapePolicy::fixed(TreeShape::chain(4)),
        ..tiny.clone()
    };
    let states = EngineOptions { model_path: root.join("tests/data/families/qwen3_5"), ..tiny.clone() };
    for (name, options) in [("none", tiny), ("eagle3", eagle), ("suffix", suffix), ("states", states)] {
        let (plenty, none) = outputs(&options, 6 * 24, &requests, END);
        // A third request is admitted as soon as less is expected of the first two, which then fill
        // the cache.
        let (few, some) = outputs(&options, 62, &requests, END);
        assert_eq!(none, 0, "{name}");
        // Drafts that are accepted by chance, and outputs that end early, leave room.
        assert!(some > 0 || name != "none", "{name}");
        assert_eq!(few, plenty, "{name}");
    }
}

/// A token that no model has: outputs end by their limit, but that is not certain.
const NEVER: u32 = u32::MAX;

/// A grammar in which each token is one of the five after the one before it.
#[derive(Debug)]
struct Climbing;

#[derive(Debug)]
struct After(u32);

impl Constraint for Climbing {
    fn start(&self) -> Box<dyn Follow> {
        Box::new(After(0))
    }
}

impl Follow for After {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let count = logits.len();
        let allowed: Vec<usize> = (1..=5).map(|step| (self.0 as usize + step) % count).collect();
        let forbidden = logits.iter_mut().enumerate().filter(|(token, _)| !allowed.contains(token));
        forbidden.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
        Ok(())
    }

    fn push(&mut self, token: u32) {
        self.0 = token;
    }
}

/// Requests that are retracted keep their bits on every device, in rounds of a tree and without
/// speculation: greedy and sampled ones, and those whose grammar or penalties have to continue
/// after the output so far.
#[test]
fn a_retracted_request_continues_with_its_grammar_on_every_device() {
    let models = RandomModels::write_seeded(31).expect("a folder");
    let all = [
        Adjustments::default(),
        Adjustments { grammar: Some(Grammar(Arc::new(Climbing))), ..Adjustments::default() },
        adjusted::penalised().adjustments,
        Adjustments { grammar: Some(Grammar(Arc::new(Climbing))), ..Adjustments::default() },
    ];
    let requests: Vec<Request> = (0..8_usize)
        .map(|number| {
            let prompt = (0..12).map(|at| 1 + (number * 7 + at * at) as u32 % 20).collect();
            let sampling = SamplingParams {
                temperature: (number / 4) as f32,
                seed: number as u64,
                adjustments: all[number % all.len()].clone(),
                ..SamplingParams::default()
            };
            Request { sampling, ..request(prompt, 40) }
        })
        .collect();
    let tree = TreeShape::new(3, 2, 6).expect("a shape");
    let mut outputs_of = Vec::new();
    for device in [DeviceChoice::Cpu, DeviceChoice::Emulator] {
        for shape in [TreeShape::OFF, tree] {
            let options = EngineOptions {
                model_path: models.target(Pair::Eagle3),
                draft_model_path: models.draft(Pair::Eagle3),
                dtype: "float32".into(),
                device,
                batch_invariant: true,
                context_length: Some(80),
                max_running_requests: requests.len(),
                page_size: 4,
                policy: ShapePolicy::fixed(shape),
                capture_sizes: vec![2, 4, 8],
                ..EngineOptions::default()
            };
            let (plenty, none) = outputs(&options, 8 * 20, &requests, NEVER);
            // A third request is admitted beside two of which 0.7 of the output is expected, and
            // then all three grow: 13 tokens of prompt and first token, 28 expected or 39 possible
            // ones, and the slack, on pages of four.
            let slack =
                shape.num_draft_tokens + if device == DeviceChoice::Emulator { shape.longest_path() } else { 0 };
            let pages = 2 * (13 + 28 + slack).div_ceil(4) + (13 + 39 + slack).div_ceil(4);
            let (few, some) = outputs(&options, pages, &requests, NEVER);
            assert_eq!(none, 0, "{device:?}, {shape}");
            assert!(some > 0, "{device:?}, {shape}: {some}");
            assert_eq!(few, plenty, "{device:?}, {shape}");
            let climbs = |output: &[u32]| output.windows(2).all(|two| (1..=5).contains(&((24 + two[1] - two[0]) % 24)));
            assert!(climbs(&few[1]) && climbs(&few[7]), "{few:?}");
            outputs_of.push(few);
        }
    }
    // Greedy outputs are also those of the other device and shape.
    assert!(outputs_of.iter().all(|outputs| outputs[..4] == outputs_of[0][..4]), "{outputs_of:?}");
}

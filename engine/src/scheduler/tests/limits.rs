//! Requests that limit their drafts: they get their output, and no more drafts than they allow.

use std::path::Path;

use schemas::tree::TreeShape;

use super::{super::*, CAPACITY, RANDOM, completion, drain, request, scheduler};
use crate::{
    DeviceChoice,
    backend::Capacity,
    load::{Loaded, load},
    request::{Completion, SamplingParams},
};

fn limited(prompt: Vec<u32>, new: usize, most_drafts: Option<usize>) -> Request {
    let sampling = SamplingParams { most_drafts, ..SamplingParams::default() };
    Request { sampling, ..request(prompt, new) }
}

#[test]
fn a_smaller_limit_runs_the_largest_tree_within_it() {
    let (long, short) = (TreeShape::chain(5), TreeShape::chain(2));
    let policy = ShapePolicy::table(vec![(1, long), (8, short)]).expect("two shapes");
    for (most, runs) in [(None, long), (Some(9), long), (Some(5), long), (Some(4), short), (Some(1), TreeShape::OFF)] {
        assert_eq!(policy.within(long, most), runs, "{most:?}");
    }
    assert_eq!(policy.within(TreeShape::OFF, Some(3)), TreeShape::OFF);
}

#[test]
fn shapes_take_turns_and_every_request_gets_its_output() {
    for rounds_in_flight in 1..4 {
        let capacity = Capacity { rounds_in_flight, ..CAPACITY };
        let policy = ShapePolicy::fixed(TreeShape::chain(3));
        let (mut scheduler, world) = scheduler(capacity, RANDOM, policy);
        let limits = [None, Some(0), None, Some(0)];
        let prompts: Vec<Vec<u32>> = (1..5).map(|first| vec![first; 6]).collect();
        let mut submit =
            |prompt: &Vec<u32>, most| scheduler.submit(limited(prompt.clone(), 30, most)).expect("it fits");
        let ids: Vec<RequestId> = prompts.iter().zip(limits).map(|(prompt, most)| submit(prompt, most)).collect();
        let events = drain(&mut scheduler);
        for ((id, prompt), most) in ids.iter().zip(&prompts).zip(limits) {
            let found = completion(&events, *id);
            let (output, rounds, histogram) = super::expected(prompt, 30, if most.is_some() { 0 } else { 3 });
            assert_eq!((found.output_ids, found.rounds, found.accept_histogram), (output, rounds, histogram));
            assert_eq!(found.proposed_drafts, if most.is_some() { 0 } else { 3 * rounds as u64 });
        }
        let world = world.lock().expect("no panic while it was held");
        // Both kinds run from the first rounds on.
        let early: Vec<bool> = world.rounds.iter().take(4).map(|(_, shape)| shape.is_off()).collect();
        assert!(early.contains(&true) && early.contains(&false), "{early:?}");
    }
}

#[test]
fn models_and_looked_up_drafts_keep_limits_and_outputs() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    let suffix = EngineOptions {
        model_path: models.join("target"),
        algorithm: Some("SUFFIX".into()),
        policy: ShapePolicy::fixed(TreeShape::chain(4)),
        device: DeviceChoice::Cpu,
        context_length: Some(128),
        page_size: 4,
        ..EngineOptions::default()
    };
    let eagle = EngineOptions {
        algorithm: None,
        draft_model_path: Some(models.join("eagle3")),
        policy: ShapePolicy::table(vec![(2, TreeShape::chain(2)), (8, TreeShape::chain(4))]).expect("two shapes"),
        ..suffix.clone()
    };
    for (name, options) in [("suffix", suffix), ("eagle3", eagle)] {
        let all = |limits: [Option<usize>; 4]| -> Vec<Completion> {
            let Loaded { mut backend, .. } = load(&options).expect("the model loads");
            let shapes: Vec<TreeShape> = options.policy.shapes().collect();
            backend.prepare(&shapes, &options.graph_sizes(), &mut |_, _| {}).expect("the shapes run");
            let scheduling = SchedulerOptions { largest_batch: 4, prefill_budget: 64, reuse: Reuse::All };
            let scheduler = Scheduler::new(backend, ModelEnds::default(), options.policy.clone(), scheduling);
            let mut scheduler = scheduler.with_texts(options.text_draft());
            let prompt = |number: u32| (0..20).map(|at| 3 + (number * 7 + at * at) % 50).collect();
            let ids = (0..).zip(limits).map(|(number, most)| scheduler.submit(limited(prompt(number), 40, most)));
            let ids: Vec<RequestId> = ids.collect::<Result<_, _>>().expect("they fit");
            let events = drain(&mut scheduler);
            ids.into_iter().map(|id| completion(&events, id)).collect()
        };
        let (free, limited) = (all([None; 4]), all([None, Some(0), Some(2), Some(9)]));
        for (free, limited) in free.iter().zip(&limited) {
            assert_eq!(free.output_ids, limited.output_ids, "{name}");
        }
        assert!(limited[0].proposed_drafts > 0, "{name}");
        assert_eq!((limited[1].proposed_drafts, limited[1].rounds), (0, 39), "{name}");
        assert!(limited[2].proposed_drafts <= 2 * limited[2].rounds as u64, "{name}");
        assert!(limited[2].accept_histogram.len() <= 3, "{name}");
    }
}

//! Which rounds wait for look-ups in texts.

use std::{collections::BTreeSet, path::Path, time::Duration};

use super::*;
use crate::{
    DeviceChoice,
    load::{Loaded, load},
    spec::{SuffixRule, TextSpec},
};

const AHEAD: Capacity = Capacity { rounds_in_flight: 2, ..CAPACITY };
const CHAIN: TreeShape = TreeShape::whole_tree(2, 1, 3);

/// The most rounds that stay in flight after a step, with two requests of different lengths.
fn stays_in_flight(policy: ShapePolicy, with: impl Fn(Scheduler) -> Scheduler) -> (usize, Scheduler) {
    let (scheduler, _) = scheduler(AHEAD, COUNTING, policy);
    let mut scheduler = with(scheduler);
    for new in [9, 12] {
        scheduler.submit(request(vec![1, 2, 3], new)).expect("it fits");
    }
    let mut most = 0;
    while !scheduler.is_idle() {
        scheduler.step(&mut |_| {}).expect("the device works");
        most = most.max(scheduler.in_flight.len());
    }
    (most, scheduler)
}

#[test]
fn rounds_without_speculation_wait_for_no_look_up() {
    let rule = Some(TextSpec::Suffix(SuffixRule::DEFAULT));
    let sources: [fn(Scheduler, Option<TextSpec>) -> Scheduler; 2] =
        [Scheduler::with_texts, Scheduler::with_second_source];
    // The second table speculates with four requests, which do not run here.
    let off = [
        ShapePolicy::fixed(TreeShape::OFF),
        ShapePolicy::table(vec![(2, TreeShape::OFF), (4, CHAIN)]).expect("two rows"),
    ];
    for with in sources {
        for policy in &off {
            let (most, scheduler) = stays_in_flight(policy.clone(), |scheduler| with(scheduler, rule));
            assert_eq!(most, 1, "{policy:?}");
            assert_eq!(scheduler.statistics().stall_time, Duration::ZERO, "{policy:?}");
        }
    }
}

#[test]
fn texts_are_kept_while_rounds_do_not_speculate_if_others_will() {
    let rule = Some(TextSpec::Suffix(SuffixRule::DEFAULT));
    for (policy, is_kept) in [
        (ShapePolicy::fixed(TreeShape::OFF), false),
        (ShapePolicy::table(vec![(2, TreeShape::OFF), (4, CHAIN)]).expect("two rows"), true),
    ] {
        let (_, mut scheduler) = stays_in_flight(policy, |scheduler| scheduler.with_texts(rule));
        let mut texts = scheduler.texts.take().expect("a rule");
        // The tokens that both requests produced.
        texts.update(99, &[100, 101, 102, 103], &[]);
        let found = texts.draft(99, CHAIN);
        assert_eq!(found.nodes().len() > 1, is_kept, "{found:?}");
    }
}

#[test]
fn rounds_tell_the_rows_of_the_drafts_that_were_found() {
    let shape = TreeShape::chain(4);
    let options = EngineOptions {
        model_path: Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny/target"),
        algorithm: Some("SUFFIX".into()),
        policy: ShapePolicy::fixed(shape),
        device: DeviceChoice::Cpu,
        context_length: Some(128),
        page_size: 4,
        ..EngineOptions::default()
    };
    let Loaded { mut backend, .. } = load(&options).expect("the model loads");
    backend.prepare(&[shape], &options.graph_sizes(), &mut |_, _| {}).expect("the shapes run");
    let scheduling = SchedulerOptions { largest_batch: 4, prefill_budget: 64, reuse: Reuse::All };
    let scheduler = Scheduler::new(backend, ModelEnds::default(), options.policy.clone(), scheduling);
    let mut scheduler = scheduler.with_texts(options.text_draft());
    let prompt = (0..20).map(|at| 3 + (at * at) % 50).collect();
    scheduler.submit(request(prompt, 40)).expect("it fits");
    let (mut drafts, mut rows) = (0, BTreeSet::new());
    while !scheduler.is_idle() {
        scheduler.step(&mut |_| {}).expect("the device works");
        for ran in &scheduler.statistics().ran {
            assert_eq!(ran.rows == ran.batch, ran.shape.is_off(), "{ran:?}");
            drafts += ran.rows - ran.batch;
            rows.insert(ran.rows);
        }
    }
    assert_eq!(drafts as u64, scheduler.statistics().proposed_drafts);
    assert!(rows.len() > 1 && rows.contains(&1), "rounds with and without a find: {rows:?}");
}

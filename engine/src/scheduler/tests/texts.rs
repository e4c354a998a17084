//! Which rounds wait for look-ups in texts.

use std::time::Duration;

use super::*;
use crate::spec::{SuffixRule, TextSpec};

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

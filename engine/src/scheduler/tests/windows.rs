//! Window pages: requests hold few of them however long they are, and prefixes are reused where
//! those before their end are kept. The script checks that every pass sees its window.

use schemas::tree::TreeShape;

use super::{super::*, CAPACITY, COUNTING, RANDOM, completion, drain, expected, request, scheduler};
use crate::backend::{Capacity, WindowPages, windows::WindowNeeds};

const WINDOW: usize = 7;
const SHAPE: &str = "3,2,6";

fn needs() -> WindowNeeds {
    let shape: TreeShape = SHAPE.parse().expect("a shape");
    let slack = shape.num_draft_tokens + shape.max_tokens_per_round();
    WindowNeeds { window: WINDOW, page_size: CAPACITY.page_size, slots: CAPACITY.slots, slack, chunk: 12 }
}

fn capacity(kept: usize) -> Capacity {
    let windows = Some(WindowPages { window: WINDOW, count: needs().least() + kept });
    Capacity { pages: 200, context_length: 400, rounds_in_flight: 2, windows, ..CAPACITY }
}

fn policy() -> ShapePolicy {
    ShapePolicy::fixed(SHAPE.parse().expect("a shape"))
}

#[test]
fn long_requests_hold_the_window_pages_of_a_window() {
    let (mut scheduler, _world) = scheduler(capacity(0), COUNTING, policy());
    for first in 1..7 {
        scheduler.submit(request((0..90).map(|at| first + at).collect(), 120)).expect("it fits");
    }
    let (mut most, mut steps) = (0, 0);
    while !scheduler.is_idle() {
        scheduler.step(&mut |_| {}).expect("the device works");
        let held = scheduler.running.iter().filter_map(ScheduledRequest::pages).map(|table| table.windows().len());
        most = held.fold(most, usize::max);
        steps += 1;
    }
    assert!(steps > 50, "{steps}");
    let bound = needs().per_request();
    let page = CAPACITY.page_size;
    assert!(bound <= (WINDOW + needs().slack).div_ceil(page) + 2, "{bound}");
    assert!(most <= bound, "{most} window pages of one request, and at most {bound} are needed");
    assert!(most < 210 / page / 4, "{most}");
}

/// Cached tokens of a request, whose output must be right.
fn cached(scheduler: &mut Scheduler, prompt: &[u32]) -> usize {
    let id = scheduler.submit(request(prompt.to_vec(), 9)).expect("it fits");
    let completion = completion(&drain(scheduler), id);
    assert_eq!(completion.output_ids, expected(prompt, 9, 3).0);
    scheduler.pages.audit(std::iter::empty(), 200);
    completion.cached_tokens
}

fn prompt(kind: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| 1 + (kind * 131 + at * at * 7 + at) % 900).collect()
}

#[test]
fn a_prefix_is_reused_where_the_window_before_its_end_is_kept() {
    let (mut scheduler, _world) = scheduler(capacity(4), RANDOM, policy());
    let text = prompt(1, 60);
    assert_eq!(cached(&mut scheduler, &text[..40]), 0);
    // Its last token always runs, and page keys contain the token after.
    assert_eq!(cached(&mut scheduler, &text), 36);
    // Windows in the middle of prompts are the first to go: what ends there stays.
    for kind in 2..9 {
        assert_eq!(cached(&mut scheduler, &prompt(kind, 60)), 0);
    }
    let found = scheduler.pages.find(scheduler.keys(&request(text.clone(), 1), &text).all());
    assert_eq!(found, 14, "the pages are all there");
    let middle = [&text[..22], &[999; 20]].concat();
    assert_eq!(cached(&mut scheduler, &middle), 0, "the window there is not");
    assert!(scheduler.statistics().window_pages_cached > 0);
    assert_eq!(scheduler.statistics().window_pages_used, 0);
}

#[test]
fn the_window_before_the_end_of_a_prompt_outlives_those_on_the_way() {
    let (mut scheduler, _world) = scheduler(capacity(4), RANDOM, policy());
    let text = prompt(1, 41);
    scheduler.submit(request(text.clone(), 60)).expect("it fits");
    drain(&mut scheduler);
    assert_eq!(cached(&mut scheduler, &prompt(2, 90)), 0);
    assert_eq!(cached(&mut scheduler, &text), 40);
    assert_eq!(cached(&mut scheduler, &[&text[..22], &[999; 20]].concat()), 0, "on the way");
}

#[test]
fn a_page_that_has_lost_its_window_page_gets_that_of_a_copy() {
    let (mut scheduler, _world) = scheduler(capacity(0), RANDOM, policy());
    let text = prompt(1, 60);
    let branch = |kind: u32| [&text[..24], &prompt(kind, 12)].concat();
    assert_eq!(cached(&mut scheduler, &text), 0);
    for kind in 2..8 {
        cached(&mut scheduler, &prompt(kind, 80));
    }
    assert_eq!(cached(&mut scheduler, &branch(20)), 0, "the window at the branch is lost");
    assert_eq!(cached(&mut scheduler, &branch(21)), 20, "it has been computed again");
}

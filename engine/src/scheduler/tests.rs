//! The scheduler with a scripted backend, which itself checks the rules of the interface.

mod first_tokens;
mod growth;
mod limits;
mod load;
mod texts;
mod windows;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;
use schemas::tree::TreeShape;

use super::{
    fake::{DeviceRecord, Fake, NOT_FINITE, Script},
    *,
};
use crate::{
    adjust::{Constraint, Follow, Grammar},
    backend::{Capacity, Decode, WindowPages, windows::WindowNeeds},
    checkpoint::Folder,
    played::Simulated,
    request::{Completion, SamplingParams, StopConditions},
};

const END: u32 = 0;

const CAPACITY: Capacity = Capacity {
    snapshots: None,
    windows: None,
    draft_ahead: 0,
    slots: 4,
    pages: 64,
    page_size: 4,
    context_length: 100,
    vocab_size: 1000,
    prefill_chunk: 8,
    state_chunk: 1,
    rounds_in_flight: 1,
};

/// Random tokens, an end token about once in thirty, and random numbers of accepted drafts:
/// functions of the first token and the position, so that a prompt with its output so far goes on
/// like the prompt.
const RANDOM: Script = Script {
    token: |prompt, at| {
        let number = scramble(&prompt[..1], prompt.len() + at);
        if number.is_multiple_of(29) { END } else { 1 + (number >> 8) as u32 % 999 }
    },
    accepted: |prompt, at, most| scramble(&prompt[..1], prompt.len() + at + 10_000) as usize % (most + 1),
};

/// Tokens 100, 101, 102, … and all drafts accepted.
const COUNTING: Script = Script { token: |_, at| 100 + at as u32, accepted: |_, _, most| most };

fn scramble(prompt: &[u32], at: usize) -> u64 {
    let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    prompt.iter().fold(mix(1, at as u64), |state, token| mix(state, u64::from(*token))) >> 16
}

fn scheduler(capacity: Capacity, script: Script, policy: ShapePolicy) -> (Scheduler, Arc<Mutex<DeviceRecord>>) {
    let (mut fake, world) = Fake::new(capacity, script);
    fake.prepare(&policy.shapes().collect::<Vec<_>>(), &[], &mut |_, _| {}).expect("a script runs any shape");
    let model = ModelEnds { end_tokens: vec![END], text: None };
    let options = SchedulerOptions { largest_batch: capacity.slots, prefill_budget: 12, reuse: Reuse::All };
    (Scheduler::new(Box::new(fake), model, policy, options), world)
}

fn request(prompt: Vec<u32>, new: usize) -> Request {
    Request {
        input_ids: prompt,
        sampling: SamplingParams::default(),
        stop: StopConditions { max_new_tokens: Some(new), ..StopConditions::default() },
    }
}

/// Steps until no request is left.
fn drain(scheduler: &mut Scheduler) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..10_000 {
        if scheduler.is_idle() {
            return events;
        }
        scheduler.step(&mut |event| events.push(event)).expect("the device works");
    }
    panic!("the scheduler does not come to an end");
}

fn completion(events: &[Event], id: RequestId) -> Completion {
    let finished = events.iter().filter_map(|event| match event {
        Event::Finished { request, completion } if *request == id => Some((**completion).clone()),
        _ => None,
    });
    let finished: Vec<Completion> = finished.collect();
    assert_eq!(finished.len(), 1, "request {id:?} ends once");
    finished[0].clone()
}

fn streamed(events: &[Event], id: RequestId) -> Vec<u32> {
    let tokens = events.iter().filter_map(|event| match event {
        Event::Tokens { request, tokens, .. } if *request == id => Some(tokens.iter().map(|token| token.id)),
        _ => None,
    });
    tokens.flatten().collect()
}

/// The expected result of a request: output, rounds, and histogram of accepted drafts, with the
/// last round cut.
fn expected(prompt: &[u32], new: usize, most: usize) -> (Vec<u32>, usize, Vec<u64>) {
    let mut output = vec![(RANDOM.token)(prompt, 0)];
    let (mut rounds, mut histogram) = (0, Vec::new());
    let ended = |output: &[u32]| output.last() == Some(&END) || output.len() == new;
    let mut at = 1;
    while !ended(&output) {
        let accepted = (RANDOM.accepted)(prompt, at, most);
        let mut kept = 0;
        for place in at..=at + accepted {
            output.push((RANDOM.token)(prompt, place));
            kept += 1;
            if ended(&output) {
                break;
            }
        }
        at += accepted + 1;
        rounds += 1;
        let drafts = kept.min(accepted);
        histogram.resize(histogram.len().max(drafts + 1), 0);
        histogram[drafts] += 1;
    }
    (output, rounds, histogram)
}

#[derive(Clone, Debug)]
struct Arrival {
    step: usize,
    prompt: usize,
    new: usize,
    cancelled_after: Option<usize>,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let one = (0..60_usize, 1..40_usize, 1..40_usize, prop::option::weighted(0.2, 0..30_usize))
        .prop_map(|(step, prompt, new, cancelled_after)| Arrival { step, prompt, new, cancelled_after });
    prop::collection::vec(one, 1..40)
}

proptest! {
    #[test]
    fn every_request_gets_its_own_output_and_nothing_leaks(
        mut arrivals in arrivals(),
        slots in 1..6_usize, pages in 12..80_usize, page_size in 1..9_usize, prefill_chunk in 1..20_usize,
        rounds_in_flight in 1..4_usize, snapshots in prop::option::of(0..5_usize),
        windows in prop::option::of((1..20_usize, 0..20_usize)), state_chunk in prop::sample::select(vec![1_usize, 6, 8]),
        shape in prop::sample::select(vec!["0,1,1", "1,1,2", "3,1,4", "3,4,8", "2,8,60"]),
    ) {
        let shape: TreeShape = shape.parse().expect("a shape");
        let ahead = (rounds_in_flight - 1) * shape.max_tokens_per_round();
        let windows = windows.map(|(window, kept)| {
            let needs = WindowNeeds { window, page_size, slots, slack: shape.num_draft_tokens + ahead, chunk: 12 };
            WindowPages { window, count: (needs.least() + kept).min(pages) }
        });
        let limits = Capacity { slots, pages, page_size, prefill_chunk, state_chunk, ..CAPACITY };
        let capacity = Capacity { rounds_in_flight, snapshots, windows, ..limits };
        let (mut scheduler, world) = scheduler(capacity, RANDOM, ShapePolicy::fixed(shape));
        arrivals.sort_by_key(|arrival| arrival.step);
        let mut events = Vec::new();
        let mut accepted: Vec<(RequestId, Vec<u32>, Arrival)> = Vec::new();
        let mut waiting = arrivals.into_iter().enumerate().peekable();
        for step in 0..100 {
            while let Some((number, arrival)) = waiting.next_if(|(_, arrival)| arrival.step <= step) {
                // A few kinds of prompts, so that many share a prefix.
                let prompt: Vec<u32> = (0..arrival.prompt).map(|at| (number % 4 + at * at) as u32 % 1000).collect();
                let fits = (arrival.prompt + arrival.new + shape.num_draft_tokens + ahead).div_ceil(page_size) <= pages;
                let mut request = request(prompt.clone(), arrival.new);
                request.sampling.seed = number as u64;
                match scheduler.submit(request) {
                    Ok(id) => accepted.push((id, prompt, arrival)),
                    Err(error) => prop_assert!(!fits, "{error}"),
                }
            }
            for (id, _, arrival) in &accepted {
                if arrival.cancelled_after.is_some_and(|after| arrival.step + after == step) {
                    scheduler.cancel(*id);
                }
            }
            scheduler.step(&mut |event| events.push(event)).expect("the device works");
            scheduler.pages.audit(scheduler.running.iter().filter_map(ScheduledRequest::pages), pages);
            scheduler.snapshots.iter().for_each(|kept| kept.audit(snapshots.unwrap_or_default()));
        }
        events.extend(drain(&mut scheduler));
        scheduler.pages.audit(std::iter::empty(), pages);

        for (id, prompt, arrival) in &accepted {
            let completion = completion(&events, *id);
            prop_assert_eq!(&streamed(&events, *id), &completion.output_ids);
            let (output, rounds, histogram) = expected(prompt, arrival.new, shape.max_tokens_per_round() - 1);
            if completion.finish_reason == FinishReason::Cancelled {
                prop_assert!(arrival.cancelled_after.is_some() && output.starts_with(&completion.output_ids));
            } else {
                prop_assert_eq!(&completion.output_ids, &output);
                // A retracted request gets a token from its second prefill.
                if completion.retractions == 0 {
                    prop_assert_eq!((completion.rounds, &completion.accept_histogram), (rounds, &histogram));
                }
            }
            prop_assert_eq!(completion.accept_histogram.iter().sum::<u64>(), completion.rounds as u64);
        }
        let world = world.lock().expect("no panic while it was held");
        prop_assert!(world.is_clean());
        let mut seen = BTreeSet::new();
        let first: Vec<u64> = world.opened.iter().copied().filter(|seed| seen.insert(*seed)).collect();
        prop_assert!(first.is_sorted(), "not first come, first served: {:?}", world.opened);
        prop_assert_eq!(scheduler.statistics().retracted as usize, world.opened.len() - first.len());
        prop_assert!(world.prefills.iter().all(|tokens| *tokens <= 12));
        let statistics = scheduler.statistics();
        prop_assert_eq!((statistics.running, statistics.waiting, statistics.pages_used), (0, 0, 0));
        let generated: usize = accepted.iter().map(|(id, ..)| streamed(&events, *id).len()).sum();
        prop_assert_eq!(statistics.generated_tokens, generated as u64);
        prop_assert_eq!(statistics.stopped + statistics.exhausted + statistics.cancelled, accepted.len() as u64);
        prop_assert_eq!(statistics.accept_histogram.iter().sum::<u64>(), statistics.request_rounds);
        prop_assert_eq!(statistics.rounds_by_batch.iter().sum::<u64>(), statistics.rounds);
    }
}

#[test]
fn a_round_is_cut_at_the_token_that_ends_the_request() {
    fn check(stop: StopConditions, output: &[u32], reason: FinishReason, histogram: &[u64]) {
        let policy = ShapePolicy::fixed(TreeShape::chain(3));
        let (mut scheduler, _world) = scheduler(CAPACITY, COUNTING, policy);
        let id = scheduler.submit(Request { stop, ..request(vec![7], 50) }).expect("it fits");
        let completion = completion(&drain(&mut scheduler), id);
        assert_eq!(completion.output_ids, output);
        assert_eq!((completion.finish_reason, completion.accept_histogram), (reason, histogram.to_vec()));
    }
    let stop = |token| StopConditions { stop_token_ids: vec![token], ..StopConditions::default() };
    let most = |tokens| StopConditions { max_new_tokens: Some(tokens), ..StopConditions::default() };
    check(stop(100), &[100], FinishReason::StopToken(100), &[]);
    check(stop(103), &[100, 101, 102, 103], FinishReason::StopToken(103), &[0, 0, 0, 1]);
    check(stop(106), &[100, 101, 102, 103, 104, 105, 106], FinishReason::StopToken(106), &[0, 0, 1, 1]);
    check(most(1), &[100], FinishReason::Length, &[]);
    check(most(2), &[100, 101], FinishReason::Length, &[0, 1]);
    check(most(5), &[100, 101, 102, 103, 104], FinishReason::Length, &[0, 0, 0, 1]);
}

#[test]
fn end_tokens_end_unless_they_are_ignored_and_the_context_ends_all() {
    let ends_at_once = Script { token: |_, at| if at == 1 { END } else { 5 }, ..COUNTING };
    for (ignore_eos, tokens, reason) in [(false, 2, FinishReason::StopToken(END)), (true, 90, FinishReason::Length)] {
        let (mut scheduler, _world) = scheduler(CAPACITY, ends_at_once, ShapePolicy::fixed(TreeShape::OFF));
        let stop = StopConditions { ignore_eos, ..StopConditions::default() };
        let id = scheduler.submit(Request { stop, ..request(vec![7; 10], 1) }).expect("it fits");
        let completion = completion(&drain(&mut scheduler), id);
        assert_eq!((completion.output_ids.len(), completion.finish_reason), (tokens, reason));
    }
}

#[derive(Debug)]
struct Anything;

impl Constraint for Anything {
    fn start(&self) -> Box<dyn Follow> {
        Box::new(Self)
    }
}

impl Follow for Anything {
    fn mask(&mut self, _: &mut [f32]) -> Result<(), String> {
        Ok(())
    }

    fn push(&mut self, _: u32) {}
}

#[test]
fn the_end_of_a_grammar_is_not_ignored() {
    let model = ModelEnds { end_tokens: vec![END], text: None };
    let mut request = request(vec![7; 10], 20);
    request.stop.ignore_eos = true;
    assert!(model.ends(&request).is_empty());
    request.sampling.adjustments.grammar = Some(Grammar(Arc::new(Anything)));
    assert_eq!(model.ends(&request), [END]);
}

#[test]
fn a_stop_string_ends_the_text_before_it_and_the_tokens_with_it() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny/target");
    let folder = Folder::open(folder.as_ref()).expect("the demo model");
    let text = Text::open(&folder).expect("a tokenizer").expect("there is one");
    // The prompt determines the device's output: it is the prompt after its first token.
    let echo = Script { token: |prompt, at| prompt.get(at + 1).copied().unwrap_or(1), accepted: |_, _, most| most };
    let answer = text.encode("let y = 1;\n\nfn next() {}").expect("it encodes");
    let prompt: Vec<u32> = std::iter::once(9).chain(answer.iter().copied()).collect();
    let capacity = Capacity { vocab_size: 2048, ..CAPACITY };
    let (fake, _world) = Fake::new(capacity, echo);
    let model = ModelEnds { end_tokens: vec![1], text: Some(text) };
    let options = SchedulerOptions { largest_batch: 4, prefill_budget: 64, reuse: Reuse::All };
    let mut scheduler = Scheduler::new(Box::new(fake), model, ShapePolicy::fixed(TreeShape::chain(4)), options);
    let stop = StopConditions { stop: vec!["\n\nfn".into()], ..StopConditions::default() };
    let id = scheduler.submit(Request { stop, ..request(prompt, 1) }).expect("it fits");
    let events = drain(&mut scheduler);
    let completion = completion(&events, id);
    assert_eq!((completion.text.as_str(), completion.finish_reason.word()), ("let y = 1;", "stop"));
    assert!(answer.starts_with(&completion.output_ids) && completion.output_ids.len() < answer.len());
    assert_eq!(streamed(&events, id), completion.output_ids);
    let shown = events.iter().filter_map(|event| match event {
        Event::Tokens { text, .. } => Some(text.as_str()),
        Event::Finished { .. } => None,
    });
    assert_eq!(shown.collect::<String>(), completion.text);
}

#[test]
fn the_tree_follows_the_mean_context() {
    let tree = TreeShape::new(2, 2, 5).expect("a shape");
    let policy = ShapePolicy::by_context(vec![(4, 10, tree), (4, usize::MAX, TreeShape::OFF)]).expect("not empty");
    let (mut scheduler, world) = scheduler(CAPACITY, COUNTING, policy);
    scheduler.submit(request(vec![3], 30)).expect("it fits");
    drain(&mut scheduler);
    let world = world.lock().expect("no panic while it was held");
    let off: Vec<bool> = world.rounds.iter().map(|(_, shape)| shape.is_off()).collect();
    assert!(off.is_sorted() && off.first() == Some(&false) && off.last() == Some(&true), "{off:?}");
}

#[test]
fn the_tree_follows_the_running_batch() {
    let (chain, tree) = (TreeShape::chain(3), TreeShape::new(2, 2, 5).expect("a shape"));
    let policy = ShapePolicy::table(vec![(1, tree), (2, chain), (4, TreeShape::OFF)]).expect("not empty");
    let (mut scheduler, world) = scheduler(CAPACITY, COUNTING, policy);
    for new in [4, 12, 12, 40] {
        scheduler.submit(request(vec![new as u32], new)).expect("it fits");
    }
    drain(&mut scheduler);
    let world = world.lock().expect("no panic while it was held");
    for (batch, shape) in &world.rounds {
        assert_eq!(*shape, [tree, chain, TreeShape::OFF, TreeShape::OFF][batch - 1], "batch {batch}");
    }
    assert!(world.rounds.iter().any(|round| round.1 == tree) && world.rounds.iter().any(|round| round.1.is_off()));
}

#[test]
fn a_large_request_is_not_starved_by_small_ones_behind_it() {
    let (mut scheduler, world) =
        scheduler(Capacity { pages: 26, ..CAPACITY }, COUNTING, ShapePolicy::fixed(TreeShape::OFF));
    for (first, new) in [(1, 30), (2, 90), (3, 2), (4, 2)] {
        let sampling = SamplingParams { seed: first, ..SamplingParams::default() };
        let request = Request { sampling, ..request(vec![first as u32], new) };
        scheduler.submit(request).expect("it fits");
    }
    drain(&mut scheduler);
    assert_eq!(world.lock().expect("no panic while it was held").opened, [1, 2, 3, 4]);
}

#[test]
fn requests_that_can_never_run_are_refused_with_the_numbers() {
    fn check(change: impl FnOnce(&mut Request), expected: &[&str]) {
        let (mut scheduler, _world) =
            scheduler(Capacity { pages: 20, ..CAPACITY }, COUNTING, ShapePolicy::fixed(TreeShape::OFF));
        let mut request = request(vec![1, 2], 5);
        change(&mut request);
        let error = scheduler.submit(request).expect_err("it is refused").to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
        assert!(scheduler.is_idle());
    }
    check(|request| request.input_ids.clear(), &["the prompt is empty"]);
    check(|request| request.input_ids = vec![1; 100], &["100 tokens", "context length is 100"]);
    check(|request| request.input_ids[1] = 1000, &["token 1000", "1000"]);
    check(|request| request.stop.max_new_tokens = Some(90), &["2 prompt and 90 new tokens", "24 pages", "has 20"]);
    check(|request| request.stop.stop = vec!["x".into()], &["tokenizer"]);
    check(|request| request.sampling.temperature = f32::NAN, &["temperature is NaN"]);
    check(|request| request.sampling.temperature = -1.0, &["temperature is -1"]);
    check(|request| request.sampling.top_p = 1.5, &["top_p is 1.5"]);
    check(|request| request.sampling.min_p = f32::NAN, &["min_p is NaN"]);
}

#[test]
fn a_request_can_be_cancelled_in_the_queue_while_it_reads_and_while_it_runs() {
    let (mut scheduler, world) =
        scheduler(Capacity { slots: 1, ..CAPACITY }, COUNTING, ShapePolicy::fixed(TreeShape::OFF));
    let ids = [30, 1, 1].map(|prompt| scheduler.submit(request(vec![1; prompt], 20)).expect("it fits"));
    scheduler.step(&mut |_| {}).expect("the device works");
    assert_eq!((scheduler.statistics().running, scheduler.statistics().waiting), (1, 2));
    scheduler.cancel(ids[0]);
    scheduler.cancel(ids[1]);
    scheduler.cancel(RequestId(99));
    let mut events = Vec::new();
    scheduler.step(&mut |event| events.push(event)).expect("the device works");
    for id in &ids[..2] {
        assert_eq!(completion(&events, *id).finish_reason, FinishReason::Cancelled);
    }
    scheduler.cancel(ids[2]);
    events.extend(drain(&mut scheduler));
    let last = completion(&events, ids[2]);
    assert_eq!((last.output_ids, last.finish_reason), (vec![100, 101], FinishReason::Cancelled));
    assert!(world.lock().expect("no panic while it was held").is_clean());
}

#[test]
fn the_policy_changes_only_while_idle() {
    let (mut scheduler, _world) = scheduler(CAPACITY, COUNTING, ShapePolicy::fixed(TreeShape::OFF));
    scheduler.submit(request(vec![1], 3)).expect("it fits");
    let policy = ShapePolicy::fixed(TreeShape::chain(2));
    assert!(scheduler.set_policy(policy.clone(), &[], &mut |_, _| {}).is_err());
    drain(&mut scheduler);
    scheduler.set_policy(policy, &[], &mut |_, _| {}).expect("it is idle");
}

#[test]
fn what_is_in_the_cache_is_not_read_again() {
    let tree = TreeShape::new(2, 2, 5).expect("a shape");
    let (mut scheduler, world) = scheduler(CAPACITY, COUNTING, ShapePolicy::fixed(tree));
    let prompt: Vec<u32> = (0..30).collect();
    let first = scheduler.submit(request(prompt.clone(), 9)).expect("it fits");
    let answer = completion(&drain(&mut scheduler), first);
    assert_eq!((answer.cached_tokens, scheduler.statistics().cached_tokens), (0, 0));
    // The same prompt again: all full pages except the one with the last token, which always runs.
    let again = scheduler.submit(request(prompt.clone(), 9)).expect("it fits");
    assert_eq!(completion(&drain(&mut scheduler), again).cached_tokens, 28);
    // The next turn of a conversation: the answer is cached too, except for its last token.
    let turn: Vec<u32> = prompt.iter().chain(&answer.output_ids).copied().chain([7, 8, 9]).collect();
    let next = scheduler.submit(request(turn, 9)).expect("it fits");
    assert_eq!(completion(&drain(&mut scheduler), next).cached_tokens, 36);
    // Another continuation: the last shared page ends before the first different token, since the
    // draft's row before that token depends on it.
    let other: Vec<u32> = prompt[..20].iter().copied().chain([500; 12]).collect();
    let other = scheduler.submit(request(other, 9)).expect("it fits");
    assert_eq!(completion(&drain(&mut scheduler), other).cached_tokens, 16);
    assert_eq!(world.lock().expect("no panic while it was held").prefills.iter().sum::<usize>(), 30 + 2 + 6 + 16);
}

#[test]
fn samples_of_one_prompt_wait_for_the_first_to_have_read_it() {
    let (mut scheduler, world) = scheduler(CAPACITY, COUNTING, ShapePolicy::fixed(TreeShape::OFF));
    let prompt: Vec<u32> = (0..60).collect();
    for _ in 0..4 {
        scheduler.submit(request(prompt.clone(), 3)).expect("it fits");
    }
    drain(&mut scheduler);
    // The others start when fewer than 32 tokens are left to wait for.
    assert_eq!(scheduler.statistics().cached_tokens, 3 * 32);
    assert_eq!(world.lock().expect("no panic while it was held").prefills.iter().sum::<usize>(), 60 + 3 * 28);
}

#[test]
fn rows_without_a_draft_are_not_used_once_it_speculates() {
    let (mut scheduler, _world) = scheduler(CAPACITY, COUNTING, ShapePolicy::fixed(TreeShape::OFF));
    let prompt: Vec<u32> = (0..30).collect();
    scheduler.submit(request(prompt.clone(), 9)).expect("it fits");
    drain(&mut scheduler);
    scheduler.set_policy(ShapePolicy::fixed(TreeShape::chain(2)), &[], &mut |_, _| {}).expect("it is idle");
    let next = scheduler.submit(request(prompt, 9)).expect("it fits");
    assert_eq!(completion(&drain(&mut scheduler), next).cached_tokens, 0);
}

#[test]
fn rows_that_the_draft_has_left_unread_are_not_used_again() {
    let table = ShapePolicy::table(vec![(1, TreeShape::OFF), (4, TreeShape::chain(2))]).expect("two shapes");
    let (mut scheduler, _world) = scheduler(CAPACITY, COUNTING, table);
    // 30 tokens of the prompt and 8 or 44 of the answer are in the cache; of the answer the draft
    // has processed none, or all but the 32 that it may leave pending.
    for (new, cached) in [(9, 28), (45, 60)] {
        let prompt: Vec<u32> = (new as u32..new as u32 + 30).collect();
        let id = scheduler.submit(request(prompt.clone(), new)).expect("it fits");
        let answer = completion(&drain(&mut scheduler), id);
        let turn = [prompt, answer.output_ids, vec![7, 8, 9]].concat();
        let id = scheduler.submit(request(turn, 1)).expect("it fits");
        assert_eq!(completion(&drain(&mut scheduler), id).cached_tokens, cached, "{new} new tokens");
    }
}

#[test]
fn outputs_that_were_made_up_are_not_used_again_and_prompts_are() {
    let (mut scheduler, _world) = scheduler(CAPACITY, COUNTING, ShapePolicy::fixed(TreeShape::chain(2)));
    let mut first: u32 = 1;
    let mut cached_in_the_next_turn = |scheduler: &mut Scheduler| {
        first += 1;
        let prompt: Vec<u32> = std::iter::once(first).chain(0..29).collect();
        let id = scheduler.submit(request(prompt.clone(), 9)).expect("it fits");
        let answer = completion(&drain(scheduler), id);
        let turn = [prompt, answer.output_ids, vec![7, 8, 9]].concat();
        let id = scheduler.submit(request(turn, 1)).expect("it fits");
        completion(&drain(scheduler), id).cached_tokens
    };
    assert_eq!(cached_in_the_next_turn(&mut scheduler), 36);
    scheduler.simulate_acceptance(Some(Simulated::Length(2.0))).expect("it is idle");
    assert_eq!(cached_in_the_next_turn(&mut scheduler), 28);
    scheduler.simulate_acceptance(None).expect("it is idle");
    assert_eq!(cached_in_the_next_turn(&mut scheduler), 36);
}

#[test]
fn a_round_that_runs_ahead_for_no_request_does_not_keep_the_policy_from_changing() {
    let capacity = Capacity { rounds_in_flight: 2, ..CAPACITY };
    let (mut scheduler, world) = scheduler(capacity, COUNTING, ShapePolicy::fixed(TreeShape::chain(3)));
    let id = scheduler.submit(request(vec![1], 9)).expect("it fits");
    let mut ended = false;
    while !ended {
        let mut watch = |event| ended |= matches!(event, Event::Finished { request, .. } if request == id);
        scheduler.step(&mut watch).expect("the device works");
    }
    assert!(!scheduler.is_idle(), "a round is under way");
    scheduler.set_policy(ShapePolicy::fixed(TreeShape::chain(2)), &[], &mut |_, _| {}).expect("nothing runs");
    assert!(world.lock().expect("no panic while it was held").is_clean());
}

#[test]
fn a_token_that_the_target_has_no_numbers_for_ends_who_wants_it_and_no_other() {
    // Prompts of one token have none after them.
    const BREAKS: Script = Script {
        token: |prompt, at| if at > 5 || prompt.len() == 1 { NOT_FINITE } else { 100 + at as u32 },
        ..COUNTING
    };
    for (rounds_in_flight, shape) in
        [(1, TreeShape::OFF), (2, TreeShape::OFF), (1, TreeShape::chain(3)), (2, TreeShape::chain(3))]
    {
        let capacity = Capacity { rounds_in_flight, ..CAPACITY };
        let (mut scheduler, world) = scheduler(capacity, BREAKS, ShapePolicy::fixed(shape));
        // It ends before that: rounds that run along, or the same one, have no token after its end.
        let stop = StopConditions { stop_token_ids: vec![105], ..StopConditions::default() };
        let id = scheduler.submit(Request { stop, ..request(vec![1, 2, 3], 1) }).expect("it fits");
        let completion = completion(&drain(&mut scheduler), id);
        assert_eq!(completion.output_ids, [100, 101, 102, 103, 104, 105], "{shape}");
        assert!(world.lock().expect("no panic while it was held").is_clean());

        let prompts = [vec![1, 2, 3], vec![7], vec![4, 5, 6]];
        let most = [9, 9, 6];
        let ids: Vec<_> = prompts
            .into_iter()
            .zip(most)
            .map(|(prompt, most)| scheduler.submit(request(prompt, most)).expect("it fits"))
            .collect();
        let events = drain(&mut scheduler);
        let ends = ids
            .into_iter()
            .map(|id| self::completion(&events, id))
            .map(|one| (one.output_ids.len(), one.finish_reason));
        let expected = [(6, FinishReason::NotFinite(9)), (0, FinishReason::NotFinite(1)), (6, FinishReason::Length)];
        assert!(ends.eq(expected), "{shape}: {events:?}");
        assert_eq!(scheduler.statistics().broken, 2);
        assert!(world.lock().expect("no panic while it was held").is_clean());
    }
}

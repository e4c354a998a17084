//! When events are handed out, relative to what the backend is asked to do.

use std::path::Path;

use schemas::tree::TreeShape;

use super::{
    super::{
        recording::{Act, Acts, Recording},
        *,
    },
    CAPACITY, COUNTING, request,
};
use crate::{
    DeviceChoice,
    backend::{Capacity, Decode},
    load::{Loaded, load},
    request::{PromptLogprobs, SamplingParams},
    scheduler::fake::Fake,
};

const SHAPE: TreeShape = TreeShape::whole_tree(2, 1, 3);

/// The demo pair on a device.
fn demo_pair(device: DeviceChoice, tp_size: usize) -> (Scheduler, Acts) {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    let options = EngineOptions {
        model_path: models.join("target"),
        draft_model_path: Some(models.join("eagle3")),
        context_length: Some(64),
        max_running_requests: 4,
        page_size: 4,
        policy: ShapePolicy::fixed(SHAPE),
        device,
        tp_size,
        ..EngineOptions::default()
    };
    let Loaded { backend, .. } = load(&options).expect("the demo pair loads");
    recorded(backend, &options.graph_sizes(), 64)
}

fn scripted(rounds_in_flight: usize, prefill_budget: usize) -> (Scheduler, Acts) {
    let (fake, _world) = Fake::new(Capacity { rounds_in_flight, ..CAPACITY }, COUNTING);
    recorded(Box::new(fake), &[], prefill_budget)
}

fn recorded(backend: Box<dyn Backend>, capture_sizes: &[usize], prefill_budget: usize) -> (Scheduler, Acts) {
    let (mut backend, acts) = Recording::new(backend);
    backend.prepare(&[SHAPE], capture_sizes, &mut |_, _| {}).expect("the shape runs");
    let options = SchedulerOptions { largest_batch: 4, prefill_budget, reuse: Reuse::Off };
    (Scheduler::new(Box::new(backend), ModelEnds::default(), ShapePolicy::fixed(SHAPE), options), acts)
}

fn step(scheduler: &mut Scheduler, acts: &Acts) -> Vec<Act> {
    scheduler.step(&mut |event| acts.event(&event)).expect("the device works");
    acts.take()
}

/// Steps until one reports tokens of this request.
fn step_until_reported(scheduler: &mut Scheduler, acts: &Acts, id: RequestId) -> Vec<Act> {
    for _ in 0..20 {
        let acts = step(scheduler, acts);
        if acts.iter().any(|act| matches!(act, Act::Tokens(reported, _) if *reported == id)) {
            return acts;
        }
    }
    panic!("{id:?} is never told about a token");
}

/// A first token is told before a round that reads it is waited for: for a request that is alone,
/// and for one that joins a running batch. Without rounds in flight it is told while the prefill
/// runs, before the draft has read the prompt and a round is launched. With rounds in flight the
/// next round is launched before the first token is waited for.
fn check(mut scheduler: Scheduler, acts: &Acts) {
    let runs_ahead = scheduler.backend().capacity().rounds_in_flight > 1;
    let alone = scheduler.submit(request(vec![5, 6, 7, 8], 40)).expect("it fits");
    let reported = step(&mut scheduler, acts);
    if runs_ahead {
        assert_eq!(reported, [Act::Prefill, Act::Prefilled, Act::Launch, Act::CollectPrefill, Act::Tokens(alone, 1)]);
    } else {
        assert_eq!(reported[..5], [Act::Prefill, Act::Tokens(alone, 1), Act::Prefilled, Act::Launch, Act::Collect]);
    }

    step(&mut scheduler, acts);
    let joins = scheduler.submit(request(vec![9, 8, 7], 40)).expect("it fits");
    let reported = step(&mut scheduler, acts);
    let of_alone = |act: &&Act| matches!(act, Act::Tokens(id, _) if *id == alone);
    assert!(reported.iter().any(|act| of_alone(&act)), "{reported:?}");
    if runs_ahead {
        // The round that was launched before the prefill is collected while the device works on the
        // prompt.
        assert_eq!(reported[..4], [Act::Prefill, Act::Prefilled, Act::Launch, Act::Collect], "{reported:?}");
        assert_eq!(reported[reported.len() - 2..], [Act::CollectPrefill, Act::Tokens(joins, 1)], "{reported:?}");
        assert_eq!(reported.iter().filter(|act| **act == Act::Collect).count(), 1, "{reported:?}");
    } else {
        assert_eq!(reported[..4], [Act::Prefill, Act::Tokens(joins, 1), Act::Prefilled, Act::Launch], "{reported:?}");
        assert_eq!(reported[4], Act::Collect, "{reported:?}");
    }

    // A request of one token ends without waiting for the next round of the others.
    let short = scheduler.submit(request(vec![3, 2, 1], 1)).expect("it fits");
    let reported = step(&mut scheduler, acts);
    let first = reported.iter().position(|act| *act == Act::Tokens(short, 1)).expect("its token");
    if runs_ahead {
        assert_eq!(
            reported[first - 1..],
            [Act::CollectPrefill, Act::Tokens(short, 1), Act::Finished(short)],
            "{reported:?}"
        );
        assert_eq!(reported[..first].iter().filter(|act| **act == Act::Collect).count(), 1, "{reported:?}");
    } else {
        let expected = [Act::Prefill, Act::Tokens(short, 1), Act::Prefilled, Act::Finished(short), Act::Launch];
        assert_eq!(reported[..5], expected, "{reported:?}");
    }
}

#[test]
fn a_first_token_is_reported_before_a_round_is_waited_for() {
    for rounds_in_flight in [1, 2] {
        let (scheduler, acts) = scripted(rounds_in_flight, 12);
        check(scheduler, &acts);
    }
    let (scheduler, acts) = demo_pair(DeviceChoice::Cpu, 1);
    check(scheduler, &acts);
}

/// Needs a C++ compiler for the emulator.
#[test]
fn a_first_token_is_reported_before_a_round_is_waited_for_on_a_gpu() {
    for ranks in [1, 2] {
        let (scheduler, acts) = demo_pair(DeviceChoice::Emulator, ranks);
        assert_eq!(scheduler.backend().capacity().rounds_in_flight, 2);
        check(scheduler, &acts);
    }
}

#[test]
fn a_prompt_in_pieces_is_reported_with_its_last_piece_and_each_of_several_before_the_round() {
    let (mut scheduler, acts) = scripted(2, 8);
    let [long, other] = [vec![1; 17], vec![2; 3]].map(|prompt| scheduler.submit(request(prompt, 9)).expect("it fits"));
    // Pieces of 8, 8, and 1 with the whole of the other prompt.
    assert_eq!(step(&mut scheduler, &acts), [Act::Prefill, Act::Prefilled, Act::CollectPrefill]);
    assert_eq!(step(&mut scheduler, &acts), [Act::Prefill, Act::Prefilled, Act::CollectPrefill]);
    let reported = step_until_reported(&mut scheduler, &acts, long);
    let first = [Act::Tokens(long, 1), Act::Tokens(other, 1)];
    assert_eq!(reported[..4], [Act::Prefill, Act::Prefilled, Act::Launch, Act::CollectPrefill], "{reported:?}");
    assert_eq!(reported[4..], first, "{reported:?}");
}

/// A request that its first token ends is part of the round that was launched before the token was
/// known, and gets nothing from it; its slot is free when that round is collected.
#[test]
fn a_request_that_its_first_token_ends_gets_nothing_from_the_round_that_was_launched_meanwhile() {
    let (fake, world) = Fake::new(Capacity { rounds_in_flight: 2, ..CAPACITY }, COUNTING);
    let (mut scheduler, acts) = recorded(Box::new(fake), &[], 12);
    let mut short = request(vec![1, 2, 3], 40);
    short.stop.stop_token_ids = vec![100];
    let [short, long] = [short, request(vec![4, 5], 9)].map(|one| scheduler.submit(one).expect("it fits"));
    let reported = step(&mut scheduler, &acts);
    let launched = [Act::Prefill, Act::Prefilled, Act::Launch, Act::CollectPrefill];
    assert_eq!(reported[..4], launched, "{reported:?}");
    assert_eq!(reported[4..], [Act::Tokens(short, 1), Act::Tokens(long, 1), Act::Finished(short)], "{reported:?}");
    let mut rest = Vec::new();
    while !scheduler.is_idle() {
        rest.extend(step(&mut scheduler, &acts));
    }
    let of_short = |act: &Act| matches!(act, Act::Tokens(id, _) | Act::Finished(id) if *id == short);
    assert!(!rest.iter().any(of_short), "{rest:?}");
    assert!(rest.contains(&Act::Finished(long)), "{rest:?}");
    let world = world.lock().expect("no panic while it was held");
    assert!(world.is_clean());
    assert_eq!(world.rounds[0].0, 2);
    assert!(world.rounds[2..].iter().all(|(batch, _)| *batch == 1), "{:?}", world.rounds);
    assert_eq!(scheduler.statistics().generated_tokens, 10);
}

#[test]
fn log_probabilities_of_a_prompt_do_not_delay_its_first_token() {
    for device in [DeviceChoice::Cpu, DeviceChoice::Emulator] {
        let (mut scheduler, acts) = demo_pair(device, 1);
        let prompt_logprobs = Some(PromptLogprobs { from: 0, alternatives: 2 });
        let sampling = SamplingParams { prompt_logprobs, ..SamplingParams::default() };
        let id = scheduler.submit(Request { sampling, ..request(vec![5, 6, 7, 8], 1) }).expect("it fits");
        let mut completion = None;
        scheduler
            .step(&mut |event| {
                acts.event(&event);
                if let Event::Finished { completion: found, .. } = event {
                    completion = Some(found);
                }
            })
            .expect("the device works");
        assert_eq!(acts.take(), [Act::Prefill, Act::Tokens(id, 1), Act::Prefilled, Act::Finished(id)]);
        assert_eq!(completion.expect("it has ended").prompt_logprobs.len(), 3);
    }
}

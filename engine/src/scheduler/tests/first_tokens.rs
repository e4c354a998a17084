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
    backend::Capacity,
    load::{Loaded, load},
    request::{PromptLogprobs, SamplingParams},
    scheduler::fake::Fake,
};

const SHAPE: TreeShape = TreeShape { num_steps: 2, topk: 1, num_draft_tokens: 3 };

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
fn step_until_told(scheduler: &mut Scheduler, acts: &Acts, id: RequestId) -> Vec<Act> {
    for _ in 0..20 {
        let acts = step(scheduler, acts);
        if acts.iter().any(|act| matches!(act, Act::Tokens(told, _) if *told == id)) {
            return acts;
        }
    }
    panic!("{id:?} is never told about a token");
}

/// A first token is told while the prefill runs, before the draft has read the prompt, and before a round is launched or
/// waited for: for a request that is alone, and for one that joins a running batch.
fn check(mut scheduler: Scheduler, acts: &Acts) {
    let flies = scheduler.backend().capacity().rounds_in_flight;
    let alone = scheduler.submit(request(vec![5, 6, 7, 8], 40)).expect("it fits");
    let told = step(&mut scheduler, acts);
    assert_eq!(told[..4], [Act::Prefill, Act::Tokens(alone, 1), Act::Prefilled, Act::Launch], "{told:?}");
    // With several rounds in flight, nothing is waited for.
    assert_eq!(told[4..].first(), (flies == 1).then_some(&Act::Collect), "{told:?}");

    step(&mut scheduler, acts);
    let joins = scheduler.submit(request(vec![9, 8, 7], 40)).expect("it fits");
    let told = step(&mut scheduler, acts);
    assert_eq!(told[..4], [Act::Prefill, Act::Tokens(joins, 1), Act::Prefilled, Act::Launch], "{told:?}");
    // The round of the running request, which was launched before the prefill or after it.
    assert_eq!(told[4], Act::Collect, "{told:?}");
    assert!(told[5..].iter().any(|act| matches!(act, Act::Tokens(id, _) if *id == alone)), "{told:?}");

    // A request of one token ends without waiting for the round of the others.
    let short = scheduler.submit(request(vec![3, 2, 1], 1)).expect("it fits");
    let told = step(&mut scheduler, acts);
    let expected = [Act::Prefill, Act::Tokens(short, 1), Act::Prefilled, Act::Finished(short), Act::Launch];
    assert_eq!(told[..5], expected, "{told:?}");
}

#[test]
fn a_first_token_is_told_before_the_round_is_launched() {
    for rounds_in_flight in [1, 2] {
        let (scheduler, acts) = scripted(rounds_in_flight, 12);
        check(scheduler, &acts);
    }
    let (scheduler, acts) = demo_pair(DeviceChoice::Cpu, 1);
    check(scheduler, &acts);
}

/// Needs a C++ compiler for the emulator.
#[test]
fn a_first_token_is_told_before_the_round_is_launched_on_a_gpu() {
    for ranks in [1, 2] {
        let (scheduler, acts) = demo_pair(DeviceChoice::Emulator, ranks);
        assert_eq!(scheduler.backend().capacity().rounds_in_flight, 2);
        check(scheduler, &acts);
    }
}

#[test]
fn a_prompt_in_pieces_is_told_with_its_last_piece_and_each_of_several_before_the_round() {
    let (mut scheduler, acts) = scripted(2, 8);
    let [long, other] = [vec![1; 17], vec![2; 3]].map(|prompt| scheduler.submit(request(prompt, 9)).expect("it fits"));
    // Pieces of 8, 8, and 1 with the whole of the other prompt.
    assert_eq!(step(&mut scheduler, &acts), [Act::Prefill, Act::Prefilled]);
    assert_eq!(step(&mut scheduler, &acts), [Act::Prefill, Act::Prefilled]);
    let told = step_until_told(&mut scheduler, &acts, long);
    assert_eq!(
        told,
        [Act::Prefill, Act::Tokens(long, 1), Act::Tokens(other, 1), Act::Prefilled, Act::Launch],
        "{told:?}"
    );
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

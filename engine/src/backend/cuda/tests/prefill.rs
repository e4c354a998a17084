//! Prefills that the host does not wait for.

use super::{backend, device, options};
use crate::{
    adjust::Adjustments,
    backend::{Decode, PageId, Prefill, PrefillChunk, Round, Slot, Slots, Yield, cuda::CudaBackend},
    request::SamplingParams,
};
use kernels::device::Element;
use schemas::tree::TreeShape;

const SHAPE: TreeShape = TreeShape::whole_tree(2, 1, 3);

/// A backend that can speculate, in whose slots prompts of this length are about to be prefilled.
fn opened(sampling: &[SamplingParams], length: usize) -> (CudaBackend, Vec<Vec<u32>>) {
    let mut backend = backend(&device(), "eagle3", options(Element::F32));
    backend.prepare(&[SHAPE], &[sampling.len()], &mut |_, _| {}).expect("the shape runs");
    open(&mut backend, sampling);
    let prompt = |slot: usize| (0..length).map(|at| (at * 37 + slot * 101 + 5) as u32 % 512).collect();
    (backend, (0..sampling.len()).map(prompt).collect())
}

fn open(backend: &mut CudaBackend, sampling: &[SamplingParams]) {
    for (slot, sampling) in sampling.iter().enumerate() {
        let pages: Vec<PageId> = (0..100).map(|page| PageId(page + 100 * slot as u32)).collect();
        backend.open(Slot(slot as u32), sampling, &pages, 0).expect("a free slot");
    }
}

fn chunk(slot: usize, tokens: &[u32]) -> PrefillChunk<'_> {
    PrefillChunk { slot: Slot(slot as u32), tokens, start: 0, next: None }
}

fn chunks(prompts: &[Vec<u32>]) -> Vec<PrefillChunk<'_>> {
    prompts.iter().enumerate().map(|(slot, tokens)| chunk(slot, tokens)).collect()
}

/// The first tokens of a prefill and the tokens of a round after it.
fn tokens(backend: &mut CudaBackend, prompts: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let first = backend.prefill_collecting(&chunks(prompts)).expect("prompts");
    let slots: Vec<Slot> = (0..prompts.len()).map(|slot| Slot(slot as u32)).collect();
    let ticket = backend.launch(Round { shape: SHAPE, slots: &slots }).expect("a round");
    let yields = backend.collect(ticket).expect("its tokens").yields;
    let ids = |one: &Yield| one.tokens.iter().map(|token| token.id).collect::<Vec<_>>();
    first.iter().zip(&yields).map(|(first, rest)| [ids(first.as_ref().expect("it ends")), ids(rest)].concat()).collect()
}

/// Log-probabilities of first tokens do not make the host wait either.
#[test]
fn the_draft_and_the_next_round_are_launched_without_waiting_for_the_first_tokens() {
    let described = SamplingParams { logprobs: Some(2), ..SamplingParams::default() };
    for sampling in [SamplingParams::default(), described] {
        let wanted = sampling.logprobs.is_some();
        let sampling = [sampling, SamplingParams::default()];
        let (mut backend, prompts) = opened(&sampling, 12);
        // Graphs are captured at their first use, which waits.
        let expected = tokens(&mut backend, &prompts);
        let slots = [Slot(0), Slot(1)];
        slots.into_iter().for_each(|slot| backend.close(slot));
        open(&mut backend, &sampling);
        backend.prefill_time().expect("that of the warm-up");
        let waits = backend.device.waits();
        let mut early = |_, _| panic!("the host has waited for a first token");
        assert!(backend.prefill(&chunks(&prompts), &mut early).expect("prompts"));
        let ticket = backend.launch(Round { shape: SHAPE, slots: &slots }).expect("a round");
        let mut first = Vec::new();
        backend.collect_prefill(&mut |at, token| first.push((at, token))).expect("first tokens");
        assert_eq!(backend.device.waits(), waits, "logprobs: {wanted}");
        let yields = backend.collect(ticket).expect("its tokens").yields;
        for (slot, (at, token)) in first.into_iter().enumerate() {
            assert_eq!(at, slot);
            let logprobs = token.tokens[0].logprobs.as_ref();
            assert_eq!(logprobs.map(|reported| reported.top.len()), (wanted && slot == 0).then_some(2));
            let all = token.tokens.iter().chain(&yields[slot].tokens).map(|token| token.id);
            assert_eq!(all.collect::<Vec<_>>(), expected[slot]);
        }
        // The round came after the prefill, so its time is known.
        assert!(!backend.prefill_time().expect("a time").is_zero());
        assert!(backend.prefill_time().expect("a time").is_zero());
    }
}

/// More passes than have staging memory, in one call.
#[test]
fn prompts_in_several_passes_yield_what_each_of_them_yields_alone() {
    let (mut backend, prompts) = opened(&vec![SamplingParams::default(); 4], 50);
    assert!(backend.extent.rows < 2 * 50, "two prompts fit into a pass");
    let mut order = Vec::new();
    let mut take = |at, token: Yield| order.push((at, token.tokens[0].id));
    if backend.prefill(&chunks(&prompts), &mut take).expect("prompts") {
        backend.collect_prefill(&mut take).expect("first tokens");
    }
    let (mut alone, _) = opened(&vec![SamplingParams::default(); 4], 50);
    let expected = prompts.iter().enumerate().map(|(slot, tokens)| {
        let first = alone.prefill_collecting(&[chunk(slot, tokens)]).expect("a prompt");
        (slot, first[0].as_ref().expect("it ends").tokens[0].id)
    });
    assert_eq!(order, expected.collect::<Vec<_>>());
}

/// A round with such a request waits for the device before it is launched completely.
#[test]
fn first_tokens_are_not_held_back_by_a_round_that_the_host_takes_part_in() {
    let penalised = Adjustments { repetition_penalty: 1.5, ..Adjustments::default() };
    let adjusted = SamplingParams { adjustments: penalised, ..SamplingParams::default() };
    let (mut backend, prompts) = opened(&[SamplingParams::default(), adjusted], 9);
    backend.adjust(Slot(1), &prompts[1], &[], &[]).expect("an open slot");
    let mut reported = Vec::new();
    let is_in_flight = backend.prefill(&chunks(&prompts), &mut |at, _| reported.push(at)).expect("prompts");
    assert_eq!((is_in_flight, reported), (false, vec![0, 1]));
}

/// First tokens belong to the call that launched their prefill.
#[test]
fn first_tokens_are_collected_before_the_next_prefill() {
    let (mut backend, prompts) = opened(&vec![SamplingParams::default(); 2], 5);
    let both = chunks(&prompts);
    assert!(backend.prefill(&both[..1], &mut |_, _| {}).expect("a prompt"));
    let refused = backend.prefill(&both[1..], &mut |_, _| {}).expect_err("not collected");
    assert!(refused.to_string().contains("have not been collected"), "{refused}");
    backend.collect_prefill(&mut |_, _| {}).expect("a first token");
    assert!(backend.prefill(&both[1..], &mut |_, _| {}).expect("a prompt"));
}

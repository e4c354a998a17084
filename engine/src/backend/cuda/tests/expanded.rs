//! Prompts of latent attention give the same results over expanded keys and values as absorbed.

use kernels::device::Element;

use super::{device, options};
use crate::{
    backend::{
        PageId, Prefill, PrefillChunk, Slot, Slots,
        cuda::{CudaBackend, CudaOptions, Models, WeightSource, load},
    },
    checkpoint::Folder,
    drafts::{DraftTarget, read_own_draft},
    families::read_target,
    options::EngineOptions,
    request::SamplingParams,
    selftest::models::{Pair, RandomModels, VOCABULARY},
};

/// Maximum effect of bfloat16 rounding on a log-probability of this model.
const NOISE: f32 = 0.1;

fn backend(models: &RandomModels, least_spared: usize) -> CudaBackend {
    let folder = Folder::open(&models.target(Pair::DeepSeek)).expect("a target");
    let weights = folder.weights().expect("its tensors");
    let target = read_target(&folder, &weights).expect("its description");
    let read_for = DraftTarget { folder: &folder, spec: &target };
    let draft = read_own_draft(&weights, read_for, &EngineOptions::default()).expect("its MTP layer");
    let from = Models {
        target: (target, WeightSource::Checkpoint(&weights)),
        draft: Some((draft, WeightSource::Checkpoint(&weights))),
    };
    let options = CudaOptions { batch_invariant: false, page_size: 4, ..options(Element::BF16) };
    let mut backend = load(device(), "emulated".into(), from, options, None).expect("a backend");
    backend.machine.least_spared = least_spared;
    backend
}

/// The best alternatives for the first tokens after three prompts. The first pass processes pieces
/// of two prompts; the second processes the short rests of these, which are absorbed in any case,
/// and the third prompt. At none of them are two experts nearly tied, which rounding would decide.
fn first_tokens(backend: &mut CudaBackend) -> Vec<Vec<(u32, f32)>> {
    let prompts = [37, 21, 40].map(|count: usize| (0..count).map(|at| (at * at + at / 3) as u32 % VOCABULARY as u32));
    let [one, other, third] = prompts.map(Vec::from_iter);
    let sampling = SamplingParams { logprobs: Some(6), ..SamplingParams::default() };
    let slots = [Slot(0), Slot(1), Slot(2)];
    for slot in slots {
        let pages: Vec<PageId> = (0..12).map(|page| PageId(35 - 12 * slot.0 - page)).collect();
        backend.open(slot, &sampling, &pages, 0).expect("a free slot");
    }
    let ((begin, rest), (third_begin, third_rest)) = (one.split_at(34), third.split_at(37));
    let pieces = [(slots[0], begin, rest), (slots[2], third_begin, third_rest)];
    let pieces = pieces.map(|(slot, tokens, rest)| PrefillChunk { slot, tokens, start: 0, next: Some(rest[0]) });
    backend.prefill_collecting(&pieces).expect("two pieces");
    let pieces = [(slots[0], rest, begin.len()), (slots[1], &other[..], 0), (slots[2], third_rest, third_begin.len())];
    let pieces = pieces.map(|(slot, tokens, start)| PrefillChunk { slot, tokens, start, next: None });
    let first = backend.prefill_collecting(&pieces).expect("the rest");
    let tokens = first.into_iter().flatten().flat_map(|one| one.tokens);
    tokens.map(|token| token.logprobs.expect("asked for").top).collect()
}

#[test]
fn a_prompt_over_expanded_keys_says_what_an_absorbed_one_says() {
    let models = RandomModels::write().expect("a folder");
    let [mut expanded, mut absorbed] = [0, usize::MAX].map(|least| backend(&models, least));
    assert!(expanded.machine.expanded_positions > 0, "there are kernels for these sizes");
    let (found, expected) = (first_tokens(&mut expanded), first_tokens(&mut absorbed));
    assert_eq!(found.len(), 3, "a token after each prompt");
    assert_ne!(found, expected, "not the same sums");
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!((found.1 - expected.1).abs() < NOISE, "{found:?}, absorbed {expected:?}");
    }
}

//! Compares families with transformers in float32 (`models/families`): logits of the target, and of
//! its MTP layer in use.

use std::{collections::BTreeMap, fs};

use kernels::reference::{Visible, argmax};
use safetensors::SafeTensors;

use super::{
    super::{
        attention::{RowPlacement, SlotRows},
        recurrent::Recurrent,
        target::Target,
    },
    *,
};
use crate::{
    checkpoint::Weights,
    spec::{DraftSpec, Feedback, Join, RecurrentSpec},
};

/// Tolerance between two float32 programs that sum in different orders.
const CLOSE: f32 = 1e-4;
/// Minimum difference where results must differ.
const APART: f32 = 1e-2;

const FAMILIES: [&str; 13] = [
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "qwen3_moe_fused",
    "glm4_moe",
    "glm4_moe_air",
    "glm4_moe_groups",
    "mimo",
    "deepseek_v3",
    "deepseek_v3_direct",
    "gpt_oss",
    "qwen3_5",
    "qwen3_5_moe",
];
const WITH_MTP: [&str; 8] = [
    "glm4_moe",
    "glm4_moe_air",
    "glm4_moe_groups",
    "mimo",
    "deepseek_v3",
    "deepseek_v3_direct",
    "qwen3_5",
    "qwen3_5_moe",
];

struct Golden {
    prompt: Vec<u32>,
    tensors: BTreeMap<String, Vec<f32>>,
}

fn family(name: &str) -> PathBuf {
    root().join("tests/data/families").join(name)
}

fn golden(name: &str) -> Golden {
    let bytes = fs::read(family(name).join("golden.safetensors")).expect("a file");
    let file = SafeTensors::deserialize(&bytes).expect("tensors");
    let prompt = file.tensor("prompt").expect("a prompt");
    let words = |data: &[u8]| data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    Golden {
        prompt: prompt.data().as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as u32).collect(),
        tensors: file
            .tensors()
            .into_iter()
            .filter(|(name, _)| name != "prompt")
            .map(|(name, view)| (name, words(view.data())))
            .collect(),
    }
}

/// The largest difference, with its row and token.
fn difference(found: &[f32], expected: &[f32], width: usize) -> (f32, usize, usize) {
    assert_eq!(found.len(), expected.len());
    let largest = |worst: (f32, usize), (at, (a, b)): (usize, (&f32, &f32))| {
        let off = (a - b).abs();
        // A NaN counts as the largest difference.
        if off > worst.0 || off.is_nan() { (off, at) } else { worst }
    };
    let (off, at) = found.iter().zip(expected).enumerate().fold((0.0, 0), largest);
    (off, at / width, at % width)
}

fn check_close(what: &str, found: &[f32], expected: &[f32], width: usize) {
    let (off, row, token) = difference(found, expected, width);
    assert!(off <= CLOSE, "{what}: row {row}, token {token}: {off} apart");
}

/// Runs `pass` for rows at positions from `start` on that attend to all cache rows up to their own.
fn causal<T>(start: usize, count: usize, pass: impl FnOnce(RowPlacement<'_>) -> T) -> T {
    let all: Vec<u32> = (0..(start + count) as u32).collect();
    let positions: Vec<usize> = (start..start + count).collect();
    let visible: Vec<Visible<'_>> =
        positions.iter().map(|position| Visible { prefix: &all[..=*position], own: &[] }).collect();
    pass(RowPlacement {
        positions: &positions,
        write: &all[start..],
        visible: &visible,
        sequences: &[SlotRows::chain(0, 0..count)],
        windowed: None,
    })
}

/// Final states and logits of a text.
fn read(target: &Target, text: &[u32]) -> (Vec<f32>, Vec<f32>) {
    let mut caches = target.caches(text.len(), text.len(), 1);
    let pass = causal(0, text.len(), |rows| target.forward(text, rows, &mut caches, &[]));
    let logits = target.logits(&pass.hidden);
    (pass.hidden, logits)
}

/// Logits of the MTP layer over a text, and of as many further steps as the reference has.
fn fill_and_chain(target: &Target, draft: &Recurrent, text: &[u32]) -> (Vec<f32>, Vec<f32>) {
    const STEPS: usize = 3;
    let (states, logits) = read(target, text);
    let (width, vocabulary) = (draft.hidden_size(), target.vocab_size());
    let last = |rows: &[f32], width: usize| rows[rows.len() - width..].to_vec();
    let next = argmax(&last(&logits, vocabulary)) as u32;
    let shifted: Vec<u32> = text[1..].iter().copied().chain([next]).collect();
    let mut cache = draft.cache(text.len() + STEPS);
    let mut recurrent = causal(0, text.len(), |rows| draft.forward(&shifted, &states, rows, &mut cache));
    let fill = draft.logits(&recurrent);
    let mut chain = last(&fill, vocabulary);
    for step in 1..STEPS {
        let token = argmax(&last(&chain, vocabulary)) as u32;
        let feature = last(&recurrent, width);
        recurrent = causal(text.len() + step - 1, 1, |rows| draft.forward(&[token], &feature, rows, &mut cache));
        chain.extend(draft.logits(&recurrent));
    }
    (fill, chain)
}

/// A family's weights, its target, and its MTP layer's description.
fn mtp_layer(name: &str) -> (Weights, Target, RecurrentSpec) {
    let (target, draft) = models(&family(name), None);
    let weights = Folder::open(&family(name)).and_then(|folder| folder.weights()).expect("its tensors");
    match draft.map(|draft| draft.spec()) {
        Some(DraftSpec::Recurrent(spec)) => (weights, target, spec),
        other => panic!("{name} has an MTP layer: {other:?}"),
    }
}

#[test]
fn logits_are_those_of_transformers() {
    for name in FAMILIES {
        let (target, _) = models(&family(name), None);
        let golden = golden(name);
        let (_, logits) = read(&target, &golden.prompt);
        check_close(name, &logits, &golden.tensors["logits"], target.vocab_size());
    }
}

#[test]
fn an_mtp_layer_fills_and_chains_as_pytorch_says() {
    for name in WITH_MTP {
        let (weights, target, spec) = mtp_layer(name);
        let draft = Recurrent::load(&weights, spec, &target).expect("an MTP layer");
        let Golden { prompt, tensors } = golden(name);
        let (fill, chain) = fill_and_chain(&target, &draft, &prompt);
        let width = target.vocab_size();
        check_close(&format!("{name} fill"), &fill, &tensors["mtp.fill"], width);
        check_close(&format!("{name} chain"), &chain, &tensors["mtp.chain"], width);
        // The test detects the likely mistakes: feeding back the state before the norm, and
        // swapping the two halves.
        let off = |found: &[f32], wrong: &str| difference(found, &tensors[wrong], width).0;
        assert!(off(&chain, "mtp.chain_without_norm") > APART, "{name}: feedback makes no difference");
        assert!(off(&fill, "mtp.fill_swapped") > APART, "{name}: the order of the halves makes no difference");
    }
}

#[test]
fn feedback_and_order_are_what_the_description_says() {
    for name in WITH_MTP {
        let Golden { prompt, tensors } = golden(name);
        let (weights, target, spec) = mtp_layer(name);
        let Join::NormedLinear { hidden_first, zero_first_embedding } = spec.join else { panic!("{name}: {spec:?}") };
        assert_eq!((spec.feedback, hidden_first), (Feedback::Normed, name == "mimo"));

        let raw = RecurrentSpec { feedback: Feedback::NormedForTokens, ..spec.clone() };
        let raw = Recurrent::load(&weights, raw, &target).expect("the layer");
        let (_, chain) = fill_and_chain(&target, &raw, &prompt);
        check_close(&format!("{name} without norm"), &chain, &tensors["mtp.chain_without_norm"], target.vocab_size());

        let join = Join::NormedLinear { hidden_first: !hidden_first, zero_first_embedding };
        let swapped = Recurrent::load(&weights, RecurrentSpec { join, ..spec.clone() }, &target).expect("the layer");
        let (fill, _) = fill_and_chain(&target, &swapped, &prompt);
        check_close(&format!("{name} swapped"), &fill, &tensors["mtp.fill_swapped"], target.vocab_size());

        // The embedding of the first position: only MiMo zeroes it, and the result depends on it in
        // every family.
        let join = Join::NormedLinear { hidden_first, zero_first_embedding: !zero_first_embedding };
        let other = Recurrent::load(&weights, RecurrentSpec { join, ..spec }, &target).expect("the layer");
        let (fill, _) = fill_and_chain(&target, &other, &prompt);
        assert_eq!(zero_first_embedding, name == "mimo");
        assert!(difference(&fill, &tensors["mtp.fill"], target.vocab_size()).0 > APART, "{name}: position 0");
    }
}

#[test]
fn a_kept_state_continues_like_the_text_that_it_has_read() {
    const KEPT: usize = 16;
    let (tree, page_size) = (shape("3,3,8"), 4);
    let prompt: Vec<u32> = (0..23).map(|at| (at * at * 5 + 11) % 60 + 2).collect();
    for name in ["qwen3_5", "qwen3_5_moe"] {
        let mut backend = backend(name, page_size, 2);
        backend.prepare(&[tree], &[], &mut |_, _| {}).expect("the shape runs");
        let mut run = |slot: Slot, cached: usize, from: Option<Snapshot>| {
            // The first pages are shared; the others are the slot's own.
            let own = (0..20).map(|page| PageId(page + 20 * (slot.0 + 1)));
            let shared = KEPT / page_size;
            let pages: Vec<PageId> = (0..shared as u32).map(PageId).chain(own).collect();
            backend.open(slot, &SamplingParams::default(), &pages, cached).expect("a free slot");
            if let Some(from) = from {
                backend.resume(slot, from).expect("a kept state");
            }
            let read = |backend: &mut CpuBackend, start: usize, end: usize| {
                let (tokens, next) = (&prompt[start..end], prompt.get(end).copied());
                let first = backend.prefill_collecting(&[PrefillChunk { slot, tokens, start, next }]);
                first.expect("a piece")[0].as_ref().map(|_| ())
            };
            if cached == 0 {
                read(&mut backend, 0, KEPT);
                backend.keep(slot, Snapshot(1)).expect("a place");
            }
            read(&mut backend, KEPT, prompt.len()).expect("its first token");
            let mut tokens = Vec::new();
            for _ in 0..6 {
                let ticket = backend.launch(Round { shape: tree, slots: &[slot] }).expect("a round");
                let produced = backend.collect(ticket).expect("its output").yields.swap_remove(0).tokens;
                tokens.push(produced.into_iter().map(|token| token.id).collect::<Vec<_>>());
            }
            backend.close(slot);
            tokens
        };
        let whole = run(Slot(0), 0, None);
        assert_eq!(run(Slot(1), KEPT, Some(Snapshot(1))), whole, "{name}");
        assert_eq!(run(Slot(0), KEPT, Some(Snapshot(1))), whole, "{name}: a state can be used again");
        assert_ne!(run(Slot(1), KEPT, None), whole, "{name}: without its state");
    }
}

fn short_requests(count: u32) -> Vec<(Vec<u32>, SamplingParams)> {
    let prompt = |seed: u32| (0..5 + 7 * seed % 23).map(|at| (at * at * 31 + seed * 97) % 60 + 2).collect();
    let sampling = |seed: u32| match seed % 3 {
        2 => SamplingParams { temperature: 0.7, seed: seed.into(), ..SamplingParams::default() },
        _ => SamplingParams::default(),
    };
    (0..count).map(|seed| (prompt(seed), sampling(seed))).collect()
}

/// The draft's keys and values of a slot, position by position, and its state after the last.
fn draft_state(backend: &CpuBackend, slot: Slot) -> (Vec<f32>, Vec<f32>) {
    let state = backend.slots.get(slot).expect("an open slot");
    let cache = &backend.draft_caches[0];
    (
        state.rows[..state.length].iter().flat_map(|row| cache.row(*row)).collect(),
        state.drafted.clone().expect("it follows"),
    )
}

#[test]
fn an_mtp_layer_has_read_the_same_however_its_text_came_in() {
    let (slot, tree) = (Slot(0), shape("3,3,8"));
    let pages: Vec<PageId> = (0..CONTEXT as u32).map(PageId).collect();
    let prompt: Vec<u32> = (0..29).map(|at| (at * at * 7 + 3) % 60 + 2).collect();
    for name in WITH_MTP {
        let mut backend = backend(name, 1, 1);
        backend.prepare(&[tree], &[], &mut |_, _| {}).expect("the shape runs");
        let read_text = |backend: &mut CpuBackend, text: &[u32], chunk: usize, rounds: usize| {
            backend.open(slot, &SamplingParams::default(), &pages, 0).expect("a free slot");
            let mut text = text.to_vec();
            let mut last = None;
            for (piece, tokens) in text.chunks(chunk).enumerate() {
                let start = piece * chunk;
                let next = text.get(start + tokens.len()).copied();
                let first =
                    backend.prefill_collecting(&[PrefillChunk { slot, tokens, start, next }]).expect("a prompt");
                last = first[0].as_ref().map(|_| first_token(&first[0]));
            }
            for _ in 0..rounds {
                let ticket = backend.launch(Round { shape: tree, slots: &[slot] }).expect("a round");
                let tokens = backend.collect(ticket).expect("its output").yields.swap_remove(0).tokens;
                text.extend(last);
                text.extend(tokens.iter().map(|token| token.id));
                last = text.pop();
            }
            let state = draft_state(backend, slot);
            backend.close(slot);
            (text, state)
        };
        let (_, whole) = read_text(&mut backend, &prompt, CONTEXT, 0);
        for chunk in [1, 4, 10, 28] {
            assert!(read_text(&mut backend, &prompt, chunk, 0).1 == whole, "{name}, chunks of {chunk}");
        }
        // After rounds that accept some drafts and reject others, the state is as if the text had
        // been the prompt.
        for rounds in [1, 2, 7, 20] {
            let (text, behind) = read_text(&mut backend, &prompt, CONTEXT, rounds);
            assert!(text.len() >= prompt.len() + rounds);
            let (_, scratch) = read_text(&mut backend, &text, CONTEXT, 0);
            assert!(behind == scratch, "{name}, {rounds} rounds");
        }
    }
}

#[test]
fn no_family_depends_on_trees_batches_or_pages() {
    for name in FAMILIES {
        let requests = short_requests(8);
        let alone: Vec<Vec<ProducedToken>> = requests
            .iter()
            .flat_map(|request| {
                let plan = Plan {
                    requests: std::slice::from_ref(request),
                    page_size: 16,
                    page_stride: 1,
                    chunk: CONTEXT,
                    shapes: &[TreeShape::OFF],
                };
                run(name, &plan)
            })
            .collect();
        let speculates = WITH_MTP.contains(&name);
        for (batch, page_size, page_stride, chunk, shapes) in
            [(3, 1, 5, 7, "0,1,1"), (1, 16, 1, 3, "1,1,2"), (8, 3, 1, 128, "3,1,4"), (3, 1, 5, 2, "3,4,8 0,1,1 2,3,9")]
        {
            let shapes: Vec<TreeShape> =
                shapes.split(' ').map(|text| if speculates { shape(text) } else { TreeShape::OFF }).collect();
            let requests = &requests[..batch];
            let together = run(name, &Plan { requests, page_size, page_stride, chunk, shapes: &shapes });
            assert!(together == alone[..batch], "{name}: {batch} requests, chunks of {chunk}, {shapes:?}");
        }
    }
}

//! A request's output does not depend on the location of its pages, the chunks of its prompt, the
//! rest of the batch, or which tree runs in which round: each is compared, token by token, with the
//! request run alone without speculation.

mod blocks;
mod families;
mod second_source;
mod standalone;

use std::path::{Path, PathBuf};

use super::*;
use crate::{
    backend::{MAX_PENDING_DRAFT, ProducedToken, WindowPage, WindowPages, first_token},
    checkpoint::Folder,
    drafts::{DraftTarget, read_draft, read_own_draft},
    families::read_target,
    options::EngineOptions,
    spec::StateLayout,
};

const CONTEXT: usize = 192;
const NEW: usize = 40;

/// How a batch is run.
struct Plan<'a> {
    requests: &'a [(Vec<u32>, SamplingParams)],
    page_size: usize,
    /// Distance between consecutive pages of a sequence: 1 uses them in order.
    page_stride: usize,
    chunk: usize,
    /// Used in turn, one per round.
    shapes: &'a [TreeShape],
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A target with its draft: from a separate folder, or else the target's MTP layer, if it has one.
fn models(target: &Path, draft: Option<&Path>) -> (Target, Option<Box<dyn CpuDraft>>) {
    let folder = Folder::open(target).expect("a folder");
    let weights = folder.weights().expect("its tensors");
    let spec = read_target(&folder, &weights).expect("a target");
    let target = Target::load(&weights, spec.clone()).expect("a target");
    let read_for = DraftTarget { folder: &folder, spec: &spec };
    let options = EngineOptions::default();
    let draft = match draft {
        Some(path) => {
            let folder = Folder::open(path).expect("a folder");
            let own = folder.weights().expect("its tensors");
            let draft = read_draft(&folder, &own, read_for, &options).expect("a draft");
            Some(load::load_draft(&own, draft, &target).expect("a draft"))
        }
        None => read_own_draft(&weights, read_for, &options)
            .ok()
            .map(|draft| load::load_draft(&weights, draft, &target).expect("its MTP layer")),
    };
    (target, draft)
}

/// The tiny pair by the name of its head, or a tiny checkpoint of another family with its own MTP
/// layer.
fn backend(name: &str, page_size: usize, slots: usize) -> CpuBackend {
    let (target, draft) = if name.starts_with("eagle") {
        let tiny = root().join("models/tiny");
        models(&tiny.join("target"), Some(&tiny.join(name)))
    } else {
        models(&root().join("tests/data/families").join(name), None)
    };
    let pages = slots * CONTEXT.div_ceil(page_size);
    let capacity = Capacity {
        snapshots: (target.spec().state() != StateLayout::default()).then_some(slots),
        slots,
        pages,
        page_size,
        context_length: CONTEXT,
        vocab_size: target.vocab_size(),
        prefill_chunk: CONTEXT,
        state_chunk: 1,
        rounds_in_flight: 1,
        windows: target.spec().window().map(|window| WindowPages { window, count: pages }),
        draft_ahead: draft.as_deref().map_or(0, CpuDraft::ahead),
    };
    let mut backend = CpuBackend::new(target, draft, capacity);
    let change = |page: usize, to: Option<usize>| WindowChange {
        page: PageId(page as u32),
        to: to.map(|window| WindowPage(window as u32)),
    };
    // Another numbering than that of pages.
    let changes = (0..pages).map(|page| change(page, None));
    let changes: Vec<_> = changes.chain((0..pages).map(|page| change(page, Some(pages - 1 - page)))).collect();
    backend.change_windows(&changes).expect("one for each page");
    backend
}

fn run(head: &str, plan: &Plan<'_>) -> Vec<Vec<ProducedToken>> {
    let count = plan.requests.len();
    let mut backend = backend(head, plan.page_size, count);
    backend.prepare(plan.shapes, &[], &mut |_, _| {}).expect("the shapes run");
    let pages = backend.capacity().pages;
    let each = pages / count;
    let slots: Vec<Slot> = (0..count as u32).map(Slot).collect();
    let mut outputs = Vec::new();
    for (at, ((prompt, sampling), slot)) in plan.requests.iter().zip(&slots).enumerate() {
        let own: Vec<PageId> =
            (at * each..(at + 1) * each).map(|page| PageId((page * plan.page_stride % pages) as u32)).collect();
        backend.open(*slot, sampling, &own, 0).expect("the slot is free");
        let mut first = None;
        for (piece, tokens) in prompt.chunks(plan.chunk).enumerate() {
            let start = piece * plan.chunk;
            let next = prompt.get(start + tokens.len()).copied();
            let produced = backend
                .prefill_collecting(&[PrefillChunk { slot: *slot, tokens, start, next }])
                .expect("the prompt fits");
            first = produced.into_iter().flatten().flat_map(|one| one.tokens).next();
        }
        outputs.push(vec![first.expect("the prompt ends in a token")]);
    }
    for shape in plan.shapes.iter().cycle() {
        // Requests leave when they are done, so rounds run on many subsets of the batch.
        let running: Vec<Slot> = slots.iter().copied().filter(|slot| outputs[slot.0 as usize].len() < NEW).collect();
        if running.is_empty() {
            break;
        }
        let ticket = backend.launch(Round { shape: *shape, slots: &running }).expect("a round");
        let output = backend.collect(ticket).expect("its output");
        for (slot, produced) in running.iter().zip(output.yields) {
            assert!((1..=shape.max_tokens_per_round()).contains(&produced.tokens.len()));
            outputs[slot.0 as usize].extend(produced.tokens);
        }
    }
    outputs.iter_mut().for_each(|output| output.truncate(NEW));
    outputs
}

fn requests() -> Vec<(Vec<u32>, SamplingParams)> {
    let prompt = |seed: u32, length: u32| (0..length).map(|at| (at * at * 31 + seed * 97) % 2000 + 4).collect();
    let sampled = SamplingParams { temperature: 0.8, top_p: 0.95, seed: 5, ..SamplingParams::default() };
    vec![
        (prompt(1, 30), SamplingParams { logprobs: Some(3), ..SamplingParams::default() }),
        (prompt(2, 1), SamplingParams::default()),
        (prompt(3, 47), sampled.clone()),
        (prompt(4, 12), SamplingParams { top_k: 20, seed: 9, ..sampled }),
    ]
}

fn shape(text: &str) -> TreeShape {
    text.parse().expect("a shape")
}

#[test]
fn nothing_but_the_request_decides_what_it_gets() {
    let requests = requests();
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
            run("eagle3", &plan)
        })
        .collect();
    for (page_size, page_stride, chunk, shapes) in [
        (1, 5, 7, "0,1,1"),
        (1, 1, 128, "3,1,4"),
        (3, 17, 10, "3,4,8"),
        (16, 5, 1, "2,3,12"),
        (128, 1, 29, "5,2,9"),
        (7, 5, 16, "0,1,1 4,3,10 1,1,2 0,1,1 6,1,7 2,8,60"),
    ] {
        let shapes: Vec<TreeShape> = shapes.split(' ').map(shape).collect();
        for head in ["eagle3", "eagle2"] {
            let plan = Plan { requests: &requests, page_size, page_stride, chunk, shapes: &shapes };
            let together = run(head, &plan);
            assert!(together == alone, "{head}, pages of {page_size} by {page_stride}, chunks of {chunk}, {shapes:?}");
        }
    }
}

#[test]
fn logprobs_come_best_first_and_only_where_requested() {
    let requests = requests();
    let plan = Plan { requests: &requests[..2], page_size: 16, page_stride: 1, chunk: 64, shapes: &[shape("3,4,8")] };
    let outputs = run("eagle3", &plan);
    for token in &outputs[0] {
        let logprobs = token.logprobs.as_ref().expect("asked for");
        assert_eq!(logprobs.top.len(), 3);
        assert_eq!(logprobs.top[0], (token.id, logprobs.logprob), "a greedy token is the best one");
        assert!(logprobs.logprob <= 0.0 && logprobs.top.is_sorted_by(|a, b| a.1 >= b.1));
    }
    assert!(outputs[1].iter().all(|token| token.logprobs.is_none()));
}

#[test]
fn wrong_use_is_an_error() {
    let mut backend = backend("eagle3", 16, 2);
    let greedy = SamplingParams::default();
    let (slot, other) = (Slot(0), Slot(1));
    let pages: Vec<PageId> = (0..12).map(PageId).collect();
    let message = |error: Option<EngineError>| error.map(|error| error.to_string()).unwrap_or_default();
    assert!(message(backend.open(slot, &greedy, &[PageId(24)], 0).err()).contains("page 24 does not exist"));
    assert!(message(backend.open(Slot(2), &greedy, &pages, 0).err()).contains("slot 2 does not exist"));
    assert!(message(backend.open(slot, &greedy, &pages, 193).err()).contains("12 pages of 16 tokens cannot hold 193"));
    backend.open(slot, &greedy, &pages, 0).expect("a free slot");
    assert!(message(backend.open(slot, &greedy, &pages, 0).err()).contains("slot 0 is in use"));

    let chunk = PrefillChunk { slot, tokens: &[5, 6], start: 0, next: None };
    let refused = [
        (PrefillChunk { slot: other, ..chunk }, "slot 1 is not open"),
        (PrefillChunk { start: 1, ..chunk }, "does not continue"),
        (PrefillChunk { tokens: &[], ..chunk }, "does not continue"),
        (PrefillChunk { tokens: &[5, 2048], ..chunk }, "token 2048 is outside"),
        (PrefillChunk { tokens: &[5; 193], ..chunk }, "do not fit"),
    ];
    for (chunk, expected) in refused {
        let found = message(backend.prefill_collecting(&[chunk]).err());
        assert!(found.contains(expected), "{found}");
    }
    backend.prefill_collecting(&[chunk]).expect("a prompt");

    // Without a speculating shape the draft does not follow the sequence, and cannot continue it
    // later.
    let slots = [slot];
    let round = |shape| Round { shape, slots: &slots };
    let ticket = backend.launch(round(TreeShape::OFF)).expect("a plain round");
    assert!(message(backend.collect(Ticket(77)).err()).contains("was not launched"));
    backend.collect(ticket).expect("the round is still there");
    assert_eq!(backend.pending_draft_tokens(slot), 0);
    backend.prepare(&[TreeShape::OFF, shape("3,1,4")], &[], &mut |_, _| {}).expect("the shapes run");
    assert!(message(backend.launch(round(shape("3,1,4"))).err()).contains("has no cache for slot 0"));
    backend.close(slot);
    assert!(message(backend.launch(round(TreeShape::OFF)).err()).contains("slot 0 is not open"));
}

#[test]
fn the_draft_reads_later_what_plain_rounds_produce_and_never_leaves_too_much() {
    let mut backend = backend("eagle3", 16, 1);
    let (slot, chain) = (Slot(0), shape("3,1,4"));
    let pages: Vec<PageId> = (0..12).map(PageId).collect();
    backend.prepare(&[TreeShape::OFF, chain], &[], &mut |_, _| {}).expect("the shapes run");
    backend.open(slot, &SamplingParams::default(), &pages, 0).expect("a free slot");
    backend.prefill_collecting(&[PrefillChunk { slot, tokens: &[5, 6, 7], start: 0, next: None }]).expect("a prompt");
    let mut run = |shape| {
        let ticket = backend.launch(Round { shape, slots: &[slot] }).expect("a round");
        backend.collect(ticket).expect("its output");
        backend.pending_draft_tokens(slot)
    };
    for pending in 1..MAX_PENDING_DRAFT {
        assert_eq!(run(TreeShape::OFF), pending);
    }
    assert_eq!(run(TreeShape::OFF), 0, "the draft has read them together");
    assert_eq!(run(TreeShape::OFF), 1);
    assert_eq!(run(chain), 0, "and reads what there is when speculation begins again");
}

#[test]
fn the_draft_is_where_it_would_be_had_it_read_every_token_at_once() {
    let (slot, tree) = (Slot(0), shape("3,4,8"));
    let pages: Vec<PageId> = (0..12).map(PageId).collect();
    let (prompt, _) = &requests()[0];
    for head in ["eagle3", "eagle2"] {
        for plain_rounds in [1, 3, MAX_PENDING_DRAFT + 5] {
            let mut backend = backend(head, 16, 1);
            backend.prepare(&[TreeShape::OFF, tree], &[], &mut |_, _| {}).expect("the shapes run");
            let mut text = prompt.clone();
            let mut counts = Vec::new();
            // First the rounds run on the text as it grows; then the same text is prefilled as a
            // prompt.
            for plain_rounds in [plain_rounds, 0] {
                backend.open(slot, &SamplingParams::default(), &pages, 0).expect("a free slot");
                let first = backend.prefill_collecting(&[PrefillChunk { slot, tokens: &text, start: 0, next: None }]);
                let mut last = first_token(&first.expect("a prompt")[0]);
                let mut run = |shape| {
                    let ticket = backend.launch(Round { shape, slots: &[slot] }).expect("a round");
                    backend.collect(ticket).expect("its output").yields.swap_remove(0).tokens
                };
                for _ in 0..plain_rounds {
                    text.push(last);
                    last = run(TreeShape::OFF)[0].id;
                }
                counts.push((0..4).map(|_| run(tree)).collect::<Vec<_>>());
                backend.close(slot);
            }
            assert!(counts[0] == counts[1], "{head} behind {plain_rounds} plain rounds");
        }
    }
}

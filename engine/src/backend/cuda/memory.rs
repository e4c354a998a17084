//! Accounting of device memory before anything is allocated.

use kernels::{
    device::{Buffer, Device, Element},
    launch::DELTA_CHUNK,
};
use schemas::tree::{NodeSource, TreeShape};

use super::{
    device_texts::DeviceTexts,
    gemm::GemmDispatch,
    limits::ROUNDS_IN_FLIGHT,
    machine::{Machine, Ranks},
    options::CudaOptions,
    weights::DraftWeights,
    windows::{SPARE, Windows},
    workspace::{WorkspaceShape, WorkspaceSizes},
};
use crate::{
    backend::{
        Capacity,
        state_places::StatePlaces,
        windows::{PagePlan, WindowNeeds},
    },
    error::EngineError,
    quantization::{Fp8Compute, Quantization, StoredIn, quantised_draft, quantised_target},
    spec::{DraftSpec, PromptLookup},
};

/// Positions past the context that a round may write: its tree, and the tokens of a request that
/// has ended but still runs along.
pub(super) fn slack(options: &CudaOptions, nodes: NodeSource) -> usize {
    let ahead = |shape: &TreeShape| (shape.num_draft_tokens + shape.longest_path()).max(nodes.passes(*shape).1);
    let widest = options.shapes.iter().map(ahead).max().unwrap_or(2);
    2 * widest.max(2)
}

/// The rule by which the device looks up drafts, if it does, and the maximum number of tokens of a
/// text.
pub(super) fn looks_up(options: &CudaOptions, sizes: &WorkspaceSizes<'_>) -> Option<(PromptLookup, usize)> {
    let width = DeviceTexts::width(sizes.table_width * sizes.page_size)?;
    options.looks_up.map(|rule| (rule, width))
}

/// The sizes that determine a loaded machine's workspace.
pub fn sizes(machine: &Machine) -> WorkspaceSizes<'_> {
    WorkspaceSizes {
        chunked_pieces: if machine.chunks_deltas { machine.capacity.slots } else { 0 },
        target: &machine.target.spec,
        draft: machine.draft.as_ref().map(DraftWeights::spec),
        element: machine.kernels.element(),
        splits: machine.splits,
        page_size: machine.capacity.page_size,
        table_width: machine.slots.table_width,
        batch_invariant: machine.batch_invariant,
        expanded_positions: machine.expanded_positions,
        windowed: machine.windows.is_some(),
    }
}

/// Pages for all requests at full length, or as many as the memory share allows.
pub(super) fn capacity(
    device: &Device,
    options: &CudaOptions,
    sizes: &WorkspaceSizes<'_>,
    extent: WorkspaceShape,
) -> Result<Capacity, EngineError> {
    let (free, total) = device.memory()?;
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let weights = sizes.weights();
    let work = sizes.work(extent) + GemmDispatch::WORKSPACE as u64;
    let texts = looks_up(options, sizes).map_or(0, |(_, width)| DeviceTexts::bytes(options.slots, width));
    let rotations = (options.context_length as u64 + 512) * 2048;
    let tables = rotations + (options.slots as u64 + 1) * sizes.pending_slot() + texts;
    // The share refers to the whole device, as in SGLang; memory held by others counts against it.
    let share = (total as f64 * options.mem_fraction_static) as u64;
    let budget = share.saturating_sub(total - free);
    let refused = |what: String, needed: u64, available: u64, hint: &str| {
        Err(EngineError::OutOfMemory {
            what,
            needed_mib: mib(needed),
            available_mib: available >> 20,
            hint: hint.into(),
        })
    };
    if weights > budget {
        let dtype = options.element.name();
        return refused(
            format!("loading the weights as {dtype} ({} MiB of {} MiB are free)", free >> 20, total >> 20),
            weights,
            budget,
            &smaller_format(sizes, budget).unwrap_or_else(|| {
                "raise --mem-fraction-static, use a smaller model, or split it over GPUs (--tp-size)".into()
            }),
        );
    }
    if weights + work + tables > free {
        return refused(
            format!("weights ({} MiB) and the buffers of a pass ({} MiB)", mib(weights), mib(work)),
            weights + work + tables,
            free,
            "lower --max-running-requests, --chunked-prefill-size or --speculative-num-draft-tokens",
        );
    }
    let page = sizes.page();
    // The fraction covers weights and cache only, as in SGLang, but buffers must fit as well.
    let left = (budget - weights).min(free - weights - work - tables);
    let widest = options.shapes.iter().map(|shape| shape.num_draft_tokens).max().unwrap_or(1);
    let draft_ahead = sizes.draft.as_ref().map_or(0, DraftSpec::ahead);
    let wanted =
        (options.context_length + widest + draft_ahead).div_ceil(options.page_size).saturating_mul(options.slots);
    let each = sizes.target.state().bytes(options.element.bytes());
    let states = StatePlaces::within(Some(left), options.states, options.slots, each, wanted)?;
    let tokens_a_round = options.shapes.iter().map(|shape| shape.max_tokens_per_round()).max().unwrap_or(1);
    let needs = sizes.target.window().map(|window| WindowNeeds {
        window,
        page_size: options.page_size,
        slots: states.slots,
        slack: widest + draft_ahead + (ROUNDS_IN_FLIGHT - 1) * tokens_a_round,
        chunk: options.prefill_chunk,
    });
    // Cache rows are indexed with 32-bit integers.
    let most = wanted.min(options.max_pages).min(i32::MAX as usize / 2 / options.page_size);
    let tables = needs.map_or(0, |_| Windows::bytes_of_tables(most, options.slots, sizes.table_width));
    let left = left.saturating_sub(states.bytes + tables);
    let spare = if needs.is_some() { SPARE } else { 1 };
    let PagePlan { pages, windows } = PagePlan::within(Some(left), most, spare, page, needs);
    if pages == 0 {
        return refused(
            "one page of KV cache".into(),
            page.all(),
            left,
            "raise --mem-fraction-static or lower --page-size",
        );
    }
    Ok(Capacity {
        snapshots: states.snapshots,
        windows,
        slots: states.slots,
        pages,
        page_size: options.page_size,
        context_length: options.context_length,
        vocab_size: sizes.target.vocabulary,
        prefill_chunk: options.prefill_chunk,
        state_chunk: if sizes.chunked_pieces > 0 { DELTA_CHUNK } else { 1 },
        rounds_in_flight: ROUNDS_IN_FLIGHT,
        draft_ahead,
    })
}

/// The format in which weights fit into this many bytes, with the flag that chooses it; `None` if
/// they fit in none.
fn smaller_format(sizes: &WorkspaceSizes<'_>, budget: u64) -> Option<String> {
    let found = |flag: &str, bytes: u64| {
        (bytes <= budget).then(|| format!("{flag} would take {} MiB and fit", bytes.div_ceil(1 << 20)))
    };
    if sizes.element == Element::F32 {
        let shorter = WorkspaceSizes { element: Element::BF16, draft: sizes.draft.clone(), ..*sizes };
        return found("--dtype bfloat16", shorter.weights());
    }
    let (by, compute) = (Some(Quantization::Fp8), Fp8Compute::Weights);
    let target = quantised_target(sizes.target.clone(), StoredIn::Nowhere, by, compute).ok()?;
    let draft = sizes.draft.clone().map(|draft| quantised_draft(draft, StoredIn::Nowhere, by, compute));
    let quantised = WorkspaceSizes { target: &target, draft: draft.transpose().ok()?, ..*sizes };
    let bytes = quantised.weights();
    if bytes == sizes.weights() {
        return None;
    }
    found("--quantization fp8", bytes)
}

/// What fits on all ranks.
pub(super) fn agreed(capacity: Capacity, ranks: Option<&Ranks>) -> Result<Capacity, EngineError> {
    let Some(ranks) = ranks else { return Ok(capacity) };
    let least = |one: Capacity, other: Capacity| Capacity {
        pages: one.pages.min(other.pages),
        slots: one.slots.min(other.slots),
        windows: one.windows.min(other.windows),
        snapshots: one.snapshots.min(other.snapshots),
        ..one
    };
    Ok(ranks.meeting.exchange(capacity)?.into_iter().fold(capacity, least))
}

/// Checks that larger buffers fit into free memory once the old ones are freed.
pub fn check_work(
    machine: &Machine,
    device: &Device,
    from: WorkspaceShape,
    to: WorkspaceShape,
) -> Result<(), EngineError> {
    let sizes = sizes(machine);
    // All ranks grow, or none does.
    let free = machine.least(device.memory()?.0)?;
    let scratch = (to.scratch * to.batch) as u64 * sizes.cache_row();
    // The buffers of the old size are freed before those of the new size are allocated.
    let (needed, available) = (sizes.work(to) + scratch, free + sizes.work(from));
    if needed <= available {
        return Ok(());
    }
    Err(EngineError::OutOfMemory {
        what: format!("the buffers for a pass over {} rows", to.rows),
        needed_mib: needed >> 20,
        available_mib: available >> 20,
        hint: "lower --mem-fraction-static, --max-running-requests or --speculative-num-draft-tokens".into(),
    })
}

/// Allocates more scratch rows in the draft's cache; its contents are kept.
pub fn grow_scratch(machine: &mut Machine, rows: usize) -> Result<(), EngineError> {
    let Some(draft) = &machine.draft else { return Ok(()) };
    let layers = draft.spec().layers().len();
    let kv = machine.draft_kv(draft);
    let device = machine.kernels.device();
    // Each plane has its scratch rows at its end, so all planes move.
    let old = machine.plane(kv, machine.cache_rows + machine.scratch_rows);
    let new = machine.plane(kv, machine.cache_rows + rows);
    let kept = machine.plane(kv, machine.cache_rows);
    let cache: Buffer = device.zeros(layers * kv.planes * new)?;
    for plane in 0..layers * kv.planes {
        let from = machine.draft_cache.range(plane * old..plane * old + kept);
        device.copy(cache.range(plane * new..plane * new + kept), from)?;
    }
    // The old cache is freed below, and copies from it may still run.
    device.synchronize()?;
    machine.draft_cache = cache;
    machine.scratch_rows = rows;
    Ok(())
}

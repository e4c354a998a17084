//! Loading, and accounting of host memory before anything is allocated.

use std::path::Path;

use super::{CpuBackend, block::BlockDraft, draft::CpuDraft, model::ModelDraft, recurrent::Recurrent, target::Target};
use crate::{
    backend::{
        Capacity,
        state_places::{StateOptions, StatePlaces},
        windows::{PagePlan, WindowNeeds},
    },
    checkpoint::{Folder, Tensors, Weights},
    description::{Described, cached, describe, windowed},
    drafts::{DraftFrom, DraftTarget, read_draft},
    error::EngineError,
    memory,
    options::EngineOptions,
    quantization::{StoredIn, quantised_draft},
    spec::{DraftSpec, TargetSpec},
};

/// Bytes per weight: the CPU holds all weights as f32.
const ELEMENT: usize = size_of::<f32>();

/// Loads models into host memory, each with its weights.
///
/// # Errors
/// When tensors are missing or have the wrong shape, or memory is insufficient.
pub fn load(
    (spec, weights): (TargetSpec, &Weights),
    draft: Option<(DraftSpec, &Weights)>,
    options: &EngineOptions,
    context_length: usize,
) -> Result<CpuBackend, EngineError> {
    check_memory(&spec, draft.as_ref().map(|(spec, _)| spec))?;
    let target = Target::load(weights, spec)?;
    let draft = draft.map(|(spec, weights)| load_draft(weights, spec, &target)).transpose()?;
    let capacity = capacity(options, &target, draft.as_deref(), context_length)?;
    Ok(CpuBackend::new(target, draft, capacity))
}

/// Loads the draft of a spec. `weights` come from its own folder, or from the target's.
///
/// # Errors
/// When a tensor is missing or has the wrong shape.
pub(super) fn load_draft(
    weights: &Weights,
    spec: DraftSpec,
    target: &Target,
) -> Result<Box<dyn CpuDraft>, EngineError> {
    Ok(match spec {
        DraftSpec::Recurrent(spec) => Box::new(Recurrent::load(weights, spec, target)?),
        DraftSpec::Block(spec) => Box::new(BlockDraft::load(weights, spec, target)?),
        DraftSpec::Model(spec) => Box::new(ModelDraft::load(weights, spec)?),
        DraftSpec::Text(spec) => Box::new(spec),
    })
}

/// Loads the draft of the options' folder, which must have the same description as the loaded one.
///
/// # Errors
/// When the folder cannot be read, or holds another kind of draft.
pub(super) fn other_draft(
    loaded: &dyn CpuDraft,
    target: &Target,
    options: &EngineOptions,
) -> Result<Box<dyn CpuDraft>, EngineError> {
    let folder = Folder::open(&options.model_path)?;
    let Some(DraftFrom::Folder(own)) = DraftFrom::options(options)? else {
        return Err(EngineError::Configuration("swapping drafts across checkpoint folders".into()));
    };
    let weights = own.weights()?;
    let spec = read_draft(&own, &weights, DraftTarget { folder: &folder, spec: target.spec() }, options)?;
    let stored = StoredIn::Checkpoint(Tensors::new(&weights));
    let spec = quantised_draft(spec, stored, options.draft_quantization, options.fp8_compute())?;
    let spec = windowed(spec, options.draft_window)?;
    let spec = cached("draft", options.kv_cache, |format| spec.with_cache(format))?;
    check_draft(&spec, &loaded.spec(), own.path())?;
    load_draft(&weights, spec, target)
}

/// Loads both models of the options' folders, which must have the same descriptions as the loaded
/// ones.
///
/// # Errors
/// When a folder cannot be read or holds different models, or memory for both sets of weights is
/// missing.
pub(super) fn other_models(
    loaded: &Target,
    loaded_draft: Option<&dyn CpuDraft>,
    options: &EngineOptions,
) -> Result<(Target, Option<Box<dyn CpuDraft>>), EngineError> {
    let Described { folder, weights, spec, draft } = describe(options)?;
    if spec.in_plain() != loaded.spec().in_plain() {
        return Err(EngineError::Configuration(format!(
            "{} contains a different model than the loaded one",
            folder.path().display()
        )));
    }
    if let (Some(loaded), Some((spec, _))) = (loaded_draft, &draft) {
        let path = options.draft_model_path.as_ref().unwrap_or(&options.model_path);
        check_draft(spec, &loaded.spec(), path)?;
    }
    check_memory(&spec, draft.as_ref().map(|(spec, _)| spec))?;
    let target = Target::load(&weights, spec)?;
    let own = draft.map(|(spec, own)| load_draft(own.as_ref().unwrap_or(&weights), spec, &target));
    let draft = own.transpose()?;
    Ok((target, draft))
}

/// Checks that the caches of the draft's layers, and what is captured of the target, can be kept.
fn check_draft(found: &DraftSpec, loaded: &DraftSpec, path: &Path) -> Result<(), EngineError> {
    if found.keeps_the_same(loaded) {
        return Ok(());
    }
    let path = path.display();
    Err(EngineError::Configuration(format!("{path} contains a different kind of draft than the loaded one")))
}

/// Fails before anything is allocated if there is not enough memory.
fn check_memory(target: &TargetSpec, draft: Option<&DraftSpec>) -> Result<(), EngineError> {
    let target = &target.in_plain();
    let draft = draft.map_or(0, |draft| draft.in_plain().weight_bytes(target, ELEMENT));
    let needed = target.weight_bytes(ELEMENT) + draft;
    match memory::available() {
        Some(available) if needed > available => Err(EngineError::OutOfMemory {
            what: "weights as float32, which is what the CPU computes in".into(),
            needed_mib: needed >> 20,
            available_mib: available >> 20,
            hint: "use a smaller model, a machine with more memory, or a GPU (--device cuda)".into(),
        }),
        _ => Ok(()),
    }
}

/// Pages for all requests at full length, or as many as the memory share allows.
fn capacity(
    options: &EngineOptions,
    target: &Target,
    draft: Option<&dyn CpuDraft>,
    context_length: usize,
) -> Result<Capacity, EngineError> {
    let tree = options.policy.shapes().map(|shape| shape.num_draft_tokens).max().unwrap_or(1);
    let draft_ahead = draft.map_or(0, CpuDraft::ahead);
    let wanted =
        (context_length + tree + draft_ahead).div_ceil(options.page_size).saturating_mul(options.max_running_requests);
    let page = CpuBackend::page_bytes(target, draft, options.page_size);
    let share = memory::available().map(|bytes| (bytes as f64 * options.mem_fraction_static) as u64);
    let each = target.spec().state().bytes(ELEMENT);
    let states =
        StatePlaces::within(share, StateOptions::from_engine(options), options.max_running_requests, each, wanted)?;
    let share = share.map(|share| share.saturating_sub(states.bytes));
    let prefill_chunk = options.chunked_prefill_size.max(1);
    let needs = target.spec().window().map(|window| WindowNeeds {
        window,
        page_size: options.page_size,
        slots: states.slots,
        slack: tree + draft_ahead,
        chunk: prefill_chunk,
    });
    // Rows are indexed with 32-bit integers.
    let most = wanted.min(options.max_pages()).min(u32::MAX as usize / 2 / options.page_size);
    let PagePlan { pages, windows } = PagePlan::within(share, most, 0, page, needs);
    if pages == 0 {
        return Err(EngineError::OutOfMemory {
            what: "one page of KV cache".into(),
            needed_mib: (page.all() >> 20).max(1),
            available_mib: share.unwrap_or_default() >> 20,
            hint: "raise --mem-fraction-static or lower --page-size".into(),
        });
    }
    Ok(Capacity {
        snapshots: states.snapshots,
        windows,
        slots: states.slots,
        pages,
        page_size: options.page_size,
        context_length,
        vocab_size: target.vocab_size(),
        prefill_chunk,
        state_chunk: 1,
        // The CPU runs a round when it is launched, so launching ahead would only run rounds that
        // no request needs.
        rounds_in_flight: 1,
        draft_ahead,
    })
}

//! Loading, and the account of the machine's memory before anything is taken from it.

use super::{CpuBackend, draft::Draft, target::Target};
use crate::{
    backend::Capacity,
    checkpoint::{Folder, Weights},
    drafts::{DraftFrom, DraftTarget, read_draft},
    error::EngineError,
    memory,
    options::EngineOptions,
    spec::{DraftSpec, TargetSpec},
};

/// Bytes of a weight: the CPU holds all as f32.
const ELEMENT: usize = size_of::<f32>();

/// Loads models, each from its weights, into the machine's memory.
///
/// # Errors
/// When tensors are missing or misshapen, or memory does not suffice.
pub fn load(
    (spec, weights): (TargetSpec, &Weights),
    draft: Option<(DraftSpec, &Weights)>,
    options: &EngineOptions,
    context_length: usize,
) -> Result<CpuBackend, EngineError> {
    check_memory(&spec, draft.as_ref().map(|(spec, _)| spec))?;
    let target = Target::load(weights, spec)?;
    let draft = draft.map(|(spec, weights)| Draft::load(weights, spec, &target)).transpose()?;
    let capacity = capacity(options, &target, draft.as_ref(), context_length)?;
    Ok(CpuBackend::new(target, draft, capacity, options.simulate_accept_length))
}

/// Takes the weights of another folder into a draft of the same description.
///
/// # Errors
/// When the folder cannot be read, or holds another kind of draft.
pub(super) fn exchange(draft: &mut Draft, target: &Target, options: &EngineOptions) -> Result<(), EngineError> {
    let folder = Folder::open(&options.model_path)?;
    let Some(DraftFrom::Folder(own)) = DraftFrom::options(options)? else {
        return Err(EngineError::Configuration("swapping drafts across checkpoint folders".into()));
    };
    let weights = own.weights()?;
    let spec = read_draft(&own, &weights, DraftTarget { folder: &folder, spec: target.spec() }, options)?;
    // The cache of its layer and the captured layers of the target are kept.
    if (spec.layer.in_plain(), &spec.features) != (draft.spec().layer.in_plain(), &draft.spec().features) {
        let path = own.path().display();
        return Err(EngineError::Configuration(format!(
            "{path} contains a different kind of draft than the loaded one"
        )));
    }
    *draft = Draft::load(&weights, spec, target)?;
    Ok(())
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

/// Pages for all requests at full length, or what the memory share allows.
fn capacity(
    options: &EngineOptions,
    target: &Target,
    draft: Option<&Draft>,
    context_length: usize,
) -> Result<Capacity, EngineError> {
    let tree = options.policy.shapes().map(|shape| shape.num_draft_tokens).max().unwrap_or(1);
    let wanted = (context_length + tree).div_ceil(options.page_size).saturating_mul(options.max_running_requests);
    let page = CpuBackend::bytes_a_token(target, draft) * options.page_size as u64;
    let share = memory::available().map(|bytes| (bytes as f64 * options.mem_fraction_static) as u64);
    let affordable = share.map_or(usize::MAX, |bytes| (bytes / page.max(1)) as usize);
    // Rows are numbered in 32 bits.
    let pages = wanted.min(affordable).min(u32::MAX as usize / 2 / options.page_size);
    if pages == 0 {
        return Err(EngineError::OutOfMemory {
            what: "one page of KV cache".into(),
            needed_mib: (page >> 20).max(1),
            available_mib: share.unwrap_or_default() >> 20,
            hint: "raise --mem-fraction-static or lower --page-size".into(),
        });
    }
    Ok(Capacity {
        slots: options.max_running_requests,
        pages,
        page_size: options.page_size,
        context_length,
        vocab_size: target.vocab_size(),
        prefill_chunk: options.chunked_prefill_size.max(1),
        // The CPU runs a round when it is launched, so launching ahead would only run rounds that no request needs.
        rounds_in_flight: 1,
    })
}

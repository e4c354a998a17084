//! The models that options name, as descriptions and access to their tensors, before anything is on
//! a device.

use crate::{
    checkpoint::{Folder, Tensors, Weights},
    drafts::{DraftFrom, DraftTarget, read_draft, read_own_draft},
    error::EngineError,
    families::read_target,
    options::EngineOptions,
    quantization::{StoredIn, quantised_draft, quantised_target},
    spec::{CacheFormat, DraftSpec, TargetSpec},
};

/// The contents of checkpoints: specs, and access to the tensors.
pub(crate) struct Described {
    /// The target's folder.
    pub folder: Folder,
    /// The target's tensors.
    pub weights: Weights,
    /// The target's spec.
    pub spec: TargetSpec,
    /// The draft's spec, with its tensors if they are in a separate folder.
    pub draft: Option<(DraftSpec, Option<Weights>)>,
}

/// Reads the specs of the models in the options' folders.
///
/// # Errors
/// When a file is missing or malformed, or target and draft do not fit together.
pub(crate) fn describe(options: &EngineOptions) -> Result<Described, EngineError> {
    let folder = Folder::open(&options.model_path)?;
    let weights = folder.weights()?;
    let stored = StoredIn::Checkpoint(Tensors::new(&weights));
    let spec = quantised_target(read_target(&folder, &weights)?, stored, options.quantization, options.fp8_compute())?;
    let spec = cached("target", options.kv_cache, |format| spec.with_cache(format))?;
    let draft = DraftFrom::options(options)?;
    let draft = draft.as_ref().map(|draft| draft_of(draft, &folder, &weights, &spec, options)).transpose()?;
    Ok(Described { folder, weights, spec, draft })
}

/// A draft's spec, with its tensors if they are in a separate folder.
fn draft_of(
    draft: &DraftFrom,
    folder: &Folder,
    weights: &Weights,
    spec: &TargetSpec,
    options: &EngineOptions,
) -> Result<(DraftSpec, Option<Weights>), EngineError> {
    let target = DraftTarget { folder, spec };
    let (spec, own) = match draft {
        DraftFrom::Texts(rule) => return Ok((windowed(DraftSpec::Text(*rule), options.draft_window)?, None)),
        DraftFrom::Target => (read_own_draft(weights, target, options)?, None),
        DraftFrom::Folder(folder) => {
            let own = folder.weights()?;
            (read_draft(folder, &own, target, options)?, Some(own))
        }
    };
    let stored = StoredIn::Checkpoint(Tensors::new(own.as_ref().unwrap_or(weights)));
    let spec = quantised_draft(spec, stored, options.draft_quantization, options.fp8_compute())?;
    let spec = windowed(spec, options.draft_window)?;
    Ok((cached("draft", options.kv_cache, |format| spec.with_cache(format))?, own))
}

/// A draft that attends to the last tokens only, if a window is given.
///
/// # Errors
/// When it cannot have one.
pub(crate) fn windowed(draft: DraftSpec, window: Option<usize>) -> Result<DraftSpec, EngineError> {
    let Some(window) = window else { return Ok(draft) };
    draft.with_window(window).map_err(|what| {
        EngineError::Configuration(format!(
            "--speculative-draft-window-size {window}: the {} draft has {what}: remove the flag, or choose another size",
            draft.algorithm()
        ))
    })
}

/// A model with caches in a format.
///
/// # Errors
/// When it has none in this format.
pub(crate) fn cached<M>(
    whose: &str,
    format: CacheFormat,
    with_cache: impl Fn(CacheFormat) -> Result<M, &'static str>,
) -> Result<M, EngineError> {
    with_cache(format).map_err(|kind| {
        EngineError::Configuration(format!(
            "--kv-cache-dtype {}: the {whose} has {kind}, whose cache this engine keeps in the dtype that it computes in: \
             give auto, or remove the flag",
            format.word().unwrap_or("auto")
        ))
    })
}

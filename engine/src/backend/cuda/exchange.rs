//! Replaces weights while the models are loaded.

use std::path::Path;

use kernels::{device::Element, reference::CacheScales};

use super::{
    CudaBackend, Models,
    load::{check_tensors, of_rank},
    weights::{DraftWeights, WeightSource},
};
use crate::{
    backend::Exchange,
    checkpoint::{Tensors, Weights},
    description::{Described, describe},
    error::EngineError,
    options::EngineOptions,
    spec::{CacheScaleNames, DraftSpec},
};

/// New weights that fit the loaded models.
struct Fitting {
    target: Weights,
    draft: Option<(DraftSpec, Option<Weights>)>,
}

/// Checks that a checkpoint has the same scales of caches: recorded rounds have these as constants.
fn check_cache_scales(
    source: WeightSource<'_>,
    loaded: &[(CacheScaleNames, CacheScales)],
    path: &Path,
) -> Result<(), EngineError> {
    let WeightSource::Checkpoint(weights) = source else { return Ok(()) };
    for (names, scales) in loaded {
        if Tensors::new(weights).cache_scales(names)? != *scales {
            return Err(EngineError::Configuration(format!(
                "{} has other scales of the KV cache ({} and others) than the loaded model: start the engine with it \
                 instead of replacing weights, or keep the cache in the dtype of the model (--kv-cache-dtype auto)",
                path.display(),
                names.keys.first().map_or("", String::as_str)
            )));
        }
    }
    Ok(())
}

impl CudaBackend {
    /// Loads the weights of the options' folders. All ranks check them completely before the first
    /// byte is written.
    pub(super) fn take_weights(&mut self, options: &EngineOptions, which: Exchange) -> Result<bool, EngineError> {
        if which == Exchange::Draft && self.machine.draft.is_none() {
            return Ok(false);
        }
        let fitting = self.fitting(options, which);
        // All ranks answer before the first returns its own error; otherwise the others would wait.
        let all_fit = self.machine.least(u64::from(fitting.is_ok()))? == 1;
        let Fitting { target, draft } = fitting?;
        if !all_fit {
            return Err(EngineError::Configuration("another rank cannot load these weights".into()));
        }
        // From here on weights are overwritten in place, and an error leaves a mixture.
        let lost = |error: EngineError| EngineError::Device(format!("only some of the weights were replaced: {error}"));
        self.device.synchronize()?;
        // Memory for one layer is allocated and freed again.
        self.machine.meet()?;
        let machine = &mut self.machine;
        if which == Exchange::All {
            machine.target.overwrite(&machine.kernels, WeightSource::Checkpoint(&target)).map_err(lost)?;
        }
        if let (Some(loaded), Some((spec, own))) = (&mut machine.draft, draft) {
            let source = WeightSource::Checkpoint(own.as_ref().unwrap_or(&target));
            loaded.overwrite(&machine.kernels, source, spec, &machine.target).map_err(lost)?;
        }
        machine.meet()?;
        Ok(true)
    }

    /// The weights of the options' folders, if their models have the same description as the loaded
    /// ones.
    fn fitting(&self, options: &EngineOptions, which: Exchange) -> Result<Fitting, EngineError> {
        let machine = &self.machine;
        let Described { folder, weights, spec, draft } = describe(options)?;
        // Look-ups in texts have no weights.
        let draft = draft.filter(|(spec, _)| !matches!(spec, DraftSpec::Text(_)));
        // As when the model was loaded: float32 computes with plain weights.
        let is_float = self.options.element == Element::F32;
        let spec = if is_float { spec.in_plain() } else { spec };
        let draft = draft.map(|(spec, own)| (if is_float { spec.in_plain() } else { spec }, own));
        let other = |path: &Path, what: &str| {
            let path = path.display();
            EngineError::Configuration(format!("{path} contains a different {what} than the loaded one"))
        };
        let source = WeightSource::Checkpoint(&weights);
        let own = draft.as_ref().and_then(|(_, own)| own.as_ref());
        let of_draft = own.map_or(source, WeightSource::Checkpoint);
        if which == Exchange::All {
            check_tensors(source, spec.tensors().all())?;
        }
        if let Some((spec, _)) = &draft {
            check_tensors(of_draft, spec.tensors(machine.target.spec.vocabulary).iter().collect())?;
        }
        let splits_layers = machine.draft.as_ref().is_some_and(DraftWeights::splits_layers);
        let specs = draft.as_ref().map(|(spec, _)| (spec.clone(), of_draft));
        let whole = Models { target: (spec, source), draft: specs };
        let Models { target: (spec, _), draft: drafted } = of_rank(whole, machine.target.share, splits_layers)?;
        if which == Exchange::All && spec != machine.target.spec {
            return Err(other(folder.path(), "model"));
        }
        let path = options.draft_model_path.as_ref().unwrap_or(&options.model_path);
        if which == Exchange::All {
            check_cache_scales(source, &machine.target.cache_scales(), folder.path())?;
        }
        if let Some(loaded) = &machine.draft {
            check_cache_scales(of_draft, &loaded.cache_scales(), path)?;
        }
        let draft = drafted.map(|(spec, _)| spec).zip(draft.map(|(_, own)| own));
        match (&machine.draft, &draft) {
            // A training run may also change which tokens the draft proposes.
            (Some(loaded), Some((spec, _))) if spec.without_tokens() == loaded.spec().without_tokens() => {}
            (None, None) => {}
            _ => return Err(other(path, "kind of draft")),
        }
        Ok(Fitting { target: weights, draft })
    }
}

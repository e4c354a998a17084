//! Other weights while the models are loaded.

use kernels::device::Element;

use super::{CudaBackend, weights::WeightSource};
use crate::{
    backend::Exchange,
    checkpoint::{Tensors, Weights},
    error::EngineError,
    load::{Described, describe},
    options::EngineOptions,
    spec::{DraftSpec, TensorSpec},
};

impl CudaBackend {
    /// Takes the weights of the options' folders. What they hold is checked whole before the first byte is written.
    pub(super) fn take_weights(&mut self, options: &EngineOptions, which: Exchange) -> Result<bool, EngineError> {
        let machine = &mut self.machine;
        // Ranks would have to agree on it, each with its own part.
        if machine.ranks.is_some() || (which == Exchange::Draft && machine.draft.is_none()) {
            return Ok(false);
        }
        let Described { folder, weights, spec, draft } = describe(options)?;
        let is_float = self.options.element == Element::F32;
        let spec = if is_float { spec.in_plain() } else { spec };
        let draft = draft.map(|(spec, own)| (if is_float { spec.in_plain() } else { spec }, own));
        let other = |path: &std::path::Path, what: &str| {
            let path = path.display();
            EngineError::Configuration(format!("{path} holds another {what} than the one that is loaded"))
        };
        if which == Exchange::All {
            if spec != machine.target.spec {
                return Err(other(folder.path(), "model"));
            }
            check(&weights, spec.tensors().all())?;
        }
        let path = options.draft_model_path.as_ref().unwrap_or(&options.model_path);
        let described = |spec: &DraftSpec| DraftSpec { tokens: None, ..spec.clone() };
        match (&machine.draft, &draft) {
            (Some(loaded), Some((spec, own))) => {
                if described(spec) != described(&loaded.spec) {
                    return Err(other(path, "kind of draft"));
                }
                check(own.as_ref().unwrap_or(&weights), spec.tensors(machine.target.spec.vocabulary).all())?;
            }
            (None, None) => {}
            _ => return Err(other(path, "kind of draft")),
        }
        let lost = |error: EngineError| EngineError::Device(format!("the weights are new in part: {error}"));
        self.device.synchronize()?;
        if which == Exchange::All {
            machine.target.overwrite(&machine.kernels, WeightSource::Checkpoint(&weights)).map_err(lost)?;
        }
        if let (Some(loaded), Some((spec, own))) = (&mut machine.draft, draft) {
            let source = WeightSource::Checkpoint(own.as_ref().unwrap_or(&weights));
            loaded.overwrite(&machine.kernels, source, spec, &machine.target).map_err(lost)?;
        }
        Ok(true)
    }
}

/// That all tensors are there, in their shapes.
fn check<'a>(weights: &Weights, tensors: impl IntoIterator<Item = &'a TensorSpec>) -> Result<(), EngineError> {
    let stored = Tensors::new(weights);
    tensors.into_iter().try_for_each(|tensor| stored.expect(&tensor.name, &tensor.shape))
}

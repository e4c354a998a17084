//! The files of a target and its draft: their specs, the values of their weights, and the location
//! of each tensor in the files. For callers that work on weights themselves, such as training.

use std::path::Path;

use crate::{
    checkpoint::{Folder, TensorPlace, Tensors, Weights},
    drafts::{DraftFrom, DraftTarget, read_draft, read_own_draft},
    error::EngineError,
    families::read_target,
    options::EngineOptions,
    spec::{DraftSpec, TargetSpec, TensorSpec},
};

/// A target and its draft as files.
#[derive(Debug)]
pub struct ModelFiles {
    /// The target's spec.
    pub target: TargetSpec,
    /// The draft's spec, if the options name a draft.
    pub draft: Option<DraftSpec>,
    target_weights: Weights,
    /// Set if the draft has a separate folder.
    draft_weights: Option<Weights>,
}

impl ModelFiles {
    /// Opens the models that the options name.
    ///
    /// # Errors
    /// When files are missing or malformed, or target and draft do not fit together.
    pub fn open(options: &EngineOptions) -> Result<Self, EngineError> {
        let folder = Folder::open(&options.model_path)?;
        let target_weights = folder.weights()?;
        let target = read_target(&folder, &target_weights)?;
        let for_target = DraftTarget { folder: &folder, spec: &target };
        let (draft, draft_weights) = match DraftFrom::options(options)? {
            None => (None, None),
            Some(DraftFrom::Texts(rule)) => (Some(DraftSpec::Text(rule)), None),
            Some(DraftFrom::Target) => (Some(read_own_draft(&target_weights, for_target, options)?), None),
            Some(DraftFrom::Folder(own)) => {
                let weights = own.weights()?;
                (Some(read_draft(&own, &weights, for_target, options)?), Some(weights))
            }
        };
        Ok(Self { target, draft, target_weights, draft_weights })
    }

    /// The folder that holds the draft's tensors.
    pub fn draft_folder(&self) -> &Path {
        self.draft_tensors().folder()
    }

    /// The values of a tensor of the target, as float32.
    ///
    /// # Errors
    /// When it is missing, has another shape, or its dtype is not floating-point.
    pub fn target_values(&self, tensor: &TensorSpec) -> Result<Vec<f32>, EngineError> {
        values(&self.target_weights, tensor)
    }

    /// The values of a tensor of the draft, as float32.
    ///
    /// # Errors
    /// As [`target_values`](Self::target_values).
    pub fn draft_values(&self, tensor: &TensorSpec) -> Result<Vec<f32>, EngineError> {
        values(self.draft_tensors(), tensor)
    }

    /// The location of a tensor of the draft in the files.
    ///
    /// # Errors
    /// As [`target_values`](Self::target_values).
    pub fn draft_place(&self, tensor: &TensorSpec) -> Result<TensorPlace, EngineError> {
        Tensors::new(self.draft_tensors()).place(tensor)
    }

    fn draft_tensors(&self) -> &Weights {
        self.draft_weights.as_ref().unwrap_or(&self.target_weights)
    }
}

fn values(weights: &Weights, tensor: &TensorSpec) -> Result<Vec<f32>, EngineError> {
    let from = Tensors::new(weights);
    match tensor.shape[..] {
        [_, _] => Ok(from.matrix(tensor)?.data().to_vec()),
        _ => from.vector(tensor),
    }
}

//! Scales of the activations that linear layers in FP8 read.

use kernels::reference::Fp8Rows;

use super::{Tensors, Weights};
use crate::{error::EngineError, spec::TensorSpec};

/// Suffixes of a static scale's name after the module's, the more common one first.
/// Compressed-tensors and modelopt write the first one, transformers the second.
const STATIC: [&str; 2] = [".input_scale", ".activation_scale"];

/// How linear layers that read the same rows quantise them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputScales {
    /// Which values share a scale.
    pub layout: Fp8Rows,
    /// The static scale; 1 if scales are dynamic.
    pub fixed: f32,
}

/// Whether a tensor is a static scale of activations.
pub(crate) fn is_input_scale(name: &str) -> bool {
    STATIC.iter().any(|end| name.ends_with(end))
}

impl Tensors<'_> {
    /// Whether the checkpoint has a static scale of the activations that a matrix reads.
    pub fn has_input_scale(&self, matrix: &str) -> bool {
        self.input_scale_name(matrix).is_some()
    }

    /// How linear layers with these matrices quantise the rows that they all read; `None` if they
    /// do not. Their static scale is the largest of theirs, as in SGLang and vLLM, which multiply
    /// such layers as one.
    ///
    /// # Errors
    /// When a static scale is missing, has more than one value, or is not a finite number above 0.
    pub fn input_scales<'t>(
        &self,
        readers: impl IntoIterator<Item = &'t TensorSpec>,
    ) -> Result<Option<InputScales>, EngineError> {
        let mut common: Option<InputScales> = None;
        for matrix in readers {
            let Some(layout) = matrix.rows else { continue };
            let fixed = if layout == Fp8Rows::Tensor { self.input_scale(&matrix.name)? } else { 1.0 };
            let largest = common.map_or(fixed, |scales| scales.fixed.max(fixed));
            common = Some(InputScales { layout, fixed: largest });
        }
        Ok(common)
    }

    fn input_scale(&self, matrix: &str) -> Result<f32, EngineError> {
        match self.input_scale_name(matrix) {
            Some(name) => self.weights().static_scale(&self.full(&name)),
            None => self.weights().static_scale(&format!("{}{}", module(matrix), STATIC[0])),
        }
    }

    fn input_scale_name(&self, matrix: &str) -> Option<String> {
        STATIC.iter().map(|end| format!("{}{end}", module(matrix))).find(|name| self.has(name))
    }
}

impl Weights {
    fn static_scale(&self, name: &str) -> Result<f32, EngineError> {
        match self.shape(name) {
            None => self.expect(name, &[1])?,
            Some([] | [1] | [1, 1]) => {}
            Some(_) => self.expect(name, &[1])?,
        }
        let values = self.scale_values(name)?;
        match values.first().filter(|scale| scale.is_finite() && **scale > 0.0) {
            Some(scale) => Ok(*scale),
            None => {
                let reason = format!("tensor {name}: expected one scale above 0, found {values:?}");
                Err(EngineError::Malformed { path: self.file_of(name).to_owned(), reason })
            }
        }
    }
}

/// The module that a matrix belongs to.
fn module(matrix: &str) -> &str {
    matrix.strip_suffix(".weight").unwrap_or(matrix)
}

//! Matrices stored in FP8, with their published scales: per block (`weight_scale_inv`), per row or
//! per whole matrix (`weight_scale`).
//!
//! The dtype of a tensor decides whether a matrix is quantised, not the lists in config.json.
//! Likewise a tensor decides whether scales of activations are static (`input_scale`,
//! [`fp8_inputs`](super::fp8_inputs)), not `activation_scheme`.

use std::ops::RangeInclusive;

use kernels::reference::{FP8_BLOCK, Fp8Matrix, Fp8Scales};

use super::{
    Weights,
    dtype::{E4M3, element},
};
use crate::error::EngineError;

/// Suffixes of the names of scales, the more common one first.
const SCALES: [&str; 2] = ["_scale_inv", "_scale"];

/// Suffixes of the names of scales that do not belong to a matrix: those of activations, which only
/// 8-bit products read ([`fp8_inputs`](super::fp8_inputs)), and of caches, which are read if the
/// cache is in FP8.
const UNUSED: [&str; 8] = [
    ".input_scale",
    ".activation_scale",
    ".input_scale_ub",
    ".k_scale",
    ".v_scale",
    ".kv_scale",
    ".q_scale",
    ".output_scale",
];

/// How a matrix's scales are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    /// One for the whole matrix.
    Tensor,
    /// One per row.
    Channels,
    /// One per block.
    Blocks,
}

/// The name of the matrix that a tensor of scales belongs to.
pub(crate) fn scaled_matrix(name: &str) -> Option<&str> {
    SCALES.iter().find_map(|end| name.strip_suffix(end)).filter(|matrix| matrix.ends_with(".weight"))
}

/// Whether a tensor holds scales that are not those of a matrix.
pub(crate) fn is_unused_scale(name: &str) -> bool {
    UNUSED.iter().any(|end| name.ends_with(end))
}

impl Weights {
    /// Whether any matrix is stored in FP8.
    pub fn has_fp8(&self) -> bool {
        self.names().any(|name| self.dtype(name) == Some(E4M3))
    }

    /// The layout of a matrix's scales if it is stored in FP8; `None` if it has another format or
    /// does not exist.
    ///
    /// # Errors
    /// As [`fp8`](Self::fp8).
    pub fn fp8_scales(&self, name: &str) -> Result<Option<Fp8Scales>, EngineError> {
        match (self.dtype(name), self.shape(name)) {
            (Some(E4M3), Some([outputs, inputs])) => {
                Ok(Some(self.stored_scales(name, [*outputs, *inputs])?.1.layout()))
            }
            _ => Ok(None),
        }
    }

    /// A matrix stored in FP8; `None` if it has another format. Its numbers stay in the mapped
    /// file.
    ///
    /// # Errors
    /// When the matrix is missing or has another shape, or when its scales are missing, have a
    /// shape that matches neither blocks, rows nor the whole matrix, have a dtype that is not
    /// floating-point, or are not finite.
    pub fn fp8(&self, name: &str, outputs: usize, inputs: usize) -> Result<Option<Fp8Matrix<'_>>, EngineError> {
        self.expect(name, &[outputs, inputs])?;
        if self.dtype(name) != Some(E4M3) {
            return Ok(None);
        }
        let (scales_name, stored) = self.stored_scales(name, [outputs, inputs])?;
        let mut scales = self.scale_values(&scales_name)?;
        if let Some(odd) = scales.iter().find(|scale| !scale.is_finite()) {
            let reason = format!("tensor {scales_name}: a scale is {odd}");
            return Err(EngineError::Malformed { path: self.file_of(&scales_name).to_owned(), reason });
        }
        if stored == Stored::Tensor {
            scales = vec![scales[0]; outputs];
        }
        Ok(Some(Fp8Matrix::new([outputs, inputs], self.raw(name), stored.layout(), scales)))
    }

    /// The name of a matrix's scales, and how they are stored.
    fn stored_scales(&self, name: &str, [outputs, inputs]: [usize; 2]) -> Result<(String, Stored), EngineError> {
        let blocks = vec![outputs.div_ceil(FP8_BLOCK), inputs.div_ceil(FP8_BLOCK)];
        let named = SCALES.map(|end| format!("{name}{end}"));
        let Some(found) = named.iter().find(|scales| self.shape(scales).is_some()) else {
            // The expected name cannot be known; block scales are the more common format.
            let [tensor, _] = named;
            return Err(EngineError::MissingTensor { path: self.file_of(name).to_owned(), tensor, expected: blocks });
        };
        let stored = match self.shape(found).unwrap_or_default() {
            shape if found.ends_with("_inv") && *shape == *blocks => Stored::Blocks,
            [] | [1] | [1, 1] => Stored::Tensor,
            [rows] | [rows, 1] if *rows == outputs => Stored::Channels,
            shape if *shape == *blocks => Stored::Blocks,
            shape => {
                return Err(EngineError::TensorShape {
                    path: self.file_of(found).to_owned(),
                    tensor: found.clone(),
                    expected: if found.ends_with("_inv") { blocks } else { vec![outputs, 1] },
                    found: shape.to_vec(),
                });
            }
        };
        Ok((found.clone(), stored))
    }

    /// The value of a tensor that is one positive, finite number.
    ///
    /// # Errors
    /// When it is not.
    pub(super) fn positive(&self, name: &str) -> Result<f32, EngineError> {
        match self.scale_values(name)?.as_slice() {
            [scale] if *scale > 0.0 && scale.is_finite() => Ok(*scale),
            [scale] => {
                let reason = format!("tensor {name}: the scale is {scale}, expected a positive number");
                Err(EngineError::Malformed { path: self.file_of(name).to_owned(), reason })
            }
            _ => Err(EngineError::TensorShape {
                path: self.file_of(name).to_owned(),
                tensor: name.to_owned(),
                expected: vec![1],
                found: self.shape(name).unwrap_or_default().to_vec(),
            }),
        }
    }

    pub(super) fn scale_values(&self, name: &str) -> Result<Vec<f32>, EngineError> {
        let bytes = self.raw(name);
        match self.dtype(name) {
            // E8M0: powers of two, stored as an exponent only.
            Some("F8_E8M0") => Ok(bytes.iter().map(|exponent| power_of_two(*exponent)).collect()),
            dtype => match dtype.and_then(element) {
                Some(element) => Ok(element.decode(&bytes)),
                None => Err(self.dtype_error(name, "F32, BF16, F16 or F8_E8M0")),
            },
        }
    }
}

impl Stored {
    fn layout(self) -> Fp8Scales {
        match self {
            Self::Tensor | Self::Channels => Fp8Scales::Channels,
            Self::Blocks => Fp8Scales::Blocks,
        }
    }
}

/// 2^(exponent − 127); NaN for 255.
fn power_of_two(exponent: u8) -> f32 {
    const FINITE: RangeInclusive<u8> = 0..=254;
    if FINITE.contains(&exponent) { 2.0_f32.powi(i32::from(exponent) - 127) } else { f32::NAN }
}

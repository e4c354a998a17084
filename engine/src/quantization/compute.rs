//! How linear layers with weights in FP8 multiply, and in which layers inputs are quantised.

use kernels::reference::{Fp8Rows, Fp8Scales};

use super::StoredIn;
use crate::{
    error::EngineError,
    spec::{LayerSpec, TensorSpec, WeightFormat},
};

/// How linear layers whose weights are in FP8 multiply: one mode per process, prompts included. The
/// number of rows chooses a kernel, never the numbers, since otherwise a tree and no speculation
/// would be different models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fp8Compute {
    /// Weights are dequantised on the way to 16-bit products (float32 on the CPU); activations keep
    /// the compute type.
    #[default]
    Weights,
    /// Both factors are in FP8: the inputs of these layers are rounded to e4m3 first, with the
    /// scales that [`Fp8Rows`] describes.
    Products,
}

impl Fp8Compute {
    /// Parses a value of `--fp8-compute`.
    ///
    /// # Errors
    /// When it is neither of the two.
    pub fn parse(flag: &str, name: &str) -> Result<Self, EngineError> {
        match name {
            "weights" => Ok(Self::Weights),
            "products" => Ok(Self::Products),
            other => Err(EngineError::Configuration(format!(
                "{flag} {other}: expected weights (16-bit products of dequantised weights) or products (8-bit products of \
                 quantised activations)"
            ))),
        }
    }

    /// Its name in `--fp8-compute`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Products => "products",
        }
    }
}

/// How the linear layers of a part of a layer quantise their inputs; `None` if they do not.
///
/// Static scales are used if the checkpoint has them. Others are dynamic: per row and 128 columns
/// if the weights' scales are per block, and per row if not.
///
/// # Errors
/// When not all of them have a static scale, or some are stored in FP8 but dequantised.
pub(super) fn rows_of(
    matrices: &[&TensorSpec],
    format: WeightFormat,
    stored: StoredIn<'_>,
    compute: Fp8Compute,
) -> Result<Option<Fp8Rows>, EngineError> {
    if compute == Fp8Compute::Weights {
        return Ok(None);
    }
    let StoredIn::Checkpoint(tensors) = stored else { return Ok(format.fp8().map(dynamic)) };
    let Some(scales) = format.fp8() else {
        let is_fp8 = |matrix: &&&TensorSpec| tensors.fp8_scales(&matrix.name).is_ok_and(|scales| scales.is_some());
        return match matrices.iter().find(is_fp8) {
            None => Ok(None),
            Some(matrix) => Err(EngineError::Configuration(format!(
                "--fp8-compute products: {} is in FP8, but is dequantised, since other matrices of the same part of its \
                 layer have another format or other scales: give --fp8-compute weights",
                matrix.name
            ))),
        };
    };
    let (with, without): (Vec<&TensorSpec>, Vec<_>) =
        matrices.iter().copied().partition(|matrix| tensors.has_input_scale(&matrix.name));
    match (with.first(), without.first()) {
        (None, _) => Ok(Some(dynamic(scales))),
        (Some(_), None) => Ok(Some(Fp8Rows::Tensor)),
        (Some(with), Some(without)) => Err(EngineError::Configuration(format!(
            "--fp8-compute products: the checkpoint has a static scale of the inputs of {}, but none of those of {}: give \
             --fp8-compute weights",
            with.name, without.name
        ))),
    }
}

/// What the engines that serve such weights do without static scales.
fn dynamic(weights: Fp8Scales) -> Fp8Rows {
    match weights {
        Fp8Scales::Channels => Fp8Rows::Row,
        Fp8Scales::Blocks | Fp8Scales::RowBlocks => Fp8Rows::RowBlocks,
    }
}

/// The mode of a model: `None` if none of its layers is in FP8.
pub fn computed<'l>(layers: impl IntoIterator<Item = &'l LayerSpec>) -> Option<Fp8Compute> {
    let formats: Vec<_> = layers.into_iter().map(|layer| layer.formats).collect();
    let multiplies = formats.iter().any(|formats| formats.attention_rows.or(formats.ffn_rows).is_some());
    let is_fp8 = formats.iter().any(|formats| formats.attention.fp8().or(formats.ffn.fp8()).is_some());
    is_fp8.then_some(if multiplies { Fp8Compute::Products } else { Fp8Compute::Weights })
}

/// In words, how activations are quantised.
pub(super) fn in_words(rows: Fp8Rows) -> &'static str {
    match rows {
        Fp8Rows::Tensor => "static scales",
        Fp8Rows::Row => "one scale per row",
        Fp8Rows::RowBlocks => "one scale per row and 128 columns",
    }
}

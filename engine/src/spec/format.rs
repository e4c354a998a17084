//! Formats of weights in memory.

use kernels::reference::{Fp8Rows, Fp8Scales, MXFP4_BLOCK};

/// Format of a tensor's values in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// The type that the engine computes in.
    #[default]
    Plain,
    /// Float32, regardless of the type that the engine computes in.
    Float32,
    /// FP8 (e4m3), one byte per value, with float32 scales. The CPU computes with the same values
    /// in float32.
    Fp8(Fp8Scales),
    /// MXFP4: four bits per value, and a power of two per 32 values of a row. The CPU computes with
    /// the same values in float32.
    Mxfp4,
}

/// Formats of the matrices of a layer's linear layers. Norms, biases and routers are always
/// [`WeightFormat::Plain`], as are embeddings, vocabulary heads and the projections that join a
/// draft's inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerFormats {
    /// Format of attention's matrices.
    pub attention: WeightFormat,
    /// Format of the feed-forward block's matrices: of one block, or of all experts, including
    /// shared ones.
    pub ffn: WeightFormat,
    /// How attention's linear layers quantise their inputs, if they multiply in FP8.
    pub attention_rows: Option<Fp8Rows>,
    /// The same for the feed-forward block's.
    pub ffn_rows: Option<Fp8Rows>,
}

impl WeightFormat {
    /// Bytes of a tensor of a shape, including scales, if the engine computes in elements of this
    /// many bytes.
    pub fn bytes(self, shape: &[usize], element: usize) -> u64 {
        let values: u64 = shape.iter().map(|size| *size as u64).product();
        match (self, shape) {
            (Self::Plain, _) => values * element as u64,
            (Self::Float32, _) => values * 4,
            (Self::Fp8(scales), [outputs, inputs]) => values + 4 * scales.count(*outputs, *inputs) as u64,
            (Self::Fp8(_), _) => values,
            (Self::Mxfp4, [outputs, inputs]) => values.div_ceil(2) + (outputs * inputs.div_ceil(MXFP4_BLOCK)) as u64,
            (Self::Mxfp4, _) => values.div_ceil(2),
        }
    }

    /// The layout of the scales, if the format is FP8.
    pub fn fp8(self) -> Option<Fp8Scales> {
        match self {
            Self::Fp8(scales) => Some(scales),
            Self::Plain | Self::Float32 | Self::Mxfp4 => None,
        }
    }
}

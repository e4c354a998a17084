//! Formats of weights in memory.

use kernels::reference::Fp8Scales;

/// How a tensor's values are kept in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// As the type that the engine computes in.
    #[default]
    Plain,
    /// As float32, whatever the engine computes in.
    Float32,
    /// As FP8 (e4m3), one byte per value, with float32 scales. The CPU computes with the same values in float32.
    Fp8(Fp8Scales),
}

/// How the matrices of a layer's linear layers are kept. Norms, biases and routers are always [`WeightFormat::Plain`], as are
/// embeddings, vocabulary heads and what joins a draft's inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerFormats {
    /// Those of attention.
    pub attention: WeightFormat,
    /// Those of the feed-forward part: of one block, or of all experts, shared ones among them.
    pub ffn: WeightFormat,
}

impl WeightFormat {
    /// Bytes of a tensor of a shape, scales included, where the engine computes in elements of this many bytes.
    pub fn bytes(self, shape: &[usize], element: usize) -> u64 {
        let values: u64 = shape.iter().map(|size| *size as u64).product();
        match (self, shape) {
            (Self::Plain, _) => values * element as u64,
            (Self::Float32, _) => values * 4,
            (Self::Fp8(scales), [outputs, inputs]) => values + 4 * scales.count(*outputs, *inputs) as u64,
            (Self::Fp8(_), _) => values,
        }
    }

    /// The scales of FP8.
    pub fn fp8(self) -> Option<Fp8Scales> {
        match self {
            Self::Fp8(scales) => Some(scales),
            Self::Plain | Self::Float32 => None,
        }
    }
}

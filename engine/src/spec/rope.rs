//! Rotary position embedding.

use kernels::reference::{Rope, RopeScaling};

/// The rotation of the heads of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeSpec {
    /// Rotated dimensions of a head, from its first on; the others pass through (`partial_rotary_factor`).
    pub dims: usize,
    /// Which of them turn together.
    pub pairing: Pairing,
    /// Base of the frequencies: pair i of `dims` turns by `theta^(−2i / dims)` a position.
    pub theta: f32,
    /// How frequencies are stretched beyond the trained length.
    pub scaling: RopeScaling,
}

/// Which dimensions of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// `(i, i + dims / 2)`, "neox": Llama, Qwen, GLM-4.5.
    Halves,
    /// `(2i, 2i + 1)`: DeepSeek.
    Interleaved,
}

impl RopeSpec {
    /// Its frequencies, over the rotated dimensions.
    pub fn frequencies(&self) -> Rope {
        Rope::new(self.dims, self.theta, self.scaling)
    }
}

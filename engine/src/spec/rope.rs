//! Rotary position embedding.

pub use kernels::reference::Pairing;
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

impl RopeSpec {
    /// The rotation of heads of `head_dim` dimensions.
    pub fn rotation(&self, head_dim: usize) -> Rope {
        Rope::partial(head_dim, self.dims, self.pairing, self.theta, self.scaling)
    }
}

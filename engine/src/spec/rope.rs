//! Rotary position embedding.

pub use kernels::reference::Pairing;
use kernels::reference::{Rope, RopeScaling};

/// The rotation of the heads of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeSpec {
    /// Number of rotated dimensions of a head, starting at its first; the others pass through
    /// (`partial_rotary_factor`).
    pub dims: usize,
    /// Which dimensions are rotated as a pair.
    pub pairing: Pairing,
    /// Base of the frequencies: pair i of `dims` is rotated by `theta^(−2i / dims)` per position.
    pub theta: f32,
    /// How frequencies are scaled beyond the trained length.
    pub scaling: RopeScaling,
}

impl RopeSpec {
    /// The rotation of heads of `head_dim` dimensions.
    pub fn rotation(&self, head_dim: usize) -> Rope {
        Rope::partial(head_dim, self.dims, self.pairing, self.theta, self.scaling)
    }
}

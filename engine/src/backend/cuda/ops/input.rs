//! Input rows of linear layers.

use kernels::launch::{RowScales, Rows, Unscaled};

/// Input rows of linear layers.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) struct Input<'a> {
    /// In the element type; without meaning if their only reader multiplies in FP8.
    pub rows: Rows<'a>,
    /// The missing scale of the rows, if the preceding norm leaves scaling to the layer.
    pub unscaled: Option<Unscaled<'a>>,
    /// The rows in FP8, for layers that multiply in FP8.
    pub fp8: Option<Fp8Input<'a>>,
}

/// Rows in FP8, as the layers that read them need them.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) struct Fp8Input<'a> {
    pub rows: Rows<'a>,
    pub scales: RowScales<'a>,
}

impl<'a> From<Rows<'a>> for Input<'a> {
    fn from(rows: Rows<'a>) -> Self {
        Self { rows, unscaled: None, fp8: None }
    }
}

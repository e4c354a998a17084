//! Input rows of linear layers.

use kernels::launch::{RowScales, Rows, Unscaled};

/// Input rows of a linear layer.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) struct Input<'a> {
    pub rows: Rows<'a>,
    /// The missing scale of the rows, if the preceding norm leaves scaling to the layer.
    pub unscaled: Option<Unscaled<'a>>,
    /// Their scales if they are in FP8, in the form that the one layer which reads them needs.
    pub scales: Option<RowScales<'a>>,
}

impl<'a> From<Rows<'a>> for Input<'a> {
    fn from(rows: Rows<'a>) -> Self {
        Self { rows, unscaled: None, scales: None }
    }
}

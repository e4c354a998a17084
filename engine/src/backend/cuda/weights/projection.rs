//! A linear layer.

use kernels::{
    device::{Buffer, Slice},
    launch::{Linear, Rows},
};

/// A linear layer: `[outputs, inputs]` and a bias.
#[derive(Debug)]
pub struct Projection {
    pub weight: Buffer,
    pub bias: Option<Buffer>,
    pub inputs: usize,
    pub outputs: usize,
    /// Whether ranks have a part of the inputs each, so that what they compute is yet to be added up.
    pub is_partial: bool,
}

impl Projection {
    /// What it computes of rows.
    pub fn linear<'a>(&'a self, y: Slice<'a>, x: Rows<'a>, rows: usize) -> Linear<'a> {
        let Self { weight, bias, inputs, outputs, .. } = self;
        let bias = bias.as_ref().map(Buffer::slice);
        Linear {
            y,
            y_is_float: false,
            x,
            weight: weight.slice(),
            bias,
            rows,
            inputs: *inputs,
            outputs: *outputs,
            unscaled: None,
            awaited: None,
        }
    }
}

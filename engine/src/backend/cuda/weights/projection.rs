//! A linear layer.

use kernels::{
    device::{Buffer, Slice},
    launch::{Linear, Rows, WeightScales, Weights},
    reference::Fp8Scales,
};

use crate::spec::WeightFormat;

/// A linear layer: `[outputs, inputs]` and a bias.
#[derive(Debug)]
pub struct Projection {
    pub weight: Buffer,
    /// Of a weight in FP8.
    pub scales: Option<ScaleBuffer>,
    pub bias: Option<Buffer>,
    pub inputs: usize,
    pub outputs: usize,
    /// Whether ranks have a part of the inputs each, so that what they compute is yet to be added up.
    pub is_partial: bool,
}

/// Scales of a matrix in FP8.
#[derive(Debug)]
pub struct ScaleBuffer {
    pub at: Buffer,
    pub layout: Fp8Scales,
}

impl ScaleBuffer {
    /// As the kernels take them.
    pub fn operand(&self) -> WeightScales<'_> {
        WeightScales { at: self.at.slice(), layout: self.layout }
    }
}

/// The kernels' word for a format.
pub fn weights_in(format: WeightFormat) -> Weights {
    Weights::of(format.fp8())
}

impl Projection {
    /// The type of its weight.
    pub fn weights(&self) -> Weights {
        Weights::of(self.scale_layout())
    }

    /// How its weight's scales lie, if it is in FP8.
    pub fn scale_layout(&self) -> Option<Fp8Scales> {
        self.scales.as_ref().map(|scales| scales.layout)
    }

    /// What it computes of rows.
    pub fn linear<'a>(&'a self, y: Slice<'a>, x: Rows<'a>, rows: usize) -> Linear<'a> {
        let Self { weight, scales, bias, inputs, outputs, .. } = self;
        let bias = bias.as_ref().map(Buffer::slice);
        Linear {
            y,
            y_is_float: false,
            x,
            weight: weight.slice(),
            scales: scales.as_ref().map(ScaleBuffer::operand),
            bias,
            rows,
            inputs: *inputs,
            outputs: *outputs,
            unscaled: None,
            needed: None,
        }
    }
}

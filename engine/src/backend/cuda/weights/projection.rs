//! Weights of a linear layer.

use kernels::{
    device::{Buffer, Slice},
    launch::{Linear, Rows, WeightScales, WeightType},
    reference::{Fp8Rows, Fp8Scales},
};

use crate::spec::WeightFormat;

/// A linear layer: a weight `[outputs, inputs]` and a bias.
#[derive(Debug)]
pub struct Projection {
    pub weight: Buffer,
    /// Set if the weight is in FP8.
    pub scales: Option<ScaleBuffer>,
    /// How the input's rows are quantised, if the layer multiplies in FP8.
    pub quantiser: Option<RowQuantiser>,
    pub bias: Option<Buffer>,
    pub inputs: usize,
    pub outputs: usize,
    /// Whether ranks split the inputs, so that outputs must be summed over ranks.
    pub is_partial: bool,
}

/// How the rows that a layer reads are quantised.
#[derive(Debug)]
pub struct RowQuantiser {
    pub layout: Fp8Rows,
    /// Float `[1]`: the static scale, if the layout has one.
    pub fixed: Option<Buffer>,
}

/// What reads a normed stream.
#[derive(Clone, Copy, Debug)]
pub enum Readers<'a> {
    /// One projection alone.
    One(&'a Projection),
    /// Several layers; those that multiply in FP8, if any, quantise its rows in one way.
    Several(Option<&'a RowQuantiser>),
}

impl<'a> Readers<'a> {
    /// The only one.
    pub fn one(self) -> Option<&'a Projection> {
        match self {
            Self::One(projection) => Some(projection),
            Self::Several(_) => None,
        }
    }
}

/// Scales of an FP8 matrix.
#[derive(Debug)]
pub struct ScaleBuffer {
    pub at: Buffer,
    pub layout: Fp8Scales,
}

impl ScaleBuffer {
    /// The operand of the kernels.
    pub fn operand(&self) -> WeightScales<'_> {
        WeightScales { at: self.at.slice(), layout: self.layout }
    }
}

/// The kernels' type for a weight format.
pub fn weights_in(format: WeightFormat) -> WeightType {
    match format {
        WeightFormat::Mxfp4 => WeightType::Mxfp4,
        _ => WeightType::from_scales(format.fp8()),
    }
}

impl Projection {
    /// The kernels' type for its weight.
    pub fn weights(&self) -> WeightType {
        WeightType::from_scales(self.scale_layout())
    }

    /// Layout of the scales, if the weight is in FP8.
    pub fn scale_layout(&self) -> Option<Fp8Scales> {
        self.scales.as_ref().map(|scales| scales.layout)
    }

    /// The operands that compute `y` from rows of `x`.
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
            row_scales: None,
            needed: None,
        }
    }
}

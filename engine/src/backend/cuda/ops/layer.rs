//! One decoder layer of a pass.

use kernels::{
    device::{Buffer, DeviceError, Slice},
    launch::{Added, Ahead, RmsNorm, Rows},
};

use super::input::Input;
use crate::backend::cuda::{
    machine::{Machine, Pass},
    weights::{LayerWeights, Readers},
};

/// A layer and its operands.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) struct LayerOperands<'a> {
    pub ahead: Ahead,
    pub weights: &'a LayerWeights,
    /// Rows after the input norm.
    pub input: Input<'a>,
    /// The layer's cache planes, one after the other.
    pub cache: Slice<'a>,
    /// Cosines and sines.
    pub rotations: Slice<'a>,
    /// The residual stream: receives attention's output, and that of the feed-forward block if
    /// there is a next layer.
    pub stream: Rows<'a>,
    pub next: Option<NextNorm<'a>>,
    /// The rows that continue after attention; `None` for all.
    pub needed: Option<NeededRows<'a>>,
}

/// Rows whose output is needed. In the last layer all other rows only write their keys and values.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) struct NeededRows<'a> {
    /// Their indices, int32 `[count]`.
    pub rows: Slice<'a>,
    pub count: usize,
    /// Receives their rows of the stream, contiguous.
    pub stream: Rows<'a>,
}

/// The start of a next layer.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) struct NextNorm<'a> {
    /// Its input norm.
    pub norm: &'a Buffer,
    pub epsilon: f32,
    /// What reads the normed stream.
    pub readers: Readers<'a>,
    /// Receives a copy of the stream that enters the layer.
    pub keep: Option<Rows<'a>>,
}

/// The result of a layer.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) enum LayerOutput<'a> {
    /// The complete stream.
    Stream,
    /// The stream, to which this must still be added.
    Added(Added<'a>),
    /// The complete stream, and the next layer's input.
    Normed(Input<'a>),
}

impl<'a> LayerOutput<'a> {
    /// What must still be added to the stream.
    pub(in crate::backend::cuda) fn added(self) -> Option<Added<'a>> {
        match self {
            Self::Added(add) => Some(add),
            Self::Stream | Self::Normed(_) => None,
        }
    }
}

impl Machine {
    /// Runs a decoder layer after its input norm.
    pub(in crate::backend::cuda) fn layer<'a>(
        &'a self,
        pass: Pass<'a>,
        layer: LayerOperands<'a>,
    ) -> Result<LayerOutput<'a>, DeviceError> {
        let Pass { rows, work, .. } = pass;
        let LayerOperands { weights, stream, next, needed, .. } = layer;
        let LayerWeights { hidden, epsilon, .. } = *weights;
        let attended = self.attend(pass, layer)?;
        let (attended, stream, rows) = match needed {
            None => (attended, stream, rows),
            Some(NeededRows { rows: source, count, stream: to }) => {
                // `work.qkv` is free: queries, keys and values have been read.
                let stride = attended.rows.stride;
                let few = self.rows(&work.qkv, stride);
                self.kernels.gather_rows(few, None, attended.rows, Some(source), count, stride)?;
                self.kernels.gather_rows(to, None, stream, Some(source), count, hidden)?;
                (few.into(), to, count)
            }
        };
        let norm = RmsNorm {
            out: self.rows(&work.normed, hidden),
            stream,
            add: None,
            weight: weights.post_attention_norm.slice(),
            keep: None,
            source: None,
            rows,
            width: hidden,
            epsilon,
        };
        let normed = self.add_and_norm(work, attended, weights.attention.output(), norm, weights.ffn.readers())?;
        self.feed_forward(work, &weights.ffn, normed, norm, next)
    }
}

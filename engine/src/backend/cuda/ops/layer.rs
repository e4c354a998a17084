//! A decoder layer of a pass.

use kernels::{
    device::{Buffer, DeviceError, Slice},
    launch::{Added, Ahead, RmsNorm, Rows},
};

use super::linear::Input;
use crate::backend::cuda::{
    machine::{Machine, Pass},
    weights::{LayerWeights, Projection},
};

/// A layer and what it works on.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) struct LayerOperands<'a> {
    pub ahead: Ahead,
    pub weights: &'a LayerWeights,
    /// Rows after the input norm.
    pub input: Input<'a>,
    /// Its planes, one after the other.
    pub cache: Slice<'a>,
    /// Cosines and sines.
    pub rotations: Slice<'a>,
    /// Takes up what attention yields, and what the feed-forward part yields if there is a next layer.
    pub stream: Rows<'a>,
    pub next: Option<NextNorm<'a>>,
    /// The rows that continue after attention; `None` for all.
    pub needed: Option<NeededRows<'a>>,
}

/// Rows whose output is needed. In a last layer all other rows only have to write their keys and values.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) struct NeededRows<'a> {
    /// Which rows they are, int32 `[count]`.
    pub rows: Slice<'a>,
    pub count: usize,
    /// Takes their stream, one after the other.
    pub stream: Rows<'a>,
}

/// The start of a next layer.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) struct NextNorm<'a> {
    /// Its input norm.
    pub norm: &'a Buffer,
    pub epsilon: f32,
    /// The one projection that takes the normed stream; `None`: several parts do.
    pub reader: Option<&'a Projection>,
    /// Takes the stream that enters.
    pub keep: Option<Rows<'a>>,
}

/// What a layer leaves.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) enum LayerOutput<'a> {
    /// The stream alone.
    Stream,
    /// The stream, to which this is yet to be added.
    Added(Added<'a>),
    /// The stream, and the next layer's input.
    Normed(Input<'a>),
}

impl<'a> LayerOutput<'a> {
    /// What is yet to be added to the stream.
    pub(in crate::backend::cuda) fn added(self) -> Option<Added<'a>> {
        match self {
            Self::Added(add) => Some(add),
            Self::Stream | Self::Normed(_) => None,
        }
    }
}

impl Machine {
    /// A decoder layer after its input norm.
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
                // Queries, keys and values have been read.
                let few = self.rows(&work.qkv, attended.stride);
                self.kernels.gather_rows(few, None, attended, Some(source), count, attended.stride)?;
                self.kernels.gather_rows(to, None, stream, Some(source), count, hidden)?;
                (few, to, count)
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
        let normed = self.add_and_norm(work, attended, weights.attention.output(), norm, weights.ffn.reader())?;
        self.feed_forward(work, &weights.ffn, normed, norm, next)
    }
}

//! Decoder layers one after the other, over a stream in `work.stream`.

use kernels::{
    device::{DeviceError, Slice},
    launch::{Added, Ahead, RmsNorm, Rows},
};

use crate::backend::cuda::{
    machine::{Machine, Pass},
    ops::{Input, LayerOperands, LayerOutput, NextNorm},
    weights::{AttentionWeights, LayerWeights},
    workspace::Activations,
};

/// Layers that a pass runs through.
#[derive(Clone, Copy)]
pub struct LayerStack<'s, 'a> {
    pub layers: &'a [LayerWeights],
    /// Width of the stream.
    pub width: usize,
    /// Cosines and sines.
    pub rotations: Slice<'a>,
    /// The cache of a layer.
    pub cache: &'s dyn Fn(usize) -> Slice<'a>,
    /// The rows as a layer sees them; their number is the same for all.
    pub pass: &'s dyn Fn(usize) -> Pass<'a>,
    /// Where the input of a layer is also stored.
    pub kept: &'s dyn Fn(usize) -> Vec<Rows<'a>>,
}

impl Machine {
    /// Runs the layers. Returns what must still be added to the stream.
    pub(super) fn run_layers<'a>(
        &'a self,
        work: &'a Activations,
        rows: usize,
        stack: LayerStack<'_, 'a>,
    ) -> Result<Option<Added<'a>>, DeviceError> {
        let LayerStack { layers, width, rotations, cache, pass, kept } = stack;
        let stream = self.rows(&work.stream, width);
        let mut left = LayerOutput::Stream;
        // Only attention lets the next one read ahead.
        let first = layers.iter().position(|layer| !matches!(layer.attention, AttentionWeights::Delta(_)));
        for (at, layer) in layers.iter().enumerate() {
            let input = match left {
                LayerOutput::Normed(input) => input,
                left => self.enter_layer(work, rows, layer, left.added(), kept(at))?,
            };
            let next = layers.get(at + 1).and_then(|next| {
                let norm = next.input_norm.as_ref()?;
                let keep = kept(at + 1).first().copied();
                Some(NextNorm { norm, epsilon: next.epsilon, readers: next.attention.readers(), keep })
            });
            let operands = LayerOperands {
                ahead: if Some(at) == first { Ahead::Layout } else { Ahead::Layer },
                weights: layer,
                input,
                cache: cache(at),
                rotations,
                stream,
                next,
                needed: None,
            };
            left = self.layer(pass(at), operands)?;
            if matches!(left, LayerOutput::Normed(_)) {
                self.keep_again(work, rows, width, kept(at + 1))?;
            }
        }
        Ok(left.added())
    }

    /// Adds to the residual stream, stores it, and applies the norm of the next layer.
    fn enter_layer<'a>(
        &'a self,
        work: &'a Activations,
        rows: usize,
        layer: &'a LayerWeights,
        add: Option<Added<'a>>,
        kept: Vec<Rows<'a>>,
    ) -> Result<Input<'a>, DeviceError> {
        let width = layer.hidden;
        let (stream, keep) = (self.rows(&work.stream, width), kept.first().copied());
        let input = match &layer.input_norm {
            Some(weight) => {
                let norm = RmsNorm {
                    out: self.rows(&work.normed, width),
                    stream,
                    add,
                    weight: weight.slice(),
                    keep,
                    source: None,
                    rows,
                    width,
                    epsilon: layer.epsilon,
                };
                self.norm_for(work, norm, layer.attention.readers())?
            }
            None => {
                self.kernels.add_rows(stream, add, keep, rows, width)?;
                stream.into()
            }
        };
        self.keep_again(work, rows, width, kept).map(|()| input)
    }

    /// Copies the stream to every place but the first, which a norm kernel has written.
    pub(super) fn keep_again<'a>(
        &self,
        work: &Activations,
        rows: usize,
        width: usize,
        kept: impl IntoIterator<Item = Rows<'a>>,
    ) -> Result<(), DeviceError> {
        let stream = self.rows(&work.stream, width);
        let mut places = kept.into_iter().skip(1);
        places.try_for_each(|keep| self.kernels.add_rows(stream, None, Some(keep), rows, width))
    }
}

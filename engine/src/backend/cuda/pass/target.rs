//! A pass of the target.

use kernels::{
    device::DeviceError,
    launch::{Added, Ahead, RmsNorm, Rows, Sees},
};

use crate::backend::cuda::{
    machine::{AttentionKernels, Machine, Pass},
    ops::{Input, LayerOperands, LayerOutput, NextNorm},
    weights::LayerWeights,
};

impl Machine {
    /// Runs the target over rows. Final hidden states go to `work.normed`, captured layers to `work.captured`, both
    /// starting at row `leaves_at`.
    pub fn target_pass(&self, pass: Pass<'_>) -> Result<(), DeviceError> {
        let Pass { rows, arrays, work, .. } = pass;
        let (hidden, vocabulary) = (self.target.spec.hidden, self.target.spec.vocabulary);
        let stream = self.rows(&work.stream, hidden);
        self.kernels.embed(stream, self.target.embedding.slice(), arrays.token.slice(), rows, hidden, vocabulary)?;
        let layers = &self.target.layers;
        let mut left = LayerOutput::Stream;
        for (at, layer) in layers.iter().enumerate() {
            let input = match left {
                LayerOutput::Normed(input) => input,
                left => self.enter_layer(pass, at, left.added(), layer)?,
            };
            let next = layers.get(at + 1).and_then(|next| {
                let norm = next.input_norm.as_ref()?;
                let keep = self.kept(pass, at + 1).next();
                Some(NextNorm { norm, epsilon: next.epsilon, reader: next.attention.reader(), keep })
            });
            let operands = LayerOperands {
                ahead: if at == 0 { Ahead::Layout } else { Ahead::Layer },
                weights: layer,
                input,
                cache: self.layer_cache(at),
                rotations: self.target_rotations.slice(),
                stream,
                next,
                needed: None,
            };
            left = self.layer(pass, operands)?;
            if matches!(left, LayerOutput::Normed(_)) {
                self.keep_again(pass, at + 1)?;
            }
        }
        self.final_norm(pass, left.added())
    }

    /// The final hidden states of a pass of the target.
    pub(in crate::backend::cuda) fn final_states<'a>(&self, pass: Pass<'a>) -> Rows<'a> {
        let Pass { work, leaves_at, .. } = pass;
        let stride = self.target.spec.hidden;
        Rows { at: work.normed.range(leaves_at * stride * self.element_bytes()..work.normed.bytes()), stride }
    }

    /// Where the input of a layer is stored for the draft: one place for each time it is captured.
    fn kept<'a>(&self, pass: Pass<'a>, at: usize) -> impl Iterator<Item = Rows<'a>> {
        let Pass { work, leaves_at, .. } = pass;
        let capture = self.draft.as_ref().map_or(&[][..], |draft| draft.spec.captured());
        let width = self.target.spec.hidden;
        let (stride, bytes) = (capture.len() * width, self.element_bytes());
        (0..capture.len()).filter(move |place| capture[*place] == at).map(move |place| Rows {
            at: work.captured.range((leaves_at * stride + place * width) * bytes..work.captured.bytes()),
            stride,
        })
    }

    /// Copies the layer input to every capture slot except the first, which the norm kernel has written.
    fn keep_again(&self, pass: Pass<'_>, at: usize) -> Result<(), DeviceError> {
        let Pass { rows, work, .. } = pass;
        let width = self.target.spec.hidden;
        let stream = self.rows(&work.stream, width);
        let mut places = self.kept(pass, at).skip(1);
        places.try_for_each(|keep| self.kernels.add_rows(stream, None, Some(keep), rows, width))
    }

    /// Adds to the residual stream, captures it for the draft, and applies the norm of the next layer.
    fn enter_layer<'a>(
        &'a self,
        pass: Pass<'a>,
        at: usize,
        add: Option<Added<'a>>,
        layer: &'a LayerWeights,
    ) -> Result<Input<'a>, DeviceError> {
        let Pass { rows, work, .. } = pass;
        let width = self.target.spec.hidden;
        let (stream, keep) = (self.rows(&work.stream, width), self.kept(pass, at).next());
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
                self.norm_for(work, norm, layer.attention.reader())?
            }
            None => {
                self.kernels.add_rows(stream, add, keep, rows, width)?;
                stream.into()
            }
        };
        self.keep_again(pass, at).map(|()| input)
    }

    /// Adds to the residual stream, captures it for the draft, and applies the final norm.
    fn final_norm(&self, pass: Pass<'_>, add: Option<Added<'_>>) -> Result<(), DeviceError> {
        let Pass { rows, work, .. } = pass;
        let (width, layers) = (self.target.spec.hidden, self.target.layers.len());
        self.kernels.rms_norm(RmsNorm {
            out: self.final_states(pass),
            stream: self.rows(&work.stream, width),
            add,
            weight: self.target.norm.slice(),
            keep: self.kept(pass, layers).next(),
            source: None,
            rows,
            width,
            epsilon: self.target.spec.epsilon,
        })?;
        self.keep_again(pass, layers)
    }

    /// Computes the own rows of groups once per pass, unless the draft's kernels have already laid them out.
    pub fn gather_own(&self, pass: Pass<'_>) -> Result<(), DeviceError> {
        let Pass { rows, groups, sees, arrays, .. } = pass;
        match (self.attention, sees) {
            (AttentionKernels::Tiles, Sees::Own(own)) => {
                self.kernels.gather_own(own, arrays.own_count.slice(), arrays.own.slice(), groups, rows)
            }
            _ => Ok(()),
        }
    }
}

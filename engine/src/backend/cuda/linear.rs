//! Products of a pass: linear layers and vocabularies, each by whichever kernel is the fastest.

use kernels::{
    device::{
        Buffer, DeviceError, Element, Slice,
        matmul::{Matmul, Rival},
    },
    launch::{Added, Kernels, Linear, Logits, Parts, Rows},
};

use super::{
    layout::{Activations, LOGIT_ROWS},
    passes::Machine,
    products::{Outcome, Product},
    weights::Projection,
};

impl Machine {
    /// Logits of rows, as many at once as there is room for.
    #[expect(clippy::too_many_arguments, reason = "a product is all of these")]
    pub(super) fn over_logits(
        &self,
        x: Rows<'_>,
        weight: &Buffer,
        inputs: usize,
        vocabulary: usize,
        rows: usize,
        work: &Activations,
        mut use_logits: impl FnMut(usize, Logits<'_>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        for start in (0..rows).step_by(LOGIT_ROWS) {
            let count = LOGIT_ROWS.min(rows - start);
            let x = Rows { at: x.at.range(start * x.stride * self.element_bytes()..x.at.bytes()), ..x };
            let logits = Linear {
                y: work.logits.slice(),
                y_is_float: true,
                x,
                weight: weight.slice(),
                bias: None,
                rows: count,
                inputs,
                outputs: vocabulary,
            };
            self.product(work, logits, false)?;
            use_logits(start, Logits { at: work.logits.slice(), stride: vocabulary, rows: count, vocabulary })?;
        }
        Ok(())
    }

    /// `y = x · weightᵀ + bias` of a layer.
    pub(super) fn linear(
        &self,
        work: &Activations,
        y: Slice<'_>,
        x: Rows<'_>,
        layer: &Projection,
        rows: usize,
    ) -> Result<(), DeviceError> {
        self.product(work, layer.linear(y, x, rows), false).map(|_| ())
    }

    /// A linear layer for a kernel that adds up parts: they are in `work.parts`, or the result is in `y`.
    pub(super) fn linear_or_parts<'a>(
        &self,
        work: &'a Activations,
        y: Slice<'_>,
        x: Rows<'_>,
        layer: &Projection,
        rows: usize,
    ) -> Result<Option<Parts<'a>>, DeviceError> {
        self.product(work, layer.linear(y, x, rows), true)
    }

    /// A linear layer whose result is added to the stream.
    pub(super) fn added<'a>(
        &self,
        work: &'a Activations,
        x: Rows<'_>,
        layer: &Projection,
        rows: usize,
    ) -> Result<Added<'a>, DeviceError> {
        let parts = self.linear_or_parts(work, work.added.slice(), x, layer, rows)?;
        Ok(parts.map_or(Added::Rows(self.rows(&work.added, layer.outputs)), Added::Parts))
    }

    /// `work.gated = silu(gate) · up` of a layer that yields gate and up; `work.gate_up` may be used on the way.
    pub(super) fn gated(
        &self,
        work: &Activations,
        x: Rows<'_>,
        layer: &Projection,
        rows: usize,
        intermediate: usize,
    ) -> Result<(), DeviceError> {
        let (y, gate_up) = (work.gated.slice(), work.gate_up.slice());
        let whole = layer.linear(gate_up, x, rows);
        let activate = || self.kernels.silu_gate(y, gate_up, rows, intermediate);
        if self.kernels.element() == Element::F32 {
            return self.linear(work, gate_up, x, layer, rows).and_then(|()| activate());
        }
        let stream = || self.kernels.linear_gated(Linear { y, outputs: intermediate, ..whole });
        match self.library_or(whole, &stream, &activate)? {
            Outcome::Stream => stream(),
            Outcome::Done => Ok(()),
        }
    }

    /// `y = x · weightᵀ + bias`, by whichever kernel is the fastest; by those of one order in batch-invariant mode. The result
    /// is in `y`, or if `in_parts`, and the parts are returned, in `work.parts`.
    fn product<'a>(
        &self,
        work: &'a Activations,
        linear: Linear<'_>,
        in_parts: bool,
    ) -> Result<Option<Parts<'a>>, DeviceError> {
        let Linear { y, y_is_float, rows, inputs, outputs, .. } = linear;
        let few = !self.batch_invariant && self.kernels.suits_few(rows, inputs, outputs);
        let count = if few { 1 } else { self.kernels.parts_of(inputs, outputs) };
        let fits = rows <= Kernels::MOST_ROWS_IN_PARTS && count * rows * outputs * 4 <= work.parts.bytes();
        let parts = (count > 1 && fits).then_some(Parts { at: work.parts.slice(), count });
        let stream = || match parts {
            None if few => self.kernels.linear_few(linear),
            None => self.kernels.linear(linear),
            Some(parts) => {
                self.kernels.linear_in_parts(Linear { y: parts.at, ..linear })?;
                if in_parts { Ok(()) } else { self.kernels.add_parts(y, y_is_float, parts, rows, outputs) }
            }
        };
        match self.library_or(linear, &stream, &|| Ok(()))? {
            Outcome::Done => Ok(None),
            Outcome::Stream => stream().map(|()| parts.filter(|_| in_parts)),
        }
    }

    /// Runs a layer by the library if that is the fastest, with its bias and what has to follow; else says that the streaming
    /// kernel is to.
    fn library_or(&self, linear: Linear<'_>, stream: Rival<'_>, follow: Rival<'_>) -> Result<Outcome, DeviceError> {
        let Linear { y, y_is_float, x, weight, bias, rows, inputs, outputs } = linear;
        if self.batch_invariant || x.stride != inputs {
            return Ok(Outcome::Stream);
        }
        let element = self.kernels.element();
        let result = if y_is_float { Element::F32 } else { element };
        let matmul = Matmul { rows, inputs, outputs, element, result };
        let behind = || {
            if let Some(bias) = bias {
                self.kernels.add_bias(Rows { at: y, stride: outputs }, bias, rows, outputs)?;
            }
            follow()
        };
        let neighbour = || self.kernels.fill_random(self.products.scratch(), 1.0, 0);
        let product = Product { y, x: x.at, w: weight, stream, behind_library: Some(&behind), neighbour: &neighbour };
        self.products.run(self.device(), matmul, product)
    }
}

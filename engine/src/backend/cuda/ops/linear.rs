//! GEMMs of a pass: linear layers and vocabulary projections, each with the fastest kernel.

use std::ops::Range;

use kernels::{
    device::{
        DeviceError, Element, Slice,
        matmul::{KernelLaunch, Matmul},
    },
    launch::{
        Added, Gathered, Kernels, Linear, Logits, NormOutputs, Parts, RmsNorm, RowForm, RowScales, Rows, Stream,
        WeightType, Wide,
    },
    reference::Fp8Scales,
};

use super::{input::Input, products::library_product};
use crate::backend::cuda::{
    gemm::{Gemm, GemmOutcome},
    limits::LOGIT_ROWS,
    machine::Machine,
    weights::{Projection, Readers},
    workspace::Activations,
};

/// Number of split-K partials that the library may leave for a layer of many rows: few outputs give
/// too few tiles to keep a device busy, and the library's own split-K sums the partials in a
/// separate kernel.
const LIBRARY_PARTS: usize = 2;

/// The matrix that maps hidden states to logits.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) struct LmHead<'a> {
    /// `[own, inputs]`.
    pub weight: Slice<'a>,
    pub inputs: usize,
    pub tokens: usize,
    /// Number of tokens whose rows are on this rank; if fewer than `tokens`, other ranks have the
    /// rest.
    pub own: usize,
    /// Device flag: whether the logits are needed, as in [`Linear`].
    pub needed: Option<Slice<'a>>,
}

/// The consumer of a layer's result.
#[derive(Clone, Copy)]
enum User<'a> {
    /// Needs the complete result.
    Any,
    /// The rotation, which sums partials.
    Rotation,
    /// The kernel that adds it to the residual stream, complete or in split-K partials. Has the
    /// stream if both have the same row layout.
    Stream(Option<Slice<'a>>),
}

/// Location of a layer's result.
enum ResultLocation<'a> {
    /// At its destination.
    Whole,
    /// In `work.parts`, as partials to be summed.
    Parts(Parts<'a>),
    /// Added to the stream.
    Stream,
}

/// Our own kernels that stream a layer's weights.
#[derive(Clone, Copy)]
enum Streaming {
    /// Runs on every device with one summation order; the only one in batch-invariant mode.
    Ring,
    /// For few rows; leaves complete results.
    Few,
    /// For some rows, with weights in FP8.
    Pairs,
    /// Warp-group kernel, for some rows.
    Group,
    /// Warp-group kernel for more rows, with this work distribution.
    Wide(Wide),
}

impl Streaming {
    /// Whether the kernel skips a layer whose output is not needed.
    fn leaves_out(self) -> bool {
        matches!(self, Self::Group | Self::Wide(_))
    }
}

impl Machine {
    /// Norms rows for its readers: quantised if they multiply in FP8, without the scale if the only
    /// one is faster with scaling them itself.
    pub(in crate::backend::cuda) fn norm_for<'a>(
        &self,
        work: &'a Activations,
        norm: RmsNorm<'a>,
        readers: Readers<'_>,
    ) -> Result<Input<'a>, DeviceError> {
        let RmsNorm { out, source, rows, width, .. } = norm;
        match readers {
            Readers::One(Projection { quantiser: Some(quantiser), inputs, .. }) if *inputs == width => {
                return self.norm_in_fp8(work, norm, quantiser, NormOutputs::Quantised);
            }
            Readers::Several(Some(quantiser)) => {
                return self.norm_in_fp8(work, norm, quantiser, NormOutputs::Both);
            }
            Readers::One(layer) if source.is_none() && self.leaves_scale(work, layer, rows, width) => {
                let unscaled = self.kernels.rms_norm_unscaled(norm, work.squares.slice())?;
                return Ok(Input { unscaled: Some(unscaled), ..out.into() });
            }
            Readers::One(_) | Readers::Several(None) => {}
        }
        match self.batch_invariant {
            true => self.kernels.rms_norm(norm),
            false => self.kernels.rms_norm_shared(norm),
        }
        .map(|()| out.into())
    }

    /// Whether a norm leaves scaling its rows to the layer that reads them.
    fn leaves_scale(&self, work: &Activations, layer: &Projection, rows: usize, width: usize) -> bool {
        let sizes = [rows, layer.inputs, layer.outputs];
        let by_wide = || matches!(self.streaming(work, sizes, 1, (layer.scale_layout(), None)), Streaming::Wide(_));
        layer.quantiser.is_none() && self.streams(layer, rows) && self.kernels.suits_unscaled(rows, width, by_wide())
    }

    /// Sums a contribution to the stream over ranks, adds it and norms the stream like
    /// [`norm_for`](Self::norm_for). For few rows one kernel does all of it, with a different order
    /// in the sum of squares.
    pub(in crate::backend::cuda) fn sum_and_norm<'a>(
        &self,
        work: &'a Activations,
        part: Added<'a>,
        norm: RmsNorm<'a>,
        readers: Readers<'_>,
    ) -> Result<Input<'a>, DeviceError> {
        let RmsNorm { out, rows, width, .. } = norm;
        let leaves_scale = readers.one().is_some_and(|reader| self.leaves_scale(work, reader, rows, width));
        let ranks = self.ranks.as_ref().filter(|_| !self.batch_invariant && !leaves_scale);
        if let Some(ranks) = ranks.filter(|ranks| self.kernels.suits_sum_and_norm(&ranks.mail, rows, width)) {
            self.kernels.sum_ranks_norm(&ranks.mail, RmsNorm { add: Some(part), ..norm })?;
            return Ok(out.into());
        }
        let add = self.over_ranks(work, part, rows, width)?;
        self.norm_for(work, RmsNorm { add: Some(add), ..norm }, readers)
    }

    /// Adds a layer's output to the stream and norms it by `norm`, for one reader or for several.
    pub(in crate::backend::cuda) fn add_and_norm<'a>(
        &'a self,
        work: &'a Activations,
        x: Input<'a>,
        layer: &Projection,
        norm: RmsNorm<'a>,
        readers: Readers<'_>,
    ) -> Result<Input<'a>, DeviceError> {
        let RmsNorm { out, stream, weight, keep, rows, width, epsilon, .. } = norm;
        let without_space = [stream, out].into_iter().all(|rows| rows.stride == width);
        let at_once = without_space
            && !layer.is_partial
            && self.kernels.suits_few_to_stream(rows, layer.inputs, layer.outputs, layer.weights())
            && readers.one().is_some_and(|next| [layer, next].into_iter().all(|layer| self.streams(layer, rows)));
        if at_once {
            let to = Stream { keep, norm: weight, normed: out.at, squares: work.squares.slice(), epsilon };
            let linear = self.operands(work, stream.at, x, layer, rows)?;
            let unscaled = self.kernels.few_to_stream(linear, to)?;
            return Ok(Input { unscaled: Some(unscaled), ..out.into() });
        }
        let add = self.computed(work, x, layer, stream, rows)?;
        if let Some(part) = add.filter(|_| layer.is_partial) {
            return self.sum_and_norm(work, part, norm, readers);
        }
        self.norm_for(work, RmsNorm { add, ..norm }, readers)
    }

    /// Whether our own kernel is known to be the fastest for a layer with these rows; it may use
    /// any summation order.
    fn streams(&self, layer: &Projection, rows: usize) -> bool {
        let Projection { inputs, outputs, .. } = *layer;
        let element = self.kernels.element();
        if layer.weights() == WeightType::Fp8 {
            return !self.batch_invariant && rows <= Kernels::MOST_ROWS_IN_PARTS;
        }
        !self.batch_invariant
            && self.gemm.streams(Matmul { rows, inputs, outputs, element, fp8: None, result: element, most_parts: 1 })
    }

    /// Calls `use_logits` with the logits of rows, up to [`LOGIT_ROWS`] at a time.
    pub(in crate::backend::cuda) fn over_logits(
        &self,
        x: Rows<'_>,
        vocabulary: LmHead<'_>,
        rows: usize,
        work: &Activations,
        mut use_logits: impl FnMut(usize, Logits<'_>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        for start in (0..rows).step_by(LOGIT_ROWS) {
            let count = LOGIT_ROWS.min(rows - start);
            use_logits(start, self.some_logits(work.logits.slice(), x, vocabulary, start..start + count, work)?)?;
        }
        Ok(())
    }

    /// Writes the logits of all rows to `to`, float `[rows, tokens]`.
    pub(in crate::backend::cuda) fn write_logits(
        &self,
        to: Slice<'_>,
        x: Rows<'_>,
        vocabulary: LmHead<'_>,
        rows: usize,
        work: &Activations,
    ) -> Result<(), DeviceError> {
        for start in (0..rows).step_by(LOGIT_ROWS) {
            let count = LOGIT_ROWS.min(rows - start);
            let to = to.range(start * vocabulary.tokens * 4..to.bytes());
            self.some_logits(to, x, vocabulary, start..start + count, work)?;
        }
        Ok(())
    }

    /// Writes the logits of up to [`LOGIT_ROWS`] of the rows to `to`.
    fn some_logits<'t>(
        &self,
        to: Slice<'t>,
        x: Rows<'_>,
        vocabulary: LmHead<'_>,
        rows: Range<usize>,
        work: &Activations,
    ) -> Result<Logits<'t>, DeviceError> {
        let LmHead { weight, inputs, tokens, own, needed } = vocabulary;
        let ranks = self.ranks.as_ref().filter(|_| own < tokens);
        let y = if ranks.is_some() { work.own_logits.slice() } else { to };
        let logits = Linear {
            y,
            y_is_float: true,
            x: Rows { at: x.at.range(rows.start * x.stride * self.element_bytes()..x.at.bytes()), ..x },
            weight,
            scales: None,
            bias: None,
            rows: rows.len(),
            inputs,
            outputs: own,
            unscaled: None,
            row_scales: None,
            needed,
        };
        self.product(work, logits, User::Any)?;
        if let Some(ranks) = ranks {
            let gathered = Gathered { out: to, own: y, part: own, vocabulary: tokens, rows: rows.len() };
            self.kernels.gather_ranks(&ranks.mail, gathered)?;
        }
        Ok(Logits { at: to, stride: tokens, rows: rows.len(), vocabulary: tokens })
    }

    /// `y = x · weightᵀ + bias` of a layer.
    pub(in crate::backend::cuda) fn linear(
        &self,
        work: &Activations,
        y: Slice<'_>,
        x: Rows<'_>,
        layer: &Projection,
        rows: usize,
    ) -> Result<(), DeviceError> {
        self.linear_of(work, y, x.into(), layer, rows)
    }

    /// The same for an input whose scale may be missing, or that may be in FP8.
    pub(in crate::backend::cuda) fn linear_of(
        &self,
        work: &Activations,
        y: Slice<'_>,
        x: Input<'_>,
        layer: &Projection,
        rows: usize,
    ) -> Result<(), DeviceError> {
        self.product(work, self.operands(work, y, x, layer, rows)?, User::Any).map(|_| ())
    }

    /// The same for a product that does not belong to a layer.
    pub(in crate::backend::cuda) fn whole(&self, work: &Activations, linear: Linear<'_>) -> Result<(), DeviceError> {
        self.product(work, linear, User::Any).map(|_| ())
    }

    /// A linear layer whose result is rotated next: in partials in `work.parts`, or in `y`.
    pub(in crate::backend::cuda) fn linear_to_rotate<'a>(
        &self,
        work: &'a Activations,
        y: Slice<'_>,
        x: Input<'_>,
        layer: &Projection,
        rows: usize,
    ) -> Result<Option<Parts<'a>>, DeviceError> {
        match self.product(work, self.operands(work, y, x, layer, rows)?, User::Rotation)? {
            ResultLocation::Parts(parts) => Ok(Some(parts)),
            ResultLocation::Whole | ResultLocation::Stream => Ok(None),
        }
    }

    /// A linear layer whose result is added to the stream. Returns what must still be added, if the
    /// layer has not added it itself.
    pub(in crate::backend::cuda) fn added<'a>(
        &self,
        work: &'a Activations,
        x: Input<'_>,
        layer: &Projection,
        stream: Rows<'_>,
        rows: usize,
    ) -> Result<Option<Added<'a>>, DeviceError> {
        let add = self.computed(work, x, layer, stream, rows)?;
        match add.filter(|_| layer.is_partial) {
            Some(part) => self.over_ranks(work, part, rows, layer.outputs).map(Some),
            None => Ok(add),
        }
    }

    /// Like [`added`](Self::added), but before the sum over ranks if ranks split the layer.
    fn computed<'a>(
        &self,
        work: &'a Activations,
        x: Input<'_>,
        layer: &Projection,
        stream: Rows<'_>,
        rows: usize,
    ) -> Result<Option<Added<'a>>, DeviceError> {
        let onto = (stream.stride == layer.outputs && !layer.is_partial).then_some(stream.at);
        let linear = self.operands(work, work.added.slice(), x, layer, rows)?;
        Ok(match self.product(work, linear, User::Stream(onto))? {
            ResultLocation::Whole => Some(Added::Rows(self.rows(&work.added, layer.outputs))),
            ResultLocation::Parts(parts) => Some(Added::Parts(parts)),
            ResultLocation::Stream => None,
        })
    }

    /// `silu(gate) · up` of a layer that computes gate and up, as input of the next layer;
    /// `work.gate_up` is scratch space. In `work.gated`, or quantised already if the library
    /// computes gate and up.
    pub(in crate::backend::cuda) fn gated<'a>(
        &self,
        work: &'a Activations,
        x: Input<'a>,
        [layer, next]: [&'a Projection; 2],
        rows: usize,
    ) -> Result<Input<'a>, DeviceError> {
        let (y, gate_up, intermediate) = (work.gated.slice(), work.gate_up.slice(), next.inputs);
        let gated: Input<'a> = Rows { at: y, stride: intermediate }.into();
        let whole = self.operands(work, gate_up, x, layer, rows)?;
        if self.kernels.element() == Element::F32 {
            self.product(work, whole, User::Any)?;
            return self.kernels.silu_gate(y, gate_up, rows, intermediate).map(|()| gated);
        }
        let own = Linear { y, outputs: intermediate, ..whole };
        let formats = (layer.scale_layout(), whole.row_scales);
        let streaming = self.streaming(work, [rows, layer.inputs, layer.outputs], 1, formats);
        let stream = || match streaming {
            Streaming::Group => self.kernels.linear_group_gated(own),
            Streaming::Wide(wide) => self.kernels.linear_wide_gated(own, wide),
            Streaming::Pairs => self.kernels.linear_pairs_gated(own),
            Streaming::Few | Streaming::Ring => self.kernels.linear_gated(own),
        };
        let activate = || match &next.quantiser {
            Some(quantiser) => self.gate_in_fp8(work, next, quantiser, rows),
            None => self.kernels.silu_gate(y, gate_up, rows, intermediate),
        };
        match (self.library_or(work, whole, (streaming, &stream), &activate, User::Any)?, &next.quantiser) {
            (GemmOutcome::Stream, _) => stream().map(|()| gated),
            (GemmOutcome::Done(_) | GemmOutcome::Added, None) => Ok(gated),
            // `activate` has quantised the rows.
            (GemmOutcome::Done(_) | GemmOutcome::Added, Some(quantiser)) => {
                Ok(self.quantised_rows(work, next, quantiser))
            }
        }
    }

    /// `y = x · weightᵀ + bias` with the fastest kernel; in batch-invariant mode, with the one that
    /// has a single summation order.
    fn product<'a>(
        &self,
        work: &'a Activations,
        linear: Linear<'_>,
        user: User<'_>,
    ) -> Result<ResultLocation<'a>, DeviceError> {
        let Linear { y, y_is_float, rows, inputs, outputs, .. } = linear;
        let layout = linear.scales.map(|scales| scales.layout);
        let streaming = self.streaming(work, [rows, inputs, outputs], Kernels::MOST_PARTS, (layout, linear.row_scales));
        let count = match streaming {
            Streaming::Wide(wide) => wide.parts(),
            Streaming::Few => 1,
            Streaming::Pairs => self.kernels.parts_of_pairs(inputs, outputs),
            Streaming::Ring if rows > Kernels::MOST_ROWS_IN_PARTS => 1,
            Streaming::Group => self.kernels.parts_of_group(rows, inputs, outputs, WeightType::from_scales(layout)),
            Streaming::Ring => self.kernels.parts_of(inputs, outputs, WeightType::from_scales(layout)),
        };
        let parts_of = |count: usize| Parts { at: work.parts.slice(), count };
        let parts = (count > 1 && holds(work, count, rows, outputs)).then(|| parts_of(count));
        let most_parts = parts.map_or(1, |_| Kernels::MOST_PARTS);
        let own = Linear { y: parts.map_or(y, |parts| parts.at), ..linear };
        let needs_whole = matches!(user, User::Any);
        let stream = || {
            match (streaming, parts) {
                (Streaming::Group, _) => self.kernels.linear_group(own, most_parts).map(|_| ())?,
                (Streaming::Wide(wide), _) => self.kernels.linear_wide(own, wide).map(|_| ())?,
                (Streaming::Few, _) => self.kernels.linear_few(own)?,
                (Streaming::Pairs, _) => self.kernels.linear_pairs(own, most_parts).map(|_| ())?,
                (Streaming::Ring, Some(_)) => self.kernels.linear_in_parts(own).map(|_| ())?,
                (Streaming::Ring, None) => self.kernels.linear(own)?,
            }
            match parts {
                Some(parts) if needs_whole => self.kernels.add_parts(y, y_is_float, parts, rows, outputs),
                _ => Ok(()),
            }
        };
        match self.library_or(work, linear, (streaming, &stream), &|| Ok(()), user)? {
            GemmOutcome::Done(1) => Ok(ResultLocation::Whole),
            GemmOutcome::Done(count) => Ok(ResultLocation::Parts(parts_of(count))),
            GemmOutcome::Added => Ok(ResultLocation::Stream),
            GemmOutcome::Stream => {
                stream()?;
                Ok(parts.filter(|_| !needs_whole).map_or(ResultLocation::Whole, ResultLocation::Parts))
            }
        }
    }

    /// Our fastest own kernel for a layer; its partials, at most `most_parts`, must fit in the
    /// workspace.
    fn streaming(
        &self,
        work: &Activations,
        [rows, inputs, outputs]: [usize; 3],
        most_parts: usize,
        (layout, of_rows): (Option<Fp8Scales>, Option<RowScales<'_>>),
    ) -> Streaming {
        let weights = WeightType::from_scales(layout);
        if self.batch_invariant {
            return Streaming::Ring;
        }
        let are_numbers = of_rows.is_some_and(|scales| scales.form == RowForm::Numbers);
        if layout.is_some() == are_numbers && self.kernels.suits_group(rows, inputs, outputs, weights) {
            return Streaming::Group;
        }
        if self.kernels.suits_few(rows, inputs, outputs, weights) {
            return Streaming::Few;
        }
        let fits = |wide: &Wide| wide.parts() == 1 || holds(work, wide.parts(), rows, outputs);
        let sizes = [inputs, outputs];
        let wide = match (layout, of_rows) {
            (_, None) => self.kernels.wide(rows, sizes, most_parts, layout),
            (Some(weights), Some(RowScales { layout, form: RowForm::Numbers, .. })) => {
                self.kernels.wide_products(rows, sizes, most_parts, (weights, layout))
            }
            (_, Some(_)) => Vec::new(),
        };
        match wide.into_iter().find(fits) {
            Some(wide) => Streaming::Wide(wide),
            None if self.kernels.suits_pairs(rows, weights) => Streaming::Pairs,
            None => Streaming::Ring,
        }
    }

    /// Runs a layer with the library if that is the fastest, including its bias and `follow`.
    /// Otherwise, and if the streaming kernel may skip the layer, returns that the streaming kernel
    /// is to run. Partials are in `work.parts`.
    fn library_or(
        &self,
        work: &Activations,
        linear: Linear<'_>,
        (streaming, stream): (Streaming, KernelLaunch<'_>),
        follow: KernelLaunch<'_>,
        user: User<'_>,
    ) -> Result<GemmOutcome, DeviceError> {
        let may_leave_out = linear.needed.is_some() && streaming.leaves_out();
        if self.batch_invariant || linear.x.stride != linear.inputs || linear.unscaled.is_some() || may_leave_out {
            return Ok(GemmOutcome::Stream);
        }
        let fp8 = library_product(linear, self.device().properties());
        let linear = match linear.scales {
            Some(_) if linear.row_scales.is_some() && fp8.is_none() => return Ok(GemmOutcome::Stream),
            _ if fp8.is_some() => linear,
            None => linear,
            Some(_) if !self.dequantises(linear.rows, streaming) => return Ok(GemmOutcome::Stream),
            Some(scales) => {
                let out = work.dequantised.slice();
                self.kernels.dequantise(out, linear.weight, scales, [linear.outputs, linear.inputs])?;
                Linear { weight: out, scales: None, ..linear }
            }
        };
        let Linear { y, y_is_float, x, weight, scales, row_scales, bias, rows, inputs, outputs, .. } = linear;
        let element = self.kernels.element();
        let result = if y_is_float { Element::F32 } else { element };
        // The ring kernel reads the rows again for every 128 outputs, which is too often if there
        // are many rows.
        let may_stream = rows <= Kernels::MOST_ROWS_IN_PARTS || matches!(streaming, Streaming::Wide(_));
        // The library's bias is added by a separate kernel, to a complete and contiguous result.
        let added_to = match user {
            User::Stream(onto) if bias.is_none() => Some(onto),
            _ => None,
        };
        let may_leave_parts = added_to.is_some() && !may_stream;
        let may_leave_parts = may_leave_parts && fp8.is_none();
        let most_parts = if may_leave_parts && holds(work, LIBRARY_PARTS, rows, outputs) { LIBRARY_PARTS } else { 1 };
        let matmul = Matmul { rows, inputs, outputs, element, fp8, result, most_parts };
        let behind = || {
            if let Some(bias) = bias {
                self.kernels.add_bias(Rows { at: y, stride: outputs }, bias, rows, outputs)?;
            }
            follow()
        };
        let neighbour = || self.kernels.fill_random(self.gemm.scratch(), 1.0, 0);
        let prepare = || match fp8 {
            None => self.kernels.fill_random(x.at.range(0..rows * inputs * element.bytes()), 1.0, 1),
            Some(_) => self.kernels.fill_random_fp8(x.at.range(0..rows * inputs), 1),
        };
        let parts = if most_parts > 1 { work.parts.slice() } else { Slice::NONE };
        // By the time a layer's result is added to the stream, `work.normed` has been read and can
        // be overwritten.
        let add = |count: usize| {
            let own = Rows { at: y, stride: outputs };
            let add = if count > 1 { Added::Parts(Parts { at: parts, count }) } else { Added::Rows(own) };
            self.kernels.add_rows(self.rows(&work.normed, outputs), Some(add), None, rows, outputs)
        };
        let product = Gemm {
            y,
            onto: added_to.flatten(),
            parts,
            x: x.at,
            w: weight,
            scales: row_scales.zip(scales).map(|(of_rows, weights)| [of_rows.at, weights.at]),
            stream,
            may_stream,
            behind_library: Some(&behind),
            user: if most_parts > 1 { Some(&add) } else { None },
            neighbour: &neighbour,
            prepare: &prepare,
        };
        self.gemm.run(self.device(), matmul, product)
    }
}

impl Machine {
    /// Whether the library multiplies this many rows with FP8 weights, which are dequantised first:
    /// with many rows the GEMM takes longer than dequantising. The library starts after the
    /// dequantising kernel, whereas our kernels would prefetch weights; our warp-group kernels stay
    /// faster up to more rows than the others.
    fn dequantises(&self, rows: usize, streaming: Streaming) -> bool {
        let many = rows > Kernels::MOST_ROWS_IN_PARTS && !matches!(streaming, Streaming::Wide(_));
        many && !self.device().properties().emulated
    }
}

/// Whether the workspace has room for this many split-K partials of a result.
fn holds(work: &Activations, parts: usize, rows: usize, outputs: usize) -> bool {
    parts * rows * outputs * 4 <= work.parts.bytes()
}

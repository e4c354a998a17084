//! Rows of layers that multiply in FP8: quantised once per input, by the norm or the gate before if
//! there is one.

use kernels::{
    device::{Buffer, DeviceError, Properties, Slice, matmul::Fp8Product},
    launch::{
        ExpertProducts, ExpertsShape, Linear, NormOutputs, QuantiseRows, QuantiseTo, RmsNorm, RowForm, RowScales, Rows,
    },
    reference::{Fp8Rows, Fp8Scales},
};

use super::input::{Fp8Input, Input};
use crate::backend::cuda::{
    machine::Machine,
    weights::{Projection, RowQuantiser},
    workspace::{Activations, expert_product_bytes},
};

/// With more rows than this the device's library multiplies, where it has the product: on an H200
/// it is faster from about 100 rows of Llama-3.1-8B on. Rounds that are captured compare it with
/// our kernels.
const MOST_OWN_ROWS: usize = 96;

impl Machine {
    /// The operands of a layer, whose input is quantised now if the layer multiplies in FP8 and its
    /// rows are not in FP8 yet.
    pub(super) fn operands<'a>(
        &self,
        work: &'a Activations,
        y: Slice<'a>,
        input: Input<'a>,
        layer: &'a Projection,
        rows: usize,
    ) -> Result<Linear<'a>, DeviceError> {
        let Input { rows: x, unscaled, fp8 } = input;
        let Some(quantiser) = &layer.quantiser else {
            return Ok(Linear { unscaled, ..layer.linear(y, x, rows) });
        };
        if let Some(Fp8Input { rows: x, scales }) = fp8 {
            return Ok(Linear { row_scales: Some(scales), ..layer.linear(y, x, rows) });
        }
        let (out, inputs) = (work.quantised.slice(), layer.inputs);
        let to = self.quantise_to(work, quantiser);
        let of_rows = self.kernels.quantise_rows(QuantiseRows { out, to, x, unscaled, gated: false, rows, inputs })?;
        Ok(Linear { row_scales: Some(of_rows), ..layer.linear(y, Rows { at: out, stride: inputs }, rows) })
    }

    /// Norms rows and quantises the result.
    pub(super) fn norm_in_fp8<'a>(
        &self,
        work: &'a Activations,
        norm: RmsNorm<'a>,
        quantiser: &RowQuantiser,
        outputs: NormOutputs,
    ) -> Result<Input<'a>, DeviceError> {
        let RmsNorm { out: rows, width, .. } = norm;
        let to = (work.quantised.slice(), self.quantise_to(work, quantiser));
        let RowScales { layout, form, .. } = self.kernels.rms_norm_quantised(norm, to, outputs)?;
        // A static scale is copied to those of rows: nothing refers to the reader any more.
        let scales = RowScales { at: work.row_scales.slice(), layout, form };
        let quantised = Rows { at: work.quantised.slice(), stride: width };
        Ok(Input { rows, unscaled: None, fp8: Some(Fp8Input { rows: quantised, scales }) })
    }

    /// Quantises `silu(gate) · up` of `work.gate_up` for the next layer, in one kernel.
    pub(super) fn gate_in_fp8<'a>(
        &self,
        work: &'a Activations,
        next: &'a Projection,
        quantiser: &'a RowQuantiser,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let (out, inputs) = (work.quantised.slice(), next.inputs);
        let quantised = self.kernels.quantise_rows(QuantiseRows {
            out,
            to: self.quantise_to(work, quantiser),
            x: Rows { at: work.gate_up.slice(), stride: 2 * inputs },
            unscaled: None,
            gated: true,
            rows,
            inputs,
        });
        quantised.map(|_| ())
    }

    /// The rows of a layer that have been quantised in the workspace.
    pub(super) fn quantised_rows<'a>(
        &self,
        work: &'a Activations,
        layer: &'a Projection,
        quantiser: &'a RowQuantiser,
    ) -> Input<'a> {
        let rows = Rows { at: work.quantised.slice(), stride: layer.inputs };
        let scales = self.quantise_to(work, quantiser).row_scales();
        Input { rows, unscaled: None, fp8: Some(Fp8Input { rows, scales }) }
    }

    /// How up to `rows` rows of experts that multiply in FP8 are quantised, in the workspace; if
    /// `is_ready` the norm has quantised those of gate and up.
    pub(super) fn expert_products<'a>(
        &self,
        work: &'a Activations,
        shape: &ExpertsShape,
        quantisers: &'a [RowQuantiser; 2],
        (rows, is_ready): (usize, bool),
    ) -> ExpertProducts<'a> {
        let [bytes, scales] = expert_product_bytes(quantisers[0].layout, shape, rows, self.element_bytes());
        let apart = |buffer: &'a Buffer, first: usize| [buffer.range(0..first), buffer.range(first..buffer.bytes())];
        let scales = apart(&work.row_scales, scales[0]);
        let to = |at: usize| QuantiseTo {
            scales: scales[at],
            fixed: quantisers[at].fixed.as_ref().map(Buffer::slice),
            layout: quantisers[at].layout,
            form: RowForm::for_device(self.device().properties()),
        };
        ExpertProducts { quantised: apart(&work.quantised, bytes[0]), to: [to(0), to(1)], is_ready }
    }

    /// Where the rows of a layer go: as numbers, if the device multiplies these.
    pub(super) fn quantise_to<'q>(&self, work: &'q Activations, quantiser: &'q RowQuantiser) -> QuantiseTo<'q> {
        let RowQuantiser { layout, fixed } = quantiser;
        QuantiseTo {
            scales: work.row_scales.slice(),
            fixed: fixed.as_ref().map(Buffer::slice),
            layout: *layout,
            form: RowForm::for_device(self.device().properties()),
        }
    }
}

/// The library's product for rows in FP8, if it has one (with these scales, on Hopper alone) and
/// there are enough rows for it.
pub(super) fn library_product(linear: Linear<'_>, properties: &Properties) -> Option<Fp8Product> {
    let (weights, of_rows) = (linear.scales?.layout, linear.row_scales?);
    let suits = match (weights, of_rows.layout) {
        (Fp8Scales::Channels, Fp8Rows::Tensor | Fp8Rows::Row) => true,
        // Its kernels read four scales at a time.
        (Fp8Scales::Blocks, Fp8Rows::RowBlocks) => linear.inputs.is_multiple_of(512) && linear.rows.is_multiple_of(4),
        _ => false,
    };
    let many = of_rows.form == RowForm::Numbers && linear.rows > MOST_OWN_ROWS;
    (suits && many && properties.is_hopper()).then_some(Fp8Product { weights, rows: of_rows.layout })
}

//! Gated delta nets in place of attention.

use kernels::{
    device::DeviceError,
    launch::{DeltaInputs, DeltaPass, Kernels, Rows},
};

use super::super::{input::Input, layer::LayerOperands};
use crate::backend::cuda::{
    delta::delta_inputs,
    machine::{Machine, Pass},
    weights::DeltaWeights,
};

impl Machine {
    pub(super) fn delta<'a>(
        &'a self,
        pass: Pass<'a>,
        layer: LayerOperands<'a>,
        weights: &'a DeltaWeights,
    ) -> Result<Input<'a>, DeviceError> {
        let Pass { rows, groups, arrays, work, order, prompts, .. } = pass;
        let (sizes, element) = (weights.spec.sizes, self.element_bytes());
        let width = sizes.value_width();
        let is_prompt = !prompts.is_empty();
        let attended = self.rows(&work.attended, width);
        let (Some(states), Some(tables)) = (&self.states, &self.target.delta) else { return Ok(attended.into()) };
        let [projected, of_rates, convolved] = self.delta_projected(work, weights, rows, is_prompt);
        // First: its kernels are small, and the larger layer fills its rings meanwhile.
        if let Some(rates) = &weights.rates {
            self.linear_of(work, of_rates, layer.input, rates, rows)?;
        }
        self.linear_of(work, projected, layer.input, &weights.entry, rows)?;
        let whole = sizes.channels() + width;
        let outputs = (whole, weights.entry.outputs, weights.rates.as_ref().map_or(0, |rates| rates.outputs));
        let inputs: DeltaInputs<'_> = delta_inputs([projected, of_rates, convolved], outputs, rows, element);
        let of_states = self.delta_states(states);
        let delta = DeltaPass { sizes, layer: weights.index, inputs, groups, row_slot: arrays.slot.slice(), order };
        if self.in_chunks(pass, &sizes) {
            let chunks = work.delta.chunks(&arrays.position);
            self.kernels.delta_chunks(attended.at, delta, chunks, tables.operands(), of_states)?;
        } else {
            self.kernels.delta_rows(attended.at, delta, tables.operands(), of_states)?;
        }
        if is_prompt {
            self.kernels.delta_continue(delta, of_states)?;
        }
        let gate =
            Rows { at: projected.range(sizes.channels() * element..projected.bytes()), stride: weights.entry.outputs };
        let norm = (weights.norm.slice(), layer.weights.epsilon);
        // The last layer of a prompt continues with some of its rows: those are gathered first.
        let quantises = |layout| layer.needed.is_none() && Kernels::gates_in_fp8(&sizes, layout);
        if let Some(quantiser) = weights.output.quantiser.as_ref().filter(|quantiser| quantises(quantiser.layout)) {
            let to = (work.quantised.slice(), self.quantise_to(work, quantiser));
            self.kernels.delta_gate_quantised(&sizes, attended.at, gate, norm, to, rows)?;
            return Ok(self.quantised_rows(work, &weights.output, quantiser));
        }
        self.kernels.delta_gate(&sizes, attended.at, gate, norm, rows)?;
        Ok(attended.into())
    }
}

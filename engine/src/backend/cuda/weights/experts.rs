//! Experts in the kernels' layout: stacked, with the shared experts after the routed ones.

use kernels::{
    device::Buffer,
    launch::{ExpertsShape, Rows, WeightType},
    reference::{Fp8Matrix, Fp8Scales},
};

use super::{Loader, ScaleBuffer};
use crate::{
    error::EngineError,
    spec::{ExpertsSpec, ExpertsTensors, GatedTensors, RouterPrecision, TensorSpec},
};

/// A layer's experts as the kernels see them. A shared expert counts as several experts, by how
/// many times wider it is than a routed one.
///
/// # Errors
/// The reason why no kernel supports them.
pub fn experts_shape(spec: &ExpertsSpec, hidden: usize, weights: WeightType) -> Result<ExpertsShape, String> {
    let ExpertsSpec { router, experts, intermediate, shared, shared_gate, activation, bias, .. } = *spec;
    if (bias || weights == WeightType::Mxfp4) && shared.is_some() {
        return Err("a shared expert beside experts with biases or in MXFP4, for which there are no kernels".into());
    }
    let shared = shared.unwrap_or_default();
    if !shared.is_multiple_of(intermediate) {
        return Err(format!("a shared expert of width {shared} with other experts of width {intermediate}"));
    }
    let shape = ExpertsShape {
        routed: experts,
        shared: shared / intermediate,
        gated: shared_gate && shared > 0,
        router: spec.router(),
        rounds_logits: router.logits == RouterPrecision::Model,
        hidden,
        intermediate,
        weights,
        activation,
        biased: bias,
    };
    shape.refused().map_or(Ok(shape), Err)
}

impl Loader<'_> {
    /// Gate and up of each expert: `[experts, 2 · intermediate, hidden]`.
    pub fn stacked_gate_up(&self, shape: &ExpertsShape, tensors: &ExpertsTensors) -> Result<Buffer, EngineError> {
        let part = shape.intermediate * shape.hidden * self.kernels.element().bytes();
        let buffer = self.kernels.device().allocate(shape.experts() * 2 * part)?;
        let all: Vec<&TensorSpec> = tensors.experts.iter().flat_map(gate_up).collect();
        self.stack(&buffer, part, &all)?;
        let Some(shared) = &tensors.shared else { return Ok(buffer) };
        for (half, tensor) in gate_up(shared).into_iter().enumerate() {
            let whole = self.tensor(tensor)?;
            for at in 0..shape.shared {
                let start = (2 * (shape.routed + at) + half) * part;
                self.kernels
                    .device()
                    .copy(buffer.range(start..start + part), whole.range(at * part..(at + 1) * part))?;
            }
        }
        Ok(buffer)
    }

    /// Down of each expert: `[experts, hidden, intermediate]`.
    pub fn stacked_down(&self, shape: &ExpertsShape, tensors: &ExpertsTensors) -> Result<Buffer, EngineError> {
        let ExpertsShape { hidden, intermediate, .. } = *shape;
        let bytes = self.kernels.element().bytes();
        let part = intermediate * hidden * bytes;
        let buffer = self.kernels.device().allocate(shape.experts() * part)?;
        let all: Vec<&TensorSpec> = tensors.experts.iter().map(|expert| &expert.down.weight).collect();
        self.stack(&buffer, part, &all)?;
        let Some(shared) = &tensors.shared else { return Ok(buffer) };
        let whole = self.tensor(&shared.down.weight)?;
        let stride = shape.shared * intermediate;
        for at in 0..shape.shared {
            let start = (shape.routed + at) * part;
            let to = Rows { at: buffer.range(start..start + part), stride: intermediate };
            let from = Rows { at: whole.range(at * intermediate * bytes..whole.bytes()), stride };
            self.kernels.gather_rows(to, None, from, None, hidden, intermediate)?;
        }
        Ok(buffer)
    }

    /// Both matrices of each expert in FP8, with their scales.
    pub fn stacked_fp8(
        &self,
        shape: &ExpertsShape,
        tensors: &ExpertsTensors,
        layout: Fp8Scales,
    ) -> Result<[(Buffer, ScaleBuffer); 2], EngineError> {
        let ExpertsShape { hidden, intermediate, shared, .. } = *shape;
        let blocks = || tensors.experts.iter().chain(&tensors.shared);
        // A shared expert is a multiple of the others' width.
        let widths = |tensor: &TensorSpec, axis: usize| tensor.shape[axis] / intermediate;
        let down: Vec<&TensorSpec> = blocks().map(|block| &block.down.weight).collect();
        let down = self.fp8_parts(&down, layout, |tensor| {
            let matrix = self.fp8_matrix(tensor)?;
            Ok(match widths(tensor, 1) {
                1 => vec![matrix],
                count => {
                    (0..count).map(|at| matrix.cut(0..hidden, at * intermediate..(at + 1) * intermediate)).collect()
                }
            })
        })?;
        let gate_up: Vec<&TensorSpec> = blocks().flat_map(gate_up).collect();
        // Gate and up of each part alternate.
        let mut gates: Vec<Fp8Matrix<'_>> = Vec::new();
        let gate_up = self.fp8_parts(&gate_up, layout, |tensor| {
            let matrix = self.fp8_matrix(tensor)?;
            if shared < 2 || widths(tensor, 0) == 1 {
                return Ok(vec![matrix]);
            }
            let parts = (0..shared).map(|at| matrix.cut(at * intermediate..(at + 1) * intermediate, 0..hidden));
            if gates.is_empty() {
                gates = parts.collect();
                return Ok(Vec::new());
            }
            Ok(std::mem::take(&mut gates).into_iter().zip(parts).flat_map(|(gate, up)| [gate, up]).collect())
        })?;
        Ok([gate_up, down])
    }

    /// Fills a buffer, from its start, with tensors of `part` bytes each; random values are filled
    /// in one call.
    fn stack(&self, buffer: &Buffer, part: usize, tensors: &[&TensorSpec]) -> Result<(), EngineError> {
        if let (true, Some(first)) = (self.is_random(), tensors.first()) {
            return self.fill(buffer.range(0..part * tensors.len()), first);
        }
        let mut parts = tensors.iter().enumerate();
        parts.try_for_each(|(at, tensor)| self.fill(buffer.range(at * part..(at + 1) * part), tensor))
    }

    /// A vector as float32, regardless of the element type; zeros for random weights.
    pub fn floats(&self, tensor: &TensorSpec) -> Result<Buffer, EngineError> {
        Ok(self.kernels.device().upload(&self.float_values(tensor)?)?)
    }
}

fn gate_up(expert: &GatedTensors) -> [&TensorSpec; 2] {
    [&expert.gate.weight, &expert.up.weight]
}

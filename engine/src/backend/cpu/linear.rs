//! Linear layers and gated blocks.

use std::borrow::Cow;

use kernels::reference::{linear, quantise_rows, silu_gate};

use crate::{
    checkpoint::{InputScales, LinearWeights, Tensors},
    error::EngineError,
    spec::{GatedTensors, LinearTensors},
};

/// A linear layer.
#[derive(Debug)]
pub struct CpuLinear {
    weights: LinearWeights,
    /// How the inputs are quantised, if the layer multiplies in FP8.
    inputs: Option<InputScales>,
}

/// `down(silu(gate(x)) · up(x))`.
#[derive(Debug)]
pub struct Gated {
    gate: CpuLinear,
    up: CpuLinear,
    down: CpuLinear,
}

impl CpuLinear {
    /// Loads the layer.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(from: Tensors<'_>, tensors: &LinearTensors) -> Result<Self, EngineError> {
        let inputs = from.input_scales([&tensors.weight])?;
        Ok(Self { weights: from.linear(tensors)?, inputs })
    }

    /// Loads layers that read the same rows.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_readers<const COUNT: usize>(
        from: Tensors<'_>,
        readers: [&LinearTensors; COUNT],
    ) -> Result<[Self; COUNT], EngineError> {
        let shared = from.input_scales(readers.map(|tensors| &tensors.weight))?;
        let load = |tensors: &LinearTensors| {
            // A small layer among them may be left in the checkpoint's own type.
            let inputs = shared.filter(|_| tensors.weight.rows.is_some());
            Ok::<_, EngineError>(Self { weights: from.linear(tensors)?, inputs })
        };
        let loaded = readers.into_iter().map(load).collect::<Result<Vec<_>, _>>()?;
        loaded.try_into().map_err(|_| EngineError::Configuration("a layer is missing".into()))
    }

    /// A layer with this weight and no bias.
    #[cfg(test)]
    pub fn from_weight(weight: kernels::reference::Matrix) -> Self {
        Self { weights: LinearWeights { weight, bias: None }, inputs: None }
    }

    /// `x` is `[rows, inputs]`, the result `[rows, outputs]`.
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        let LinearWeights { weight, bias } = &self.weights;
        linear(&as_multiplied(x, weight.inputs(), self.inputs), weight, bias.as_deref())
    }
}

/// Rows of `width` values as a layer multiplies them: as they are, or rounded to FP8.
pub(super) fn as_multiplied(x: &[f32], width: usize, inputs: Option<InputScales>) -> Cow<'_, [f32]> {
    match inputs {
        None => x.into(),
        Some(InputScales { layout, fixed }) => quantise_rows(x, width, layout, fixed).values().into(),
    }
}

impl Gated {
    /// Loads the block.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(from: Tensors<'_>, tensors: &GatedTensors) -> Result<Self, EngineError> {
        let [gate, up] = CpuLinear::load_readers(from, [&tensors.gate, &tensors.up])?;
        Ok(Self { gate, up, down: CpuLinear::load(from, &tensors.down)? })
    }

    /// `x` and the result are `[rows, hidden]`.
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        self.down.forward(&silu_gate(&self.gate.forward(x), &self.up.forward(x)))
    }
}

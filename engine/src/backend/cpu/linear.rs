//! Linear layers and gated blocks.

use kernels::reference::{linear, silu_gate};

use crate::{
    checkpoint::{LinearWeights, Tensors},
    error::EngineError,
    spec::{GatedTensors, LinearTensors},
};

/// A linear layer.
#[derive(Debug)]
pub struct Linear(LinearWeights);

/// `down(silu(gate(x)) · up(x))`.
#[derive(Debug)]
pub struct Gated {
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Linear {
    /// Loads the layer.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(from: Tensors<'_>, tensors: &LinearTensors) -> Result<Self, EngineError> {
        from.linear(tensors).map(Self)
    }

    /// A layer with this weight and no bias.
    #[cfg(test)]
    pub fn of(weight: kernels::reference::Matrix) -> Self {
        Self(LinearWeights { weight, bias: None })
    }

    /// `x` is `[rows, inputs]`, the result `[rows, outputs]`.
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        linear(x, &self.0.weight, self.0.bias.as_deref())
    }
}

impl Gated {
    /// Loads the block.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(from: Tensors<'_>, tensors: &GatedTensors) -> Result<Self, EngineError> {
        let linear = |tensors| Linear::load(from, tensors);
        Ok(Self { gate: linear(&tensors.gate)?, up: linear(&tensors.up)?, down: linear(&tensors.down)? })
    }

    /// `x` and the result are `[rows, hidden]`.
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        self.down.forward(&silu_gate(&self.gate.forward(x), &self.up.forward(x)))
    }
}

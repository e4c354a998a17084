//! The gated feed-forward layer.

use kernels::reference::{Matrix, linear, silu_gate};

use super::names::Names;
use crate::{error::EngineError, spec::FfnTensors};

/// `down(silu(gate(x)) · up(x))`.
#[derive(Debug)]
pub struct FeedForward {
    gate: Matrix,
    up: Matrix,
    down: Matrix,
    biases: Option<[Vec<f32>; 3]>,
}

impl FeedForward {
    /// Loads a dense feed-forward layer.
    ///
    /// # Errors
    /// When a tensor is missing or misshapen, or the layer has experts.
    pub fn load(names: &Names<'_>, tensors: &FfnTensors) -> Result<Self, EngineError> {
        let FfnTensors::Dense(tensors) = tensors else {
            return Err(EngineError::Unsupported {
                path: names.weights().folder().to_owned(),
                feature: "a layer of experts".into(),
                hint: "supported are dense layers".into(),
            });
        };
        let (gate, gate_bias) = names.linear(&tensors.gate)?;
        let (up, up_bias) = names.linear(&tensors.up)?;
        let (down, down_bias) = names.linear(&tensors.down)?;
        let biases = match (gate_bias, up_bias, down_bias) {
            (Some(gate), Some(up), Some(down)) => Some([gate, up, down]),
            _ => None,
        };
        Ok(Self { gate, up, down, biases })
    }

    /// `x` and the result are `[rows, hidden]`.
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        let bias = |at: usize| self.biases.as_ref().map(|biases| biases[at].as_slice());
        let gated = silu_gate(&linear(x, &self.gate, bias(0)), &linear(x, &self.up, bias(1)));
        linear(&gated, &self.down, bias(2))
    }
}

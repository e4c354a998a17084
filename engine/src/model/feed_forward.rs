//! The gated feed-forward layer.

use kernels::reference::{Matrix, linear, silu_gate};

use super::names::Names;
use crate::error::EngineError;

/// `down(silu(gate(x)) · up(x))`.
#[derive(Debug)]
pub struct FeedForward {
    gate: Matrix,
    up: Matrix,
    down: Matrix,
    biases: Option<[Vec<f32>; 3]>,
}

impl FeedForward {
    /// Loads `{gate,up,down}_proj` under a prefix, with biases where the checkpoint has all three.
    pub fn load(names: &Names<'_>, prefix: &str, hidden: usize, intermediate: usize) -> Result<Self, EngineError> {
        let weight = |name: &str, outputs, inputs| names.matrix(&format!("{prefix}.{name}.weight"), outputs, inputs);
        let bias = |name: &str, outputs| names.optional_vector(&format!("{prefix}.{name}.bias"), outputs);
        let biases =
            match (bias("gate_proj", intermediate)?, bias("up_proj", intermediate)?, bias("down_proj", hidden)?) {
                (Some(gate), Some(up), Some(down)) => Some([gate, up, down]),
                _ => None,
            };
        Ok(Self {
            gate: weight("gate_proj", intermediate, hidden)?,
            up: weight("up_proj", intermediate, hidden)?,
            down: weight("down_proj", hidden, intermediate)?,
            biases,
        })
    }

    /// `x` and the result are `[rows, hidden]`.
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        let bias = |at: usize| self.biases.as_ref().map(|biases| biases[at].as_slice());
        let gated = silu_gate(&linear(x, &self.gate, bias(0)), &linear(x, &self.up, bias(1)));
        linear(&gated, &self.down, bias(2))
    }
}

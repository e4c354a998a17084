//! Attention of a layer.

mod delta;
mod expanded;
mod grouped;
mod latent;

use kernels::{device::DeviceError, launch::Rows};

use super::{input::Input, layer::LayerOperands};
use crate::backend::cuda::{
    machine::{Machine, Pass},
    weights::AttentionWeights,
};

impl Machine {
    /// Writes the cache rows of a pass, and attends. Returns the input of the output projection.
    pub(super) fn attend<'a>(&'a self, pass: Pass<'a>, layer: LayerOperands<'a>) -> Result<Input<'a>, DeviceError> {
        match &layer.weights.attention {
            AttentionWeights::Grouped(weights) => self.grouped(pass, layer, weights).map(Rows::into),
            AttentionWeights::Latent(weights) => self.latent(pass, layer, weights).map(Rows::into),
            AttentionWeights::Delta(weights) => self.delta(pass, layer, weights),
        }
    }
}

//! Attention of a layer.

mod delta;
mod expanded;
mod grouped;
mod latent;

use kernels::{device::DeviceError, launch::Rows};

use super::layer::LayerOperands;
use crate::backend::cuda::{
    machine::{Machine, Pass},
    weights::AttentionWeights,
};

impl Machine {
    /// Writes the cache rows of a pass, and attends. Returns the input of the output projection.
    pub(super) fn attend<'a>(&'a self, pass: Pass<'a>, layer: LayerOperands<'a>) -> Result<Rows<'a>, DeviceError> {
        match &layer.weights.attention {
            AttentionWeights::Grouped(weights) => self.grouped(pass, layer, weights),
            AttentionWeights::Latent(weights) => self.latent(pass, layer, weights),
            AttentionWeights::Delta(weights) => self.delta(pass, layer, weights),
        }
    }
}

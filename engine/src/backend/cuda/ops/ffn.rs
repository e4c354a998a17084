//! The feed-forward block of a layer.

mod dense;
mod experts;

use kernels::{device::DeviceError, launch::RmsNorm};

use super::{
    input::Input,
    layer::{LayerOutput, NextNorm},
};
use crate::backend::cuda::{machine::Machine, weights::FfnWeights, workspace::Activations};

impl Machine {
    /// Runs a feed-forward block over normed rows and adds its output to the stream of `norm`,
    /// which is then normed for the `next` layer, if there is one. Only the rows of `norm` are
    /// used, not its weight.
    pub(super) fn feed_forward<'a>(
        &'a self,
        work: &'a Activations,
        ffn: &'a FfnWeights,
        input: Input<'a>,
        norm: RmsNorm<'a>,
        next: Option<NextNorm<'a>>,
    ) -> Result<LayerOutput<'a>, DeviceError> {
        match ffn {
            FfnWeights::Dense(dense) => self.dense(work, dense, input, norm, next),
            FfnWeights::Experts(experts) => self.routed(work, experts, input, norm, next),
        }
    }
}

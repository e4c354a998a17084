//! One gated block: `down(silu(gate(x)) · up(x))`.

use kernels::{device::DeviceError, launch::RmsNorm};

use super::super::{
    input::Input,
    layer::{LayerOutput, NextNorm},
};
use crate::backend::cuda::{machine::Machine, weights::DenseWeights, workspace::Activations};

impl Machine {
    pub(super) fn dense<'a>(
        &'a self,
        work: &'a Activations,
        dense: &'a DenseWeights,
        input: Input<'a>,
        norm: RmsNorm<'a>,
        next: Option<NextNorm<'a>>,
    ) -> Result<LayerOutput<'a>, DeviceError> {
        let DenseWeights { gate_up, down, .. } = dense;
        let RmsNorm { stream, rows, .. } = norm;
        let gated = self.gated(work, input, [gate_up, down], rows)?;
        match next {
            Some(NextNorm { norm: weight, epsilon, readers, keep }) => {
                let norm = RmsNorm { weight: weight.slice(), epsilon, keep, ..norm };
                self.add_and_norm(work, gated, down, norm, readers).map(LayerOutput::Normed)
            }
            None => Ok(self.added(work, gated, down, stream, rows)?.map_or(LayerOutput::Stream, LayerOutput::Added)),
        }
    }
}

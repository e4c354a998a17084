//! Reorders heads of which only a part is rotated, or whose pairs are neighbours, so that every dimension is paired
//! with the one half a head after it, as in heads that are rotated whole. Queries and keys are reordered alike, so
//! their dot products do not change, and the kernels implement only one rotation.

use kernels::{device::Buffer, launch::Rows};

use super::{Loader, Projection};
use crate::{
    error::EngineError,
    spec::{GroupedQuery, LinearTensors, Pairing, RopeSpec, TensorSpec},
};

/// The checkpoint's dimension for each place of a reordered head; `None` if heads already have the kernels' order.
fn order(rope: &RopeSpec, head_dim: usize) -> Option<Vec<usize>> {
    let (dims, half) = (rope.dims, head_dim / 2);
    if dims == head_dim && rope.pairing == Pairing::Halves {
        return None;
    }
    let mut order = vec![0; head_dim];
    let mut rest = dims..head_dim;
    for pair in 0..half {
        let (low, high) = match rope.pairing {
            _ if pair >= dims / 2 => (rest.next()?, rest.next()?),
            Pairing::Halves => (pair, pair + dims / 2),
            Pairing::Interleaved => (2 * pair, 2 * pair + 1),
        };
        (order[pair], order[half + pair]) = (low, high);
    }
    Some(order)
}

/// Cosines and sines of all pairs of a head, `[positions, head_dim / 2, 2]`; pairs that are not rotated get the
/// identity.
pub fn rotation_table(attention: &GroupedQuery, table: &[f32]) -> Vec<f32> {
    let (dims, head_dim) = (attention.rope.dims, attention.head_dim);
    let still = [1.0, 0.0].repeat((head_dim - dims) / 2);
    table.chunks_exact(dims).flat_map(|turns| turns.iter().chain(&still)).copied().collect()
}

impl Loader<'_> {
    /// Query, key and value projections as one, with heads in the kernels' order.
    pub fn rotated_projection(
        &self,
        spec: &GroupedQuery,
        layers: [&LinearTensors; 3],
    ) -> Result<Projection, EngineError> {
        let Some(order) = order(&spec.rope, spec.head_dim) else { return self.projection(&layers) };
        let rotated = spec.query_width() + spec.key_value_width();
        let source = |output: usize| match output < rotated {
            true => output / spec.head_dim * spec.head_dim + order[output % spec.head_dim],
            false => output,
        };
        if let Some(layout) = layers[0].weight.format.fp8() {
            let outputs: usize = layers.iter().map(|layer| layer.outputs()).sum();
            let rows: Vec<usize> = (0..outputs).map(source).collect();
            let (weight, scales) = self.fp8_reordered(&layers.map(|layer| &layer.weight), layout, &rows)?;
            let biases: Option<Vec<&TensorSpec>> = layers.iter().map(|layer| layer.bias.as_ref()).collect();
            let bias =
                biases.map(|biases| self.reordered(&self.concatenated(&biases)?, rows.into_iter())).transpose()?;
            return Ok(Projection {
                weight,
                scales: Some(scales),
                bias,
                inputs: layers[0].inputs(),
                outputs,
                is_partial: false,
            });
        }
        self.reordered_projection(&layers, source)
    }

    /// Key and value projections of several layers with the same input and the same heads as one, layer by layer, in the
    /// type of activations and with heads in the kernels' order.
    pub fn context_projection(
        &self,
        spec: &GroupedQuery,
        layers: &[&LinearTensors],
    ) -> Result<Projection, EngineError> {
        let Some(order) = order(&spec.rope, spec.head_dim) else { return self.projection(layers) };
        let (width, head_dim) = (spec.key_value_width(), spec.head_dim);
        self.reordered_projection(layers, |output| match output / width % 2 {
            0 => output / head_dim * head_dim + order[output % head_dim],
            _ => output,
        })
    }

    /// Linear layers as one, in the type of activations, whose output r is output `source(r)` of theirs.
    fn reordered_projection(
        &self,
        layers: &[&LinearTensors],
        source: impl Fn(usize) -> usize,
    ) -> Result<Projection, EngineError> {
        let Projection { weight, scales, bias, inputs, outputs, is_partial } = self.projection(layers)?;
        let device = self.kernels.device();
        let rows: Vec<i32> = (0..outputs).map(|output| source(output) as i32).collect();
        let (rows, reordered) = (device.upload(&rows)?, device.allocate(weight.bytes())?);
        let of = |buffer| Rows { at: Buffer::slice(buffer), stride: inputs };
        self.kernels.gather_rows(of(&reordered), None, of(&weight), Some(rows.slice()), outputs, inputs)?;
        let bias = bias.map(|bias| self.reordered(&bias, (0..outputs).map(&source))).transpose()?;
        // Memory that is freed here may still be read by the copy.
        device.synchronize()?;
        Ok(Projection { weight: reordered, scales, bias, inputs, outputs, is_partial })
    }

    /// The norm of query or key heads, in the kernels' order.
    pub fn rotated_norm(&self, spec: &GroupedQuery, tensor: &TensorSpec) -> Result<Buffer, EngineError> {
        let norm = self.tensor(tensor)?;
        match order(&spec.rope, spec.head_dim) {
            Some(order) => self.reordered(&norm, order.into_iter()),
            None => Ok(norm),
        }
    }

    /// A vector with its elements reordered.
    fn reordered(&self, from: &Buffer, order: impl Iterator<Item = usize>) -> Result<Buffer, EngineError> {
        let (device, width) = (self.kernels.device(), self.kernels.element().bytes());
        let values: Vec<u8> = device.download(from.slice())?;
        let reordered: Vec<u8> = order.flat_map(|at| &values[at * width..(at + 1) * width]).copied().collect();
        Ok(device.upload(&reordered)?)
    }
}

#[cfg(test)]
mod tests {
    use kernels::reference::RopeScaling;

    use super::*;

    fn rope(dims: usize, pairing: Pairing) -> RopeSpec {
        RopeSpec { dims, pairing, theta: 1e4, scaling: RopeScaling::None }
    }

    #[test]
    fn pairs_that_turn_together_lie_half_a_head_apart() {
        assert_eq!(order(&rope(8, Pairing::Halves), 8), None);
        assert_eq!(order(&rope(4, Pairing::Halves), 8), Some(vec![0, 1, 4, 6, 2, 3, 5, 7]));
        assert_eq!(order(&rope(8, Pairing::Interleaved), 8), Some(vec![0, 2, 4, 6, 1, 3, 5, 7]));
    }
}

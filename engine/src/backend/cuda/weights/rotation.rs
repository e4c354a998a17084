//! Reorders heads of which only a part is rotated, or whose pairs are neighbours, so that every
//! dimension is paired with the one half a head after it, as in heads that are rotated whole.
//! Queries and keys are reordered alike, so their dot products do not change, and the kernels
//! implement only one rotation.

use kernels::{device::Buffer, launch::Rows};

use super::{Loader, Projection};
use crate::{
    error::EngineError,
    spec::{GroupedQuery, LinearTensors, Pairing, RopeSpec, TensorSpec},
};

/// The checkpoint's dimension for each place of a reordered head; `None` if heads already have the
/// kernels' order.
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

/// Cosines and sines of all pairs of a head, `[positions, head_dim / 2, 2]`; pairs that are not
/// rotated get the identity.
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
        let order = match order(&spec.rope, spec.head_dim) {
            None if spec.output_gate => (0..spec.head_dim).collect(),
            None => return self.projection(&layers),
            Some(order) => order,
        };
        let (queries, rotated) = (spec.query_width(), spec.query_width() + spec.key_value_width());
        // With gates, each head's queries are followed by its gates.
        let (apart, gates) = (spec.query_outputs() / spec.heads, spec.query_outputs() - queries);
        let source = |output: usize| match output {
            query if query < queries => query / spec.head_dim * apart + order[query % spec.head_dim],
            key if key < rotated => gates + key / spec.head_dim * spec.head_dim + order[key % spec.head_dim],
            value => gates + value,
        };
        self.reordered_projection(&layers, &layers, (0..spec.qkv_width()).map(source).collect())
    }

    /// The projection to the gates of the outputs, which the query projection also gives. All of
    /// `layers` (query, key, value) read the same rows.
    pub fn gate_projection(&self, spec: &GroupedQuery, layers: [&LinearTensors; 3]) -> Result<Projection, EngineError> {
        let dim = spec.head_dim;
        let source = |output: usize| output / dim * 2 * dim + dim + output % dim;
        self.reordered_projection(&layers[..1], &layers, (0..spec.query_width()).map(source).collect())
    }

    /// Key and value projections of several layers with the same input and the same heads as one,
    /// layer by layer, in the type of activations and with heads in the kernels' order.
    pub fn context_projection(
        &self,
        spec: &GroupedQuery,
        layers: &[&LinearTensors],
    ) -> Result<Projection, EngineError> {
        let Some(order) = order(&spec.rope, spec.head_dim) else { return self.projection(layers) };
        let (width, head_dim) = (spec.key_value_width(), spec.head_dim);
        let outputs: usize = layers.iter().map(|layer| layer.outputs()).sum();
        let source = |output: usize| match output / width % 2 {
            0 => output / head_dim * head_dim + order[output % head_dim],
            _ => output,
        };
        self.reordered_projection(layers, layers, (0..outputs).map(source).collect())
    }

    /// Linear layers as one, with these of their outputs, in this order; those of each layer stay
    /// together. `readers` are all layers that read the same rows.
    fn reordered_projection(
        &self,
        layers: &[&LinearTensors],
        readers: &[&LinearTensors],
        rows: Vec<usize>,
    ) -> Result<Projection, EngineError> {
        let biases: Option<Vec<&TensorSpec>> = layers.iter().map(|layer| layer.bias.as_ref()).collect();
        let bias =
            biases.map(|biases| self.reordered(&self.concatenated(&biases)?, rows.iter().copied())).transpose()?;
        let (inputs, outputs) = (layers.first().map_or(0, |layer| layer.inputs()), rows.len());
        if let Some(layout) = layers.first().and_then(|layer| layer.weight.format.fp8()) {
            let weights: Vec<&TensorSpec> = layers.iter().map(|layer| &layer.weight).collect();
            let mut first = 0;
            let of_layers = weights.iter().map(|weight| {
                let own = first..first + weight.shape[0];
                first = own.end;
                rows.iter().filter(|row| own.contains(row)).map(|row| row - own.start).collect()
            });
            let of_layers: Vec<Vec<usize>> = of_layers.collect();
            let (weight, scales) = self.fp8_rows(&weights, layout, &of_layers)?;
            let readers: Vec<&TensorSpec> = readers.iter().map(|layer| &layer.weight).collect();
            return Ok(Projection {
                weight,
                scales: Some(scales),
                quantiser: self.quantiser(&readers)?,
                bias,
                inputs,
                outputs,
                is_partial: false,
            });
        }
        let weight = self.projection(layers)?.weight;
        let device = self.kernels.device();
        let rows: Vec<i32> = rows.into_iter().map(|row| row as i32).collect();
        let bytes = outputs * inputs * self.kernels.element().bytes();
        let (rows, reordered) = (device.upload(&rows)?, device.allocate(bytes)?);
        let of = |buffer| Rows { at: Buffer::slice(buffer), stride: inputs };
        self.kernels.gather_rows(of(&reordered), None, of(&weight), Some(rows.slice()), outputs, inputs)?;
        // Memory that is freed here may still be read by the copy.
        device.synchronize()?;
        Ok(Projection { weight: reordered, scales: None, quantiser: None, bias, inputs, outputs, is_partial: false })
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

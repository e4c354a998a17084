//! Loads tensors of a spec onto a device, in one element type.

use std::{borrow::Cow, cell::Cell, ops::Range};

use kernels::{
    device::{Buffer, Device, Element, Slice},
    launch::Kernels,
    reference::{CacheScales, Fp8Rows},
};

use super::{Projection, RowQuantiser};
use crate::{
    checkpoint::{InputScales, Tensors, Weights},
    error::EngineError,
    spec::{CacheScaleNames, LinearTensors, Role, Share, TensorSpec, TensorSplit},
};

/// The source of weights.
#[derive(Clone, Copy)]
pub enum WeightSource<'a> {
    /// A checkpoint.
    Checkpoint(&'a Weights),
    /// Random values, for measuring speed, which does not depend on them.
    Random,
}

/// Loads tensors onto a device, in one element type.
pub struct Loader<'a> {
    pub kernels: &'a Kernels,
    pub(super) source: WeightSource<'a>,
    /// The rank that loads. Tensors are described with the size of its part.
    pub share: Share,
    /// Number of tensors created so far; seeds the values of random tensors.
    pub(super) count: Cell<u64>,
}

impl<'a> Loader<'a> {
    /// A loader of a model's tensors.
    pub fn new(kernels: &'a Kernels, source: WeightSource<'a>, share: Share) -> Self {
        Self { kernels, source, share, count: Cell::new(0) }
    }

    /// The same for tensors that every rank holds whole.
    pub fn whole(&self) -> Self {
        Self { share: Share::WHOLE, count: self.count.clone(), ..*self }
    }

    /// Loads a tensor.
    pub fn tensor(&self, tensor: &TensorSpec) -> Result<Buffer, EngineError> {
        self.concatenated(&[tensor])
    }

    /// Loads a tensor that may be absent.
    pub fn optional(&self, tensor: Option<&TensorSpec>) -> Result<Option<Buffer>, EngineError> {
        tensor.map(|tensor| self.tensor(tensor)).transpose()
    }

    /// The scales of a layer's cache in FP8.
    pub fn cache_scales(&self, names: &CacheScaleNames) -> Result<CacheScales, EngineError> {
        match self.source {
            WeightSource::Checkpoint(weights) => Tensors::new(weights).cache_scales(names),
            WeightSource::Random => Ok(CacheScales::ONE),
        }
    }

    /// Tensors that differ only in their first dimension, concatenated along it.
    pub fn concatenated(&self, tensors: &[&TensorSpec]) -> Result<Buffer, EngineError> {
        let element = self.kernels.element();
        let bytes = |tensor: &TensorSpec| tensor.bytes(element.bytes()) as usize;
        let buffer = self.kernels.device().allocate(tensors.iter().map(|tensor| bytes(tensor)).sum())?;
        let mut start = 0;
        for tensor in tensors {
            let end = start + bytes(tensor);
            self.fill(buffer.range(start..end), tensor)?;
            start = end;
        }
        Ok(buffer)
    }

    /// Linear layers with the same inputs as one layer, with concatenated outputs.
    pub fn projection(&self, layers: &[&LinearTensors]) -> Result<Projection, EngineError> {
        let weights: Vec<&TensorSpec> = layers.iter().map(|layer| &layer.weight).collect();
        let biases: Option<Vec<&TensorSpec>> = layers.iter().map(|layer| layer.bias.as_ref()).collect();
        let (weight, scales) = match layers.first().and_then(|layer| layer.weight.format.fp8()) {
            None => (self.concatenated(&weights)?, None),
            Some(layout) => {
                let (weight, scales) = self.fp8(&weights, layout)?;
                (weight, Some(scales))
            }
        };
        let is_partial = self.share.is_part() && weights.iter().any(|weight| weight.split == TensorSplit::Columns);
        let bias = biases.map(|biases| self.concatenated(&biases)).transpose()?;
        if let Some(bias) = bias.as_ref().filter(|_| is_partial && self.share.rank > 0) {
            // Outputs are summed over ranks, so only rank 0 adds the bias.
            self.kernels.device().fill(bias.slice(), 0)?;
        }
        Ok(Projection {
            weight,
            quantiser: self.quantiser(&weights)?,
            scales,
            bias,
            is_partial,
            inputs: layers.first().map_or(0, |layer| layer.inputs()),
            outputs: layers.iter().map(|layer| layer.outputs()).sum(),
        })
    }

    /// How layers with these matrices quantise the rows that they all read.
    pub(super) fn quantiser(&self, readers: &[&TensorSpec]) -> Result<Option<RowQuantiser>, EngineError> {
        let scales = match self.source {
            WeightSource::Checkpoint(weights) => Tensors::new(weights).input_scales(readers.iter().copied())?,
            // Random weights have no static scales.
            WeightSource::Random => {
                readers.iter().find_map(|matrix| Some(InputScales { layout: matrix.rows?, fixed: 1.0 }))
            }
        };
        let Some(InputScales { layout, fixed }) = scales else { return Ok(None) };
        let fixed = (layout == Fp8Rows::Tensor).then(|| self.kernels.device().upload(&[fixed])).transpose()?;
        Ok(Some(RowQuantiser { layout, fixed }))
    }

    /// Linear layers in the type of activations with the same inputs as one layer, whose outputs
    /// are followed by zeros up to a multiple of `unit`.
    pub fn padded_projection(&self, layers: &[&LinearTensors], unit: usize) -> Result<Projection, EngineError> {
        let element = self.kernels.element().bytes();
        let outputs: usize = layers.iter().map(|layer| layer.outputs()).sum();
        let (inputs, padded) = (layers.first().map_or(0, |layer| layer.inputs()), outputs.next_multiple_of(unit));
        let weight = self.kernels.device().zeros(padded * inputs * element)?;
        let mut start = 0;
        for layer in layers {
            let end = start + layer.weight.bytes(element) as usize;
            self.fill(weight.range(start..end), &layer.weight)?;
            start = end;
        }
        Ok(Projection { weight, scales: None, quantiser: None, bias: None, is_partial: false, inputs, outputs: padded })
    }

    /// A linear layer for an input whose two halves are swapped.
    pub fn with_halves_swapped(&self, layer: &LinearTensors) -> Result<Projection, EngineError> {
        let element = self.kernels.element();
        let projection = self.projection(&[layer])?;
        let mut values = vec![0_u8; layer.weight.bytes(element.bytes()) as usize];
        let device = self.kernels.device();
        device.read(projection.weight.slice(), &mut values)?;
        let row = layer.inputs() * element.bytes();
        for row in values.chunks_exact_mut(row) {
            let (left, right) = row.split_at_mut(row.len() / 2);
            left.swap_with_slice(right);
        }
        device.write(projection.weight.slice(), &values)?;
        Ok(projection)
    }

    /// Whether values are random.
    pub fn is_random(&self) -> bool {
        matches!(self.source, WeightSource::Random)
    }

    /// The values of a vector as float32; zeros for random weights.
    pub fn float_values(&self, tensor: &TensorSpec) -> Result<Vec<f32>, EngineError> {
        match &self.source {
            WeightSource::Checkpoint(weights) => {
                let whole = self.whole_of(weights, tensor);
                let values = Tensors::new(weights).vector(&whole)?;
                Ok(match self.ranges(&whole, tensor) {
                    None => values,
                    Some((_, ranges)) => ranges.into_iter().flat_map(|range| &values[range]).copied().collect(),
                })
            }
            WeightSource::Random => Ok(vec![0.0; tensor.values() as usize]),
        }
    }

    /// Fills device memory with a tensor.
    pub fn fill(&self, to: Slice<'_>, tensor: &TensorSpec) -> Result<(), EngineError> {
        let (device, element) = (self.kernels.device(), self.kernels.element());
        match (&self.source, &tensor.shape[..]) {
            (WeightSource::Checkpoint(weights), _) if tensor.role == Role::NormLessOne => {
                // The one is added before the values are rounded.
                Ok(device.write(to, &element.encode(&Tensors::new(weights).vector(tensor)?))?)
            }
            (WeightSource::Checkpoint(weights), _) => {
                let whole = self.whole_of(weights, tensor);
                let (bytes, stored) = Tensors::new(weights).bytes(&whole)?;
                let part = self.part((&bytes, stored), &whole, tensor)?;
                write(device, to, element, (&part, stored))
            }
            // Norm weights, sinks, and biases. Biases of one would shift all rows alike, and a
            // router would then send them to the same experts.
            (WeightSource::Random, [count]) => {
                let value = if tensor.name.ends_with(".bias") { 0.0 } else { 1.0 };
                Ok(device.write(to, &element.encode(&vec![value; *count]))?)
            }
            (WeightSource::Random, shape) => {
                self.count.set(self.count.get() + 1);
                // The spread of an initialised layer, so that activations neither vanish nor
                // overflow.
                let inputs = shape.last().copied().unwrap_or(1);
                let bound = (3.0 / inputs as f32).sqrt();
                Ok(self.kernels.fill_random(to, bound, self.count.get())?)
            }
        }
    }
}

impl Loader<'_> {
    /// A rank's part of a tensor's bytes.
    fn part<'b>(
        &self,
        (bytes, stored): (&'b [u8], Element),
        whole: &TensorSpec,
        part: &TensorSpec,
    ) -> Result<Cow<'b, [u8]>, EngineError> {
        let Some((axis, ranges)) = self.ranges(whole, part) else { return Ok(Cow::Borrowed(bytes)) };
        let inner: usize = whole.shape[axis + 1..].iter().product::<usize>() * stored.bytes();
        if let ([range], 0) = (&ranges[..], axis) {
            return Ok(Cow::Borrowed(&bytes[range.start * inner..range.end * inner]));
        }
        let rows = bytes.chunks_exact(whole.shape[axis] * inner);
        let own = rows.flat_map(|row| ranges.iter().flat_map(|range| &row[range.start * inner..range.end * inner]));
        Ok(Cow::Owned(own.copied().collect()))
    }

    /// A tensor as all ranks together have it. The shape of the whole has been checked.
    pub(super) fn whole_of(&self, weights: &Weights, tensor: &TensorSpec) -> TensorSpec {
        let stored = Tensors::new(weights).shape(&tensor.name).filter(|_| self.share.is_part());
        TensorSpec { shape: stored.unwrap_or(&tensor.shape).to_vec(), ..tensor.clone() }
    }

    /// The dimension that ranks split, and this rank's part of it; `None` if all have all of it.
    fn ranges(&self, whole: &TensorSpec, part: &TensorSpec) -> Option<(usize, Vec<Range<usize>>)> {
        let axis = (0..part.shape.len()).find(|axis| whole.shape.get(*axis) != Some(&part.shape[*axis]))?;
        let (all, own) = (whole.shape[axis], part.shape[axis]);
        let ranges = match (part.role, part.split) {
            (Role::VocabularyHead, _) => vec![self.share.head_range(all, own)],
            (_, TensorSplit::Sections(parts)) => self.share.sections(parts).to_vec(),
            _ => vec![self.share.range(all, own)],
        };
        Some((axis, ranges))
    }
}

/// Copies a tensor to the device, converting it if its type differs.
fn write(
    device: &Device,
    to: Slice<'_>,
    element: Element,
    (bytes, stored): (&[u8], Element),
) -> Result<(), EngineError> {
    if element == stored {
        return Ok(device.write(to, bytes)?);
    }
    // Converts piece by piece, which avoids a full converted copy of a large tensor.
    const PIECE: usize = 1 << 22;
    let mut start = 0;
    for piece in bytes.chunks(PIECE * stored.bytes()) {
        let encoded = element.encode(&stored.decode(piece));
        device.write(to.range(start..start + encoded.len()), &encoded)?;
        start += encoded.len();
    }
    Ok(())
}

//! Weights of gated delta nets.

use kernels::{device::Buffer, launch::DeltaWeights as DeltaOperands, reference::DeltaSizes};

use super::{Loader, Projection};
use crate::{
    error::EngineError,
    spec::{AttentionTensors, DeltaNet, DeltaTensors, LayerFormats, TargetSpec, TargetTensors},
};

/// Outputs of projections are padded to a multiple of this.
const UNIT: usize = 16;

/// Weights of a gated delta net.
#[derive(Debug)]
pub struct DeltaWeights {
    pub spec: DeltaNet,
    /// Its index among the layers with a state.
    pub index: usize,
    /// Projects to queries, keys and values before the convolution, and to the gates of outputs;
    /// then to β and decays, unless these have a projection of their own.
    pub entry: Projection,
    /// Projects to β and decays, if the other matrices are in FP8.
    pub rates: Option<Projection>,
    /// Norm of output heads.
    pub norm: Buffer,
    pub output: Projection,
}

/// The weights that all layers with a state need when a path is committed in all of them at once,
/// layer by layer. Their sizes are equal.
#[derive(Debug)]
pub struct DeltaTables {
    pub sizes: DeltaSizes,
    /// `[layers, channels, taps]`.
    convolution: Buffer,
    /// Float `[layers, value heads]`.
    rates: Buffer,
    /// Float `[layers, value heads]`.
    offsets: Buffer,
}

/// Outputs of the projections of a delta net: of the first, and of that to β and decays, if it is
/// another.
pub fn delta_outputs(spec: &DeltaNet, formats: LayerFormats) -> (usize, usize) {
    let DeltaSizes { value_heads, .. } = spec.sizes;
    let whole = spec.sizes.channels() + spec.sizes.value_width();
    match formats.attention.fp8() {
        None => ((whole + 2 * value_heads).next_multiple_of(UNIT), 0),
        Some(_) => (whole, (2 * value_heads).next_multiple_of(UNIT)),
    }
}

impl DeltaWeights {
    pub(super) fn load(loader: &Loader<'_>, spec: &DeltaNet, tensors: &DeltaTensors) -> Result<Self, EngineError> {
        let DeltaTensors { mixed, gate, beta, decay, norm, output, .. } = tensors;
        let (entry, rates) = match mixed.weight.format.fp8() {
            None => (loader.padded_projection(&[mixed, gate, beta, decay], UNIT)?, None),
            // β and decays stay plain, and a projection has one format.
            Some(_) => (loader.projection(&[mixed, gate])?, Some(loader.padded_projection(&[beta, decay], UNIT)?)),
        };
        Ok(Self {
            spec: *spec,
            index: 0,
            entry,
            rates,
            norm: loader.tensor(norm)?,
            output: loader.projection(&[output])?,
        })
    }

    pub(super) fn buffers(&self) -> Vec<&Buffer> {
        let projections = [Some(&self.entry), self.rates.as_ref(), Some(&self.output)].into_iter().flatten();
        projections.flat_map(Projection::buffers).chain([&self.norm]).collect()
    }
}

impl DeltaTables {
    /// Loads the tables of a target; `None` if no layer has a state.
    pub fn load(loader: &Loader<'_>, spec: &TargetSpec, tensors: &TargetTensors) -> Result<Option<Self>, EngineError> {
        let Some(DeltaNet { sizes, .. }) = spec.delta_nets().next().copied() else { return Ok(None) };
        let of_layers: Vec<&DeltaTensors> = tensors
            .layers
            .iter()
            .filter_map(|layer| match &layer.attention {
                AttentionTensors::Delta(tensors) => Some(tensors.as_ref()),
                AttentionTensors::Grouped(_) | AttentionTensors::Latent(_) => None,
            })
            .collect();
        let convolution: Vec<_> = of_layers.iter().map(|tensors| &tensors.convolution).collect();
        let (mut rates, mut offsets) = (Vec::new(), Vec::new());
        for tensors in of_layers {
            rates.extend(loader.float_values(&tensors.decay_rate)?);
            offsets.extend(loader.float_values(&tensors.decay_offset)?);
        }
        let device = loader.kernels.device();
        Ok(Some(Self {
            sizes,
            convolution: loader.concatenated(&convolution)?,
            rates: device.upload(&rates)?,
            offsets: device.upload(&offsets)?,
        }))
    }

    pub(super) fn buffers(&self) -> Vec<&Buffer> {
        vec![&self.convolution, &self.rates, &self.offsets]
    }

    /// Operands of the kernels.
    pub fn operands(&self) -> DeltaOperands<'_> {
        DeltaOperands {
            convolution: self.convolution.slice(),
            rates: self.rates.slice(),
            offsets: self.offsets.slice(),
        }
    }
}

//! Weights of latent attention in absorbed form: the projection from latent vectors to keys and
//! values is split into a factor for queries and one for weighted means of latent vectors.

use kernels::{device::Buffer, launch::LatentDims};

use super::{Loader, Projection};
use crate::{
    error::EngineError,
    spec::{LatentTensors, MultiHeadLatent, Pairing},
};

/// Weights of latent attention.
#[derive(Debug)]
pub struct LatentWeights {
    pub spec: MultiHeadLatent,
    /// Projects to the compressed query (or the queries, if they are not compressed), the latent
    /// vector, and the key that all heads share.
    pub entry: Projection,
    /// The norm of the compressed query and the projection from it, if queries are compressed.
    pub query: Option<(Buffer, Projection)>,
    /// Norm of the latent vector.
    pub norm: Buffer,
    /// Factor for queries, `[heads, rank, nope]`.
    pub absorb: Buffer,
    /// Factor for means of latent vectors, `[heads, value, rank]`.
    pub expand: Buffer,
    pub output: Projection,
}

/// The sizes in the kernels' terms.
pub fn latent_dims(spec: &MultiHeadLatent) -> LatentDims {
    LatentDims {
        heads: spec.heads,
        nope: spec.nope_dim,
        rotated: spec.rope.dims,
        rank: spec.latent_rank,
        value: spec.value_dim,
        interleaved: spec.rope.pairing == Pairing::Interleaved,
    }
}

impl LatentWeights {
    /// Loads the layer's latent attention.
    pub fn load(loader: &Loader<'_>, spec: &MultiHeadLatent, tensors: &LatentTensors) -> Result<Self, EngineError> {
        let (first, query) = match &tensors.compress_query {
            None => (&tensors.query, None),
            Some((down, norm)) => (down, Some((loader.tensor(norm)?, loader.projection(&[&tensors.query])?))),
        };
        let (absorb, expand) = loader.absorbed(spec, tensors)?;
        Ok(Self {
            spec: *spec,
            entry: loader.projection(&[first, &tensors.compress])?,
            query,
            norm: loader.tensor(&tensors.norm)?,
            absorb,
            expand,
            output: loader.projection(&[&tensors.output])?,
        })
    }
}

impl Loader<'_> {
    /// The factors for queries and for means of latent vectors, head by head.
    fn absorbed(&self, spec: &MultiHeadLatent, tensors: &LatentTensors) -> Result<(Buffer, Buffer), EngineError> {
        let (device, element) = (self.kernels.device(), self.kernels.element().bytes());
        let tensor = &tensors.expand.weight;
        if self.is_random() {
            let random = |values: usize| {
                let buffer = device.allocate(values * element)?;
                self.fill(buffer.slice(), tensor).map(|()| buffer)
            };
            let a_head = spec.latent_rank * spec.heads;
            return Ok((random(a_head * spec.nope_dim)?, random(a_head * spec.value_dim)?));
        }
        let bytes: Vec<u8> = device.download(self.tensor(tensor)?.slice())?;
        let upload = |(absorb, expand): (&[u8], &[u8])| Ok((device.upload(absorb)?, device.upload(expand)?));
        // Elements are moved and not read, so only their width matters.
        if element == 2 {
            let (absorb, expand) = spec.absorbed(bytes.as_chunks::<2>().0);
            upload((absorb.as_flattened(), expand.as_flattened()))
        } else {
            let (absorb, expand) = spec.absorbed(bytes.as_chunks::<4>().0);
            upload((absorb.as_flattened(), expand.as_flattened()))
        }
    }
}

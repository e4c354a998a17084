//! Latent attention, absorbed in every pass: see [`kernels::reference::latent_attention`].

use kernels::reference::{Latents, Matrix, Rope, latent_attention, per_head, rms_norm};

use super::{super::linear::CpuLinear, RowPlacement};
use crate::{
    checkpoint::Tensors,
    error::EngineError,
    spec::{LatentTensors, MultiHeadLatent},
};

/// Latent attention with its projections.
#[derive(Debug)]
pub struct Latent {
    shape: MultiHeadLatent,
    /// Projects to the compressed query; with the norm that follows.
    compress_query: Option<(CpuLinear, Vec<f32>)>,
    query: CpuLinear,
    /// Projects to the latent vector and the key that all heads share.
    compress: CpuLinear,
    /// Norm of the latent vector.
    norm: Vec<f32>,
    /// Per head, `[rank, nope]`: maps the part of a query that is not rotated to the vector that
    /// scores latent vectors.
    absorb: Vec<Matrix>,
    /// Per head, `[value, rank]`: maps a weighted mean of latent vectors to the head's output.
    expand: Vec<Matrix>,
    output: CpuLinear,
    epsilon: f32,
    rotation: Rope,
}

impl Latent {
    /// Loads the attention of a layer.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(
        from: Tensors<'_>,
        tensors: &LatentTensors,
        shape: MultiHeadLatent,
        epsilon: f32,
    ) -> Result<Self, EngineError> {
        let (compress_query, query, compress) = match &tensors.compress_query {
            None => {
                let [query, compress] = CpuLinear::load_readers(from, [&tensors.query, &tensors.compress])?;
                (None, query, compress)
            }
            Some((down, norm)) => {
                let [down, compress] = CpuLinear::load_readers(from, [down, &tensors.compress])?;
                (Some((down, from.vector(norm)?)), CpuLinear::load(from, &tensors.query)?, compress)
            }
        };
        let (absorb, expand) = shape.absorbed(from.matrix(&tensors.expand.weight)?.data());
        let heads = |data: &[f32], outputs: usize, inputs: usize| -> Vec<Matrix> {
            data.chunks_exact(outputs * inputs).map(|head| Matrix::new(outputs, inputs, head.to_vec())).collect()
        };
        Ok(Self {
            compress_query,
            query,
            compress,
            norm: from.vector(&tensors.norm)?,
            absorb: heads(&absorb, shape.latent_rank, shape.nope_dim),
            expand: heads(&expand, shape.value_dim, shape.latent_rank),
            output: CpuLinear::load(from, &tensors.output)?,
            epsilon,
            rotation: shape.rope.rotation(shape.rope.dims),
            shape,
        })
    }

    /// An empty cache of this layer's shape.
    pub fn cache(&self, rows: usize) -> Latents {
        Latents::new(rows, self.shape.latent_rank, self.shape.rope.dims)
    }

    /// Writes latent vectors and keys of the rows to the cache, then attends. `x` is
    /// `[rows, input]`, the result is `[rows, output]`.
    pub fn forward(&self, x: &[f32], rows: RowPlacement<'_>, cache: &mut Latents) -> Vec<f32> {
        let MultiHeadLatent { heads, latent_rank, nope_dim, rope, score_scale, .. } = self.shape;
        let (latents, mut keys) = apart(&self.compress.forward(x), latent_rank, rope.dims);
        self.rotation.apply(&mut keys, rows.positions);
        cache.write(rows.write, &rms_norm(&latents, &self.norm, self.epsilon), &keys);

        let queries = match &self.compress_query {
            None => self.query.forward(x),
            Some((down, norm)) => self.query.forward(&rms_norm(&down.forward(x), norm, self.epsilon)),
        };
        let (plain, mut rotated) = apart(&queries, nope_dim, rope.dims);
        self.rotation.apply(&mut rotated, rows.positions);
        let absorbed = per_head(&plain, &self.absorb);
        let parts = absorbed.chunks_exact(latent_rank).zip(rotated.chunks_exact(rope.dims));
        let queries: Vec<f32> = parts.flat_map(|(absorbed, rotated)| absorbed.iter().chain(rotated)).copied().collect();
        let means = latent_attention(&queries, heads, rows.visible, cache, score_scale);
        self.output.forward(&per_head(&means, &self.expand))
    }
}

/// Splits each piece of `first + last` values; returns the first values of all pieces, and the last
/// ones.
fn apart(values: &[f32], first: usize, last: usize) -> (Vec<f32>, Vec<f32>) {
    let pieces = || values.chunks_exact(first + last);
    (
        pieces().flat_map(|piece| &piece[..first]).copied().collect(),
        pieces().flat_map(|piece| &piece[first..]).copied().collect(),
    )
}

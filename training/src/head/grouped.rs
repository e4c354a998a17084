//! Grouped-query attention without its pattern: projections, norms of heads and their rotation.

use candle_core::{D, DType, Device, Result, Tensor};
use engine::spec::{GroupedQuery, GroupedTensors, Pairing};

use super::parts::{Builder, HeadLinear, Norm};
use crate::{error::TrainingError, math};

/// The projections of grouped-query attention.
pub struct GroupedHeads {
    query: HeadLinear,
    key: HeadLinear,
    value: HeadLinear,
    output: HeadLinear,
    head_norms: Option<(Norm, Norm)>,
    spec: GroupedQuery,
    dtype: DType,
    device: Device,
}

/// Cosine and sine of every rotated pair of rows, which broadcast over
/// `[texts, heads, rows, pairs]`.
#[derive(Clone)]
pub struct Turns {
    cosine: Tensor,
    sine: Tensor,
}

impl GroupedHeads {
    /// Builds them from their tensors.
    pub fn new(
        builder: &mut Builder<'_>,
        tensors: &GroupedTensors,
        spec: GroupedQuery,
        epsilon: f32,
    ) -> std::result::Result<Self, TrainingError> {
        let norms = tensors.head_norms.as_ref();
        let norms = norms
            .map(|(query, key)| Ok::<_, TrainingError>((builder.norm(query, epsilon)?, builder.norm(key, epsilon)?)));
        Ok(Self {
            head_norms: norms.transpose()?,
            query: builder.linear(&tensors.query)?,
            key: builder.linear(&tensors.key)?,
            value: builder.linear(&tensors.value)?,
            output: builder.linear(&tensors.output)?,
            spec,
            dtype: builder.dtype,
            device: builder.device.clone(),
        })
    }

    /// Rotated and scaled queries of rows `[texts · rows, input]`:
    /// `[texts, heads, rows, head_dim]`.
    pub fn queries(&self, x: &Tensor, texts: usize, turns: &Turns) -> Result<Tensor> {
        let mut query = self.split(self.query.forward(x)?, texts, self.spec.heads)?;
        if let Some((norm, _)) = &self.head_norms {
            query = norm.forward(&query)?;
        }
        // Queries are scaled in place of the scores, of which there are many more.
        self.rotate(&query, turns)? * (self.spec.head_dim as f64).powf(-0.5)
    }

    /// Rotated keys, and values, of rows `[texts · rows, input]`, repeated for all query heads of
    /// their groups: `[texts, heads, rows, head_dim]` each.
    pub fn keys_and_values(&self, x: &Tensor, texts: usize, turns: &Turns) -> Result<(Tensor, Tensor)> {
        let mut key = self.split(self.key.forward(x)?, texts, self.spec.key_value_heads)?;
        let value = self.split(self.value.forward(x)?, texts, self.spec.key_value_heads)?;
        if let Some((_, norm)) = &self.head_norms {
            key = norm.forward(&key)?;
        }
        Ok((self.for_all_heads(&self.rotate(&key, turns)?)?, self.for_all_heads(&value)?))
    }

    /// Projects what heads have attended to, `[texts, heads, rows, head_dim]`, to
    /// `[texts · rows, output]`.
    pub fn output(&self, attended: &Tensor) -> Result<Tensor> {
        let (texts, heads, rows, head_dim) = attended.dims4()?;
        self.output.forward(&attended.transpose(1, 2)?.reshape((texts * rows, heads * head_dim))?)
    }

    /// The rotation of rows at `rows` positions from `first` on, which is that of all texts.
    pub fn turns(&self, first: usize, rows: usize) -> Result<Turns> {
        let (cosine, sine) = self.table(first + rows)?;
        Ok(Turns { cosine: cosine.narrow(0, first, rows)?, sine: sine.narrow(0, first, rows)? })
    }

    /// The rotation of rows at these positions, `[texts, rows]`, which are less than `bound`.
    pub fn turns_at(&self, positions: &Tensor, bound: usize) -> Result<Turns> {
        let (texts, rows) = positions.dims2()?;
        let positions = positions.flatten_all()?;
        let (cosine, sine) = self.table(bound)?;
        let of_rows = |table: Tensor| {
            let pairs = table.dim(1)?;
            table.index_select(&positions, 0)?.reshape((texts, 1, rows, pairs))
        };
        Ok(Turns { cosine: of_rows(cosine)?, sine: of_rows(sine)? })
    }

    /// Cosine and sine of every pair at the first positions, `[positions, pairs]` each.
    fn table(&self, positions: usize) -> Result<(Tensor, Tensor)> {
        let rotation = self.spec.rope.rotation(self.spec.head_dim);
        let pairs = rotation.dims() / 2;
        let table = Tensor::from_vec(rotation.table(positions), (positions, pairs, 2), &self.device)?;
        let table = table.to_dtype(self.dtype)?;
        let part = |at: usize| table.narrow(2, at, 1)?.squeeze(2)?.contiguous();
        Ok((part(0)?, part(1)?))
    }

    fn split(&self, x: Tensor, texts: usize, heads: usize) -> Result<Tensor> {
        let rows = x.dim(0)? / texts.max(1);
        x.reshape((texts, rows, heads, self.spec.head_dim))?.transpose(1, 2)?.contiguous()
    }

    /// Rotates the heads of rows, `[texts, heads, rows, head_dim]`. Its gradient is the inverse
    /// rotation.
    fn rotate(&self, x: &Tensor, turns: &Turns) -> Result<Tensor> {
        let (rope, head_dim) = (self.spec.rope, self.spec.head_dim);
        if rope.dims == 0 {
            return Ok(x.clone());
        }
        // Outside of the graph, since the gradient is given below.
        let value = turn(&x.detach(), turns, (rope.dims, head_dim, rope.pairing))?;
        let back = Turns { cosine: turns.cosine.clone(), sine: turns.sine.neg()? };
        math::with_gradient(x, value, move |_, _, gradient| turn(gradient, &back, (rope.dims, head_dim, rope.pairing)))
    }

    /// Key or value heads, repeated for all query heads of their groups.
    fn for_all_heads(&self, x: &Tensor) -> Result<Tensor> {
        let (texts, heads, rows, dims) = x.dims4()?;
        match self.spec.heads / heads {
            1 => Ok(x.clone()),
            group => x.unsqueeze(2)?.broadcast_as((texts, heads, group, rows, dims))?.reshape((
                texts,
                heads * group,
                rows,
                dims,
            )),
        }
    }
}

/// Rotates the first `dims` values of heads, pair by pair.
fn turn(x: &Tensor, turns: &Turns, (dims, head_dim, pairing): (usize, usize, Pairing)) -> Result<Tensor> {
    let (texts, heads, rows, _) = x.dims4()?;
    let Turns { cosine, sine } = turns;
    let turning = x.narrow(D::Minus1, 0, dims)?;
    let (low, high) = match pairing {
        Pairing::Halves => (turning.narrow(D::Minus1, 0, dims / 2)?, turning.narrow(D::Minus1, dims / 2, dims / 2)?),
        Pairing::Interleaved => {
            let pairs = turning.contiguous()?.reshape((texts, heads, rows, dims / 2, 2))?;
            (pairs.narrow(4, 0, 1)?.squeeze(4)?, pairs.narrow(4, 1, 1)?.squeeze(4)?)
        }
    };
    let (new_low, new_high) = (
        (low.broadcast_mul(cosine)? - high.broadcast_mul(sine)?)?,
        (high.broadcast_mul(cosine)? + low.broadcast_mul(sine)?)?,
    );
    let turned = match pairing {
        Pairing::Halves => Tensor::cat(&[new_low, new_high], 3)?,
        Pairing::Interleaved => Tensor::stack(&[new_low, new_high], 4)?.reshape((texts, heads, rows, dims))?,
    };
    match head_dim - dims {
        0 => Ok(turned),
        rest => Tensor::cat(&[turned, x.narrow(3, dims, rest)?], 3),
    }
}

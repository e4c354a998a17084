//! Attention of an unrolled draft.
//!
//! Step 0 runs over all rows of a text with a causal mask. Step k runs the same rows k tokens
//! further: row i is then the k-th draft after position i. It attends to the keys of step 0 up to
//! its own row, and in each later step only to its own row, that is, to the tokens drafted before
//! it.

use candle_core::{D, DType, Device, Result, Tensor};
use engine::spec::{GroupedQuery, GroupedTensors, Pairing};

use super::{
    HeadRows,
    parts::{Builder, HeadLinear, Norm},
};
use crate::{error::TrainingError, math};

/// Grouped-query attention.
pub struct HeadAttention {
    query: HeadLinear,
    key: HeadLinear,
    value: HeadLinear,
    output: HeadLinear,
    head_norms: Option<(Norm, Norm)>,
    spec: GroupedQuery,
    dtype: DType,
    device: Device,
}

/// Keys and values of the steps so far, `[batch, heads, rows, head_dim]` each.
#[derive(Default)]
pub struct History {
    steps: Vec<(Tensor, Tensor)>,
}

impl History {
    /// Number of steps so far.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }
}

impl HeadAttention {
    /// Builds attention from its tensors.
    pub fn new(
        builder: &mut Builder<'_>,
        tensors: &GroupedTensors,
        spec: GroupedQuery,
        epsilon: f32,
        (dtype, device): (DType, &Device),
    ) -> std::result::Result<Self, TrainingError> {
        let norms = tensors.head_norms.as_ref();
        let norms = norms.map(|(query, key)| {
            Ok::<_, TrainingError>((
                Norm::new(builder.trained(query)?, epsilon),
                Norm::new(builder.trained(key)?, epsilon),
            ))
        });
        Ok(Self {
            query: builder.linear(&tensors.query)?,
            key: builder.linear(&tensors.key)?,
            value: builder.linear(&tensors.value)?,
            output: builder.linear(&tensors.output)?,
            head_norms: norms.transpose()?,
            spec,
            dtype,
            device: device.clone(),
        })
    }

    /// Runs the next step over rows `[batch · rows, input]`, and appends their keys and values to
    /// `history`.
    pub fn forward(&self, x: &Tensor, rows: &HeadRows, history: &mut History) -> Result<Tensor> {
        let GroupedQuery { heads, key_value_heads, head_dim, .. } = self.spec;
        let (batch, rows) = (rows.batch(), rows.each);
        let step = history.steps();
        let split = |x: Tensor, heads: usize| x.reshape((batch, rows, heads, head_dim))?.transpose(1, 2)?.contiguous();
        let mut query = split(self.query.forward(x)?, heads)?;
        let mut key = split(self.key.forward(x)?, key_value_heads)?;
        let value = split(self.value.forward(x)?, key_value_heads)?;
        if let Some((of_queries, of_keys)) = &self.head_norms {
            (query, key) = (of_queries.forward(&query)?, of_keys.forward(&key)?);
        }
        let turns = self.turns(step, rows)?;
        let query = (self.rotate(&query, &turns)? * (head_dim as f64).powf(-0.5))?;
        history.steps.push((self.for_all_heads(&self.rotate(&key, &turns)?)?, self.for_all_heads(&value)?));
        let attended = attend(&query, &history.steps)?;
        self.output.forward(&attended.transpose(1, 2)?.reshape((batch * rows, heads * head_dim))?)
    }

    /// Cosine and sine of every pair, for rows from position `first` on, `[rows, pairs]` each.
    fn turns(&self, first: usize, rows: usize) -> Result<(Tensor, Tensor)> {
        let rotation = self.spec.rope.rotation(self.spec.head_dim);
        let pairs = rotation.dims() / 2;
        let table = Tensor::from_vec(rotation.table(first + rows), (first + rows, pairs, 2), &self.device)?;
        let table = table.narrow(0, first, rows)?.to_dtype(self.dtype)?;
        let part = |at: usize| table.narrow(2, at, 1)?.squeeze(2)?.contiguous();
        Ok((part(0)?, part(1)?))
    }

    /// Rotates the heads of rows, `[batch, heads, rows, head_dim]`. Its gradient is the inverse
    /// rotation.
    fn rotate(&self, x: &Tensor, (cosine, sine): &(Tensor, Tensor)) -> Result<Tensor> {
        let (rope, head_dim) = (self.spec.rope, self.spec.head_dim);
        if rope.dims == 0 {
            return Ok(x.clone());
        }
        let value = turn(&x.detach(), cosine, sine, (rope.dims, head_dim, rope.pairing))?;
        let (cosine, back) = (cosine.clone(), sine.neg()?);
        math::with_gradient(x, value, move |_, _, gradient| {
            turn(gradient, &cosine, &back, (rope.dims, head_dim, rope.pairing))
        })
    }

    /// Key or value heads, repeated for all query heads of their groups.
    fn for_all_heads(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, heads, rows, dims) = x.dims4()?;
        match self.spec.heads / heads {
            1 => Ok(x.clone()),
            group => x.unsqueeze(2)?.broadcast_as((batch, heads, group, rows, dims))?.reshape((
                batch,
                heads * group,
                rows,
                dims,
            )),
        }
    }
}

/// Rotates the first `dims` values of heads, pair by pair.
fn turn(
    x: &Tensor,
    cosine: &Tensor,
    sine: &Tensor,
    (dims, head_dim, pairing): (usize, usize, Pairing),
) -> Result<Tensor> {
    let (batch, heads, rows, _) = x.dims4()?;
    let turning = x.narrow(D::Minus1, 0, dims)?;
    let (low, high) = match pairing {
        Pairing::Halves => (turning.narrow(D::Minus1, 0, dims / 2)?, turning.narrow(D::Minus1, dims / 2, dims / 2)?),
        Pairing::Interleaved => {
            let pairs = turning.contiguous()?.reshape((batch, heads, rows, dims / 2, 2))?;
            (pairs.narrow(4, 0, 1)?.squeeze(4)?, pairs.narrow(4, 1, 1)?.squeeze(4)?)
        }
    };
    let (new_low, new_high) = (
        (low.broadcast_mul(cosine)? - high.broadcast_mul(sine)?)?,
        (high.broadcast_mul(cosine)? + low.broadcast_mul(sine)?)?,
    );
    let turned = match pairing {
        Pairing::Halves => Tensor::cat(&[new_low, new_high], 3)?,
        Pairing::Interleaved => Tensor::stack(&[new_low, new_high], 4)?.reshape((batch, heads, rows, dims))?,
    };
    match head_dim - dims {
        0 => Ok(turned),
        rest => Tensor::cat(&[turned, x.narrow(3, dims, rest)?], 3),
    }
}

/// Attention of scaled queries over the keys of all steps.
fn attend(query: &Tensor, steps: &[(Tensor, Tensor)]) -> Result<Tensor> {
    let Some(((first_keys, first_values), later)) = steps.split_first() else { return Ok(query.clone()) };
    let (rows, dtype) = (query.dim(2)?, query.dtype());
    let mut scores = vec![query.matmul(&first_keys.t()?)?];
    for (keys, _) in later {
        let products = (query * keys)?.to_dtype(math::wide(dtype))?;
        scores.push(products.sum_keepdim(D::Minus1)?.to_dtype(dtype)?);
    }
    let weights = math::causal_softmax(&Tensor::cat(&scores, 3)?)?;
    let mut attended = weights.narrow(3, 0, rows)?.contiguous()?.matmul(first_values)?;
    for (at, (_, values)) in later.iter().enumerate() {
        attended = (attended + weights.narrow(3, rows + at, 1)?.broadcast_mul(values)?)?;
    }
    Ok(attended)
}

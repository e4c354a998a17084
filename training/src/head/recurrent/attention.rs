//! Attention of an unrolled draft.
//!
//! Step 0 runs over all rows of a text with a causal mask. Step k runs the same rows k tokens
//! further: row i is then the k-th draft after position i. It attends to the keys of step 0 up to
//! its own row, and in each later step only to its own row, that is, to the tokens drafted before
//! it.

use candle_core::{D, Result, Tensor};

use crate::{
    head::{HeadRows, grouped::GroupedHeads},
    math,
};

/// Keys and values of the steps so far, `[texts, heads, rows, head_dim]` each.
#[derive(Default)]
pub struct History {
    steps: Vec<(Tensor, Tensor)>,
}

impl History {
    /// Number of steps so far.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Runs the next step of attention over rows `[texts · rows, input]`, and keeps their keys and
    /// values.
    pub fn attend(&mut self, heads: &GroupedHeads, x: &Tensor, rows: &HeadRows) -> Result<Tensor> {
        let texts = rows.texts();
        let turns = heads.turns(self.steps(), rows.each)?;
        let query = heads.queries(x, texts, &turns)?;
        self.steps.push(heads.keys_and_values(x, texts, &turns)?);
        heads.output(&attend(&query, &self.steps)?)
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

//! Operations with custom gradients. Candle's fused kernels have none, and a chain of its basic
//! operations keeps every intermediate tensor in memory. These keep only what their gradient needs,
//! and recompute the rest.
//!
//! 16-bit numbers are multiplied as they are and summed in 32 bits.

#[cfg(feature = "cuda")]
pub mod fused;
mod gradient;
mod product;

use candle_core::{D, DType, Result, Tensor};

pub use self::{gradient::with_gradient, product::product};

/// The score of masked keys; finite, so that no NaN occurs.
fn masked(dtype: DType) -> f64 {
    if dtype == DType::F16 { -6e4 } else { -1e30 }
}

/// The type in which numbers of this type are summed.
pub fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The values in the type for sums, without gradients.
fn widened(x: &Tensor) -> Result<Tensor> {
    x.detach().to_dtype(wide(x.dtype()))
}

/// `x / sqrt(mean(x²) + epsilon) · weight` over the last dimension, in the type of `x`.
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
    let (dims, dtype) = (x.dims().to_vec(), x.dtype());
    let rows = x.reshape(((), weight.dim(0)?))?;
    #[cfg(feature = "cuda")]
    if let Some(fused) = fused::Fused::from_tensor(&rows)? {
        return fused.rms_norm(&rows, weight, epsilon)?.reshape(dims);
    }
    let normed = normed_rows(&widened(&rows)?, epsilon)?.0.to_dtype(dtype)?;
    let value = normed.broadcast_mul(&weight.detach().to_dtype(dtype)?)?;
    gradient::for_both(&rows, weight, value, move |x, weight, gradient| {
        let (normed, scale) = normed_rows(&widened(x)?, epsilon)?;
        let gradient = widened(gradient)?;
        let of_weight = (&gradient * &normed)?.sum(0)?.to_dtype(weight.dtype())?;
        let gradient = gradient.broadcast_mul(&weight.detach().to_dtype(gradient.dtype())?)?;
        let along = (&gradient * &normed)?.mean_keepdim(D::Minus1)?;
        let of_x = (gradient - normed.broadcast_mul(&along)?)?.broadcast_div(&scale)?;
        Ok((of_x.to_dtype(x.dtype())?, of_weight))
    })?
    .reshape(dims)
}

/// Rows divided by their root mean square, and that root mean square.
fn normed_rows(x: &Tensor, epsilon: f64) -> Result<(Tensor, Tensor)> {
    let scale = (x.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?.sqrt()?;
    Ok((x.broadcast_div(&scale)?, scale))
}

/// Softmax over the last dimension of scores `[.., rows, keys]`. Row i attends to keys 0 to i, and
/// to all keys from index `rows` on.
pub fn causal_softmax(scores: &Tensor) -> Result<Tensor> {
    let (rows, keys) = (scores.dim(D::Minus2)?, scores.dim(D::Minus1)?);
    #[cfg(feature = "cuda")]
    if let Some(fused) = fused::Fused::from_tensor(scores)? {
        return fused.causal_softmax(&scores.reshape(((), rows, keys))?)?.reshape(scores.dims());
    }
    let places = |count: usize| Tensor::arange(0, count as u32, scores.device());
    let (row, key) = (places(rows)?.unsqueeze(1)?, places(keys)?.unsqueeze(0)?);
    let later = key.broadcast_gt(&row)?.broadcast_mul(&key.lt(rows as u32)?)?;
    masked_softmax(scores, &mask(&later, scores.dtype())?)
}

/// What is added to scores of this type: 0 where `hidden` is 0, and a score without weight where it
/// is 1.
pub fn mask(hidden: &Tensor, dtype: DType) -> Result<Tensor> {
    (hidden.to_dtype(wide(dtype))? * masked(dtype))?.to_dtype(dtype)
}

/// Softmax over the last dimension of scores `[.., rows, keys]` to which a mask is added, which
/// broadcasts to them.
pub fn masked_softmax(scores: &Tensor, mask: &Tensor) -> Result<Tensor> {
    let (dims, dtype, keys) = (scores.dims().to_vec(), scores.dtype(), scores.dim(D::Minus1)?);
    let masked = scores.detach().broadcast_add(mask)?;
    let value = softmax(&widened(&masked)?.reshape(((), keys))?)?.reshape(dims)?.to_dtype(dtype)?;
    with_gradient(scores, value, |scores, weights, gradient| {
        let keys = scores.dim(D::Minus1)?;
        let (weights, gradient) = (widened(weights)?.reshape(((), keys))?, widened(gradient)?.reshape(((), keys))?);
        let weighted = (weights.clone() * gradient)?;
        let sum = sum_of_rows(&weighted)?;
        let gradient = (weighted - weights.broadcast_mul(&sum)?)?;
        gradient.reshape(scores.dims())?.to_dtype(scores.dtype())
    })
}

/// The index of the largest value of each row of `[rows, columns]`.
pub fn largest(x: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Some(fused) = fused::Fused::from_tensor(x)? {
        return fused.largest(x);
    }
    x.argmax(D::Minus1)
}

/// Softmax of logits `[rows, columns]` in the type for sums, and `Σ p · log p` of each row,
/// `[rows, 1]`; without gradients.
pub fn distribution(logits: &Tensor) -> Result<(Tensor, Tensor)> {
    /// Lower bound for logarithms of probabilities; finite, so that 0 · log 0 is 0.
    const LEAST: f64 = -1e4;
    #[cfg(feature = "cuda")]
    if let Some(fused) = fused::Fused::from_tensor(logits)? {
        return fused.softmax(logits);
    }
    let logits = widened(logits)?;
    let log_p = logits.broadcast_sub(&log_sum_exp(&logits)?)?;
    let p = log_p.exp()?;
    let negative_entropy = (&p * log_p.clamp(LEAST, 0.0)?)?.sum_keepdim(D::Minus1)?;
    Ok((p, negative_entropy))
}

/// Softmax over the last dimension.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    let weights = shifted(x)?.exp()?;
    weights.broadcast_div(&sum_of_rows(&weights)?)
}

/// Logarithm of the softmax over the last dimension.
pub fn log_softmax(x: &Tensor) -> Result<Tensor> {
    let x = shifted(x)?;
    x.broadcast_sub(&x.exp()?.sum_keepdim(D::Minus1)?.log()?)
}

/// The logarithm of the sum of exponentials over the last dimension, which is kept with size 1.
pub fn log_sum_exp(x: &Tensor) -> Result<Tensor> {
    let largest = x.max_keepdim(D::Minus1)?;
    sum_of_rows(&x.broadcast_sub(&largest)?.exp()?)?.log()? + largest
}

/// Sums over the last dimension, which is kept with size 1. On a GPU this is a product with ones:
/// cuBLAS reads memory at full speed, which candle's sums do not.
fn sum_of_rows(x: &Tensor) -> Result<Tensor> {
    if !x.device().is_cuda() {
        return x.sum_keepdim(D::Minus1);
    }
    let (mut dims, columns) = (x.dims().to_vec(), x.dim(D::Minus1)?);
    let sums = x.reshape(((), columns))?.matmul(&Tensor::ones((columns, 1), x.dtype(), x.device())?)?;
    if let Some(last) = dims.last_mut() {
        *last = 1;
    }
    sums.reshape(dims)
}

/// Subtracts the row's maximum, which changes neither softmax nor its gradient.
fn shifted(x: &Tensor) -> Result<Tensor> {
    // The shift cancels in the result, so no gradient has to pass through the maximum.
    x.broadcast_sub(&x.max_keepdim(D::Minus1)?.detach())
}

/// `Σ p · (log p − log q)` of each row, where q is the softmax of its logits: `[rows]`.
/// `negative_entropy` is `Σ p · log p`, `[rows, 1]`.
pub fn divergence(logits: &Tensor, p: &Tensor, negative_entropy: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Some(fused) = fused::Fused::from_tensor(logits)? {
        return fused.divergence(logits, p, negative_entropy);
    }
    let (value, log_sum) = {
        let logits = widened(logits)?;
        let log_sum = log_sum_exp(&logits)?;
        let value = ((negative_entropy - sum_of_rows(&(p * logits)?)?)? + &log_sum)?;
        (value.squeeze(D::Minus1)?, log_sum)
    };
    let p = p.clone();
    with_gradient(logits, value, move |logits, _, gradient| {
        let q = widened(logits)?.broadcast_sub(&log_sum)?.exp()?;
        let gradient = widened(gradient)?.unsqueeze(D::Minus1)?;
        (q - &p)?.broadcast_mul(&gradient)?.to_dtype(logits.dtype())
    })
}

/// `−z · log s − (1 − z) · log (1 − s)` of each logit, where s is its sigmoid and z the expected
/// probability; in the type of these.
pub fn binary_cross_entropy(logits: &Tensor, expected: &Tensor) -> Result<Tensor> {
    let x = logits.to_dtype(expected.dtype())?;
    // log(1 + exp(x)) = max(x, 0) + log(1 + exp(−|x|))
    let log_sum = (x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?)?;
    log_sum - (x * expected)?
}

/// `0.5 d²` for |d| < 1, else `|d| − 0.5`, elementwise.
pub fn smooth_l1(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let distance = (a - b)?.abs()?;
    let near = distance.clamp(0.0, 1.0)?;
    // With m = min(d, 1), m · (d − m / 2) covers both branches.
    (&near * (&distance - (&near * 0.5)?)?)?.contiguous()
}

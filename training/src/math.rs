//! Operations that candle's gradients cover, built from its basic ones: its fused kernels have no gradient.

use candle_core::{D, Result, Tensor};

/// A score that no key survives; finite, so that no gradient becomes a NaN.
pub const MASKED: f64 = -1e30;

/// `x / sqrt(mean(x²) + epsilon) · weight` over the last dimension.
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
    let scale = (x.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?.sqrt()?;
    x.broadcast_div(&scale)?.broadcast_mul(weight)
}

/// Softmax over the last dimension.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    let weights = shifted(x)?.exp()?;
    weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)
}

/// Logarithm of the softmax over the last dimension.
pub fn log_softmax(x: &Tensor) -> Result<Tensor> {
    let x = shifted(x)?;
    x.broadcast_sub(&x.exp()?.sum_keepdim(D::Minus1)?.log()?)
}

/// Less the largest of the row, which changes neither softmax nor its gradient.
fn shifted(x: &Tensor) -> Result<Tensor> {
    x.broadcast_sub(&x.max_keepdim(D::Minus1)?.detach())
}

/// `0.5 d²` for |d| < 1, else `|d| − 0.5`, element by element.
pub fn smooth_l1(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let distance = (a - b)?.abs()?;
    let near = distance.clamp(0.0, 1.0)?;
    // With m = min(d, 1): m · (d − m / 2) is both branches.
    (&near * (&distance - (&near * 0.5)?)?)?.contiguous()
}

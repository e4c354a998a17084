//! RMSNorm.

use pulp::{Arch, Simd, WithSimd};

use super::dot::dot;

/// `x / sqrt(mean(x²) + epsilon) · weight` for each row of `x`, which is `[rows, weight.len()]`.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    assert_eq!(x.len() % weight.len(), 0, "rows of {} values", weight.len());
    let mut y = vec![0.0; x.len()];
    Arch::new().dispatch(RmsNormRows { x, weight, epsilon, y: &mut y });
    y
}

struct RmsNormRows<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    epsilon: f32,
    y: &'a mut [f32],
}

impl WithSimd for RmsNormRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.weight.len();
        for (x, y) in self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width)) {
            let scale = 1.0 / (dot(simd, x, x) / width as f32 + self.epsilon).sqrt();
            for ((y, x), weight) in y.iter_mut().zip(x).zip(self.weight) {
                *y = x * scale * weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gets_unit_mean_square_times_weight() {
        let y = rms_norm(&[3.0, -4.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0], &[1.0, 1.0, 1.0, 2.0], 0.0);
        assert_eq!(y[..2], [3.0 / 2.5, -4.0 / 2.5]);
        assert_eq!(y[4..], [1.0, 1.0, 1.0, 2.0]);
    }

    #[test]
    fn a_zero_row_stays_zero() {
        assert_eq!(rms_norm(&[0.0; 4], &[1.0; 4], 1e-5), [0.0; 4]);
    }
}

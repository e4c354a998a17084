//! RMSNorm.

use super::dot::dot;

/// `x / sqrt(mean(x²) + epsilon) · weight` for each row of `x`, which is `[rows, weight.len()]`.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    assert_eq!(x.len() % weight.len(), 0, "rows of {} values", weight.len());
    let mut y = Vec::with_capacity(x.len());
    for row in x.chunks_exact(weight.len()) {
        let scale = 1.0 / (dot(row, row) / weight.len() as f32 + epsilon).sqrt();
        y.extend(row.iter().zip(weight).map(|(x, weight)| x * scale * weight));
    }
    y
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

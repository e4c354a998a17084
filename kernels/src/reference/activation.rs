//! The gate of the feed-forward layer.

/// `silu(gate) · up`, element by element.
pub fn silu_gate(gate: &[f32], up: &[f32]) -> Vec<f32> {
    assert_eq!(gate.len(), up.len(), "gate and up have one shape");
    gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_silu_times_up_and_finite_at_the_ends() {
        let y = silu_gate(&[0.0, 1.0, -200.0, 200.0], &[5.0, 2.0, 1.0, 1.0]);
        assert_eq!(y[0], 0.0);
        assert!((y[1] - 2.0 * 0.731_058_6).abs() < 1e-6);
        assert_eq!(y[2], -0.0);
        assert_eq!(y[3], 200.0);
    }
}

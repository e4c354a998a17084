//! The activation of gated feed-forward layers.

use pulp::{Arch, Simd, WithSimd};

use super::exp::exp;

/// `silu(gate) · up`, element by element.
pub fn silu_gate(gate: &[f32], up: &[f32]) -> Vec<f32> {
    assert_eq!(gate.len(), up.len(), "gate and up have one shape");
    let mut y = vec![0.0; gate.len()];
    Arch::new().dispatch(SiluGate { gate, up, y: &mut y });
    y
}

struct SiluGate<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for SiluGate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for ((y, gate), up) in self.y.iter_mut().zip(self.gate).zip(self.up) {
            *y = gate / (1.0 + exp(-gate)) * up;
        }
    }
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

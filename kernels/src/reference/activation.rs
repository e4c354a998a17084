//! The activations of gated feed-forward layers.

use pulp::{Arch, Simd, WithSimd};

use super::exp::exp;

/// How a gated feed-forward layer joins the outputs of its gate and up projections.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum GateActivation {
    /// `silu(gate) · up`.
    #[default]
    Silu,
    /// `(up + 1) · gate · sigmoid(alpha · gate)`, with gate clamped to at most `limit` and up to
    /// ±`limit` (gpt-oss).
    Clamped {
        /// Factor of gate within the sigmoid.
        alpha: f32,
        /// Bound of gate from above, and of up from both sides; above 0.
        limit: f32,
    },
}

impl GateActivation {
    /// Joins gate and up, element by element.
    ///
    /// # Panics
    /// When they have different lengths.
    pub fn apply(self, gate: &[f32], up: &[f32]) -> Vec<f32> {
        match self {
            Self::Silu => silu_gate(gate, up),
            Self::Clamped { alpha, limit } => {
                assert_eq!(gate.len(), up.len(), "gate and up have one shape");
                let join = |(gate, up): (&f32, &f32)| {
                    let (gate, up) = (gate.min(limit), up.clamp(-limit, limit));
                    (up + 1.0) * (gate / (1.0 + exp(-alpha * gate)))
                };
                gate.iter().zip(up).map(join).collect()
            }
        }
    }
}

/// `silu(gate) · up`, element by element.
pub fn silu_gate(gate: &[f32], up: &[f32]) -> Vec<f32> {
    assert_eq!(gate.len(), up.len(), "gate and up have one shape");
    let mut y = vec![0.0; gate.len()];
    Arch::new().dispatch(SiluGate { gate, up, y: &mut y });
    y
}

/// `1 / (1 + e^−x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
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

    #[test]
    fn the_clamped_form_bounds_gate_from_above_only() {
        let clamped = GateActivation::Clamped { alpha: 1.702, limit: 7.0 };
        let y = clamped.apply(&[1.0, 9.0, -30.0, 1.0, 1.0], &[0.5, 0.0, 0.0, -9.0, 9.0]);
        let gated = |gate: f64| gate / (1.0 + (-1.702 * gate).exp());
        for (found, expected) in
            y.iter().zip([1.5 * gated(1.0), gated(7.0), gated(-30.0), -6.0 * gated(1.0), 8.0 * gated(1.0)])
        {
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{found} {expected}");
        }
        assert_eq!(GateActivation::Silu.apply(&[1.0], &[2.0]), silu_gate(&[1.0], &[2.0]));
    }
}

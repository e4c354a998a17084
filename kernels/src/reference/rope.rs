//! Rotary position embedding, computed for each position: no table that a long sequence could run past.

use std::f32::consts::PI;

/// How frequencies are stretched beyond the trained length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// How much longer.
        factor: f32,
    },
    /// Llama 3.1: low frequencies divided by `factor`, high ones kept, a ramp between.
    Llama3 {
        /// How much longer.
        factor: f32,
        /// Wavelengths over `original / low_frequency_factor` are low frequencies.
        low_frequency_factor: f32,
        /// Wavelengths under `original / high_frequency_factor` are high frequencies.
        high_frequency_factor: f32,
        /// The trained length.
        original: f32,
    },
    /// YaRN (arXiv 2309.00071): a ramp over dimensions, and a scale on the result.
    Yarn {
        /// How much longer.
        factor: f32,
        /// The trained length.
        original: f32,
        /// Rotations above which a dimension is kept.
        beta_fast: f32,
        /// Rotations below which a dimension is divided.
        beta_slow: f32,
        /// Scale of cosine and sine.
        attention_factor: f32,
    },
}

/// The rotation of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    inverse_frequencies: Vec<f32>,
    scale: f32,
}

impl Rope {
    /// For heads of `head_dim` (even) dimensions; pairs are (i, i + head_dim / 2), as Hugging Face checkpoints store
    /// them.
    pub fn new(head_dim: usize, theta: f32, scaling: RopeScaling) -> Self {
        assert!(head_dim.is_multiple_of(2), "rotary heads have an even size");
        let plain = (0..head_dim / 2).map(|at| 1.0 / theta.powf((2 * at) as f32 / head_dim as f32));
        let scale = match scaling {
            RopeScaling::Yarn { attention_factor, .. } => attention_factor,
            _ => 1.0,
        };
        let inverse_frequencies =
            plain.enumerate().map(|(at, frequency)| stretched(frequency, at, head_dim, theta, scaling)).collect();
        Self { inverse_frequencies, scale }
    }

    /// Cosine and sine of every pair at positions from 0: `[positions, head_dim / 2, 2]`.
    pub fn table(&self, positions: usize) -> Vec<f32> {
        let turn = |position: usize| {
            self.inverse_frequencies.iter().flat_map(move |frequency| {
                let (sine, cosine) = (position as f32 * frequency).sin_cos();
                [cosine * self.scale, sine * self.scale]
            })
        };
        (0..positions).flat_map(turn).collect()
    }

    /// Rotates each head of each row in place. `x` is `[positions.len(), heads, head_dim]`.
    pub fn apply(&self, x: &mut [f32], positions: &[usize]) {
        let half = self.inverse_frequencies.len();
        if positions.is_empty() || half == 0 {
            return;
        }
        let width = x.len() / positions.len();
        assert!(width * positions.len() == x.len() && width.is_multiple_of(2 * half), "rows of whole heads");
        for (row, position) in x.chunks_exact_mut(width).zip(positions) {
            let turns: Vec<(f32, f32)> = self
                .inverse_frequencies
                .iter()
                .map(|frequency| (*position as f32 * frequency).sin_cos())
                .map(|(sine, cosine)| (sine * self.scale, cosine * self.scale))
                .collect();
            for head in row.chunks_exact_mut(2 * half) {
                let (low, high) = head.split_at_mut(half);
                for ((low, high), (sine, cosine)) in low.iter_mut().zip(high).zip(&turns) {
                    (*low, *high) = (*low * cosine - *high * sine, *high * cosine + *low * sine);
                }
            }
        }
    }
}

fn stretched(frequency: f32, at: usize, head_dim: usize, theta: f32, scaling: RopeScaling) -> f32 {
    match scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original } => {
            let wavelength = 2.0 * PI / frequency;
            if wavelength > original / low_frequency_factor {
                frequency / factor
            } else if wavelength < original / high_frequency_factor {
                frequency
            } else {
                let smooth =
                    (original / wavelength - low_frequency_factor) / (high_frequency_factor - low_frequency_factor);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
        RopeScaling::Yarn { factor, original, beta_fast, beta_slow, .. } => {
            // The dimension that turns `rotations` times over the trained length.
            let dimension =
                |rotations: f32| head_dim as f32 * (original / (rotations * 2.0 * PI)).ln() / (2.0 * theta.ln());
            let low = dimension(beta_fast).floor().max(0.0);
            let high = dimension(beta_slow).ceil().min(head_dim as f32 - 1.0).max(low + 0.001);
            let ramp = ((at as f32 - low) / (high - low)).clamp(0.0, 1.0);
            frequency / factor * ramp + frequency * (1.0 - ramp)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_keeps_length_and_position_zero() {
        let rope = Rope::new(4, 10_000.0, RopeScaling::None);
        let mut x = vec![1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0];
        rope.apply(&mut x, &[0, 7]);
        assert_eq!(x[..4], [1.0, 2.0, 3.0, 4.0]);
        let length: f32 = x[4..].iter().map(|x| x * x).sum();
        assert!((length - 30.0).abs() < 1e-4);
        // Pair (0, 2) turns by 7 radians, pair (1, 3) by 0.07.
        assert!((x[4] - (7_f32.cos() - 3.0 * 7_f32.sin())).abs() < 1e-5);
        assert!((x[5] - (2.0 * 0.07_f32.cos() - 4.0 * 0.07_f32.sin())).abs() < 1e-5);
    }

    #[test]
    fn llama3_divides_long_wavelengths_only() {
        // The values of Llama-3.1: theta 500000, factor 8, 1 and 4, 8192.
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original: 8192.0,
        };
        let (plain, scaled) = (Rope::new(128, 500_000.0, RopeScaling::None), Rope::new(128, 500_000.0, scaling));
        assert_eq!(plain.inverse_frequencies[0], scaled.inverse_frequencies[0]);
        let last = plain.inverse_frequencies[63] / scaled.inverse_frequencies[63];
        assert!((last - 8.0).abs() < 1e-4);
        assert!(scaled.inverse_frequencies.windows(2).all(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn yarn_keeps_fast_dimensions_and_divides_slow_ones() {
        let scaling = RopeScaling::Yarn {
            factor: 4.0,
            original: 4096.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: 1.14,
        };
        let (plain, scaled) = (Rope::new(128, 10_000.0, RopeScaling::None), Rope::new(128, 10_000.0, scaling));
        assert_eq!(plain.inverse_frequencies[0], scaled.inverse_frequencies[0]);
        assert!((plain.inverse_frequencies[63] / scaled.inverse_frequencies[63] - 4.0).abs() < 1e-5);
        assert_eq!(scaled.scale, 1.14);
    }
}

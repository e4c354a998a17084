//! Rotary position embedding, computed for each position, without a table that would limit the
//! sequence length.

use std::f32::consts::PI;

/// How frequencies are scaled beyond the trained length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// Every frequency is divided by `factor`.
    Linear {
        /// Factor of the sequence length.
        factor: f32,
    },
    /// Llama 3.1: low frequencies are divided by `factor`, high ones kept, with a ramp between.
    Llama3 {
        /// Factor of the sequence length.
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
        /// Factor of the sequence length.
        factor: f32,
        /// The trained length.
        original: f32,
        /// Rotations over the trained length above which a dimension is kept.
        beta_fast: f32,
        /// Rotations over the trained length below which a dimension is divided.
        beta_slow: f32,
        /// Factor on cosine and sine.
        attention_factor: f32,
        /// Whether the ends of the ramp are rounded outwards to whole dimensions, as is usual;
        /// gpt-oss does not.
        truncate: bool,
    },
}

/// Which two rotated dimensions form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// i and i + dims / 2, as most Hugging Face checkpoints store them.
    Halves,
    /// 2i and 2i + 1 (DeepSeek).
    Interleaved,
}

/// The rotation of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    inverse_frequencies: Vec<f32>,
    head_dim: usize,
    pairing: Pairing,
    scale: f32,
}

impl Rope {
    /// For heads of `head_dim` (even) dimensions, all rotated, with [`Pairing::Halves`].
    pub fn new(head_dim: usize, theta: f32, scaling: RopeScaling) -> Self {
        Self::partial(head_dim, head_dim, Pairing::Halves, theta, scaling)
    }

    /// For heads of `head_dim` dimensions of which the first `dims` (even) are rotated and the
    /// others pass through. The frequencies are spread over `dims`, not over the head.
    ///
    /// # Panics
    /// When `dims` is odd or above `head_dim`.
    pub fn partial(head_dim: usize, dims: usize, pairing: Pairing, theta: f32, scaling: RopeScaling) -> Self {
        assert!(dims.is_multiple_of(2) && dims <= head_dim, "{dims} of {head_dim} dimensions cannot be rotated");
        let plain = (0..dims / 2).map(|at| 1.0 / theta.powf((2 * at) as f32 / dims as f32));
        let scale = match scaling {
            RopeScaling::Yarn { attention_factor, .. } => attention_factor,
            _ => 1.0,
        };
        let inverse_frequencies =
            plain.enumerate().map(|(at, frequency)| stretched(frequency, at, dims, theta, scaling)).collect();
        Self { inverse_frequencies, head_dim, pairing, scale }
    }

    /// Dimensions of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Number of rotated dimensions: the first of each head.
    pub fn dims(&self) -> usize {
        2 * self.inverse_frequencies.len()
    }

    /// Which dimensions form a pair.
    pub fn pairing(&self) -> Pairing {
        self.pairing
    }

    /// Cosine and sine of every pair at positions from 0 on: `[positions, dims / 2, 2]`.
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
        // Without positions the width of a row is not known.
        if positions.is_empty() || half == 0 {
            return;
        }
        let width = x.len() / positions.len();
        assert!(width * positions.len() == x.len() && width.is_multiple_of(self.head_dim), "rows of whole heads");
        for (row, position) in x.chunks_exact_mut(width).zip(positions) {
            let turns: Vec<(f32, f32)> = self
                .inverse_frequencies
                .iter()
                .map(|frequency| (*position as f32 * frequency).sin_cos())
                .map(|(sine, cosine)| (sine * self.scale, cosine * self.scale))
                .collect();
            for head in row.chunks_exact_mut(self.head_dim) {
                let rotated = &mut head[..2 * half];
                match self.pairing {
                    Pairing::Halves => {
                        let (low, high) = rotated.split_at_mut(half);
                        low.iter_mut().zip(high).zip(&turns).for_each(|((low, high), turn)| rotate(low, high, *turn));
                    }
                    Pairing::Interleaved => {
                        let pairs = rotated.as_chunks_mut::<2>().0;
                        pairs.iter_mut().zip(&turns).for_each(|([low, high], turn)| rotate(low, high, *turn));
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn rotate(low: &mut f32, high: &mut f32, (sine, cosine): (f32, f32)) {
    (*low, *high) = (*low * cosine - *high * sine, *high * cosine + *low * sine);
}

fn stretched(frequency: f32, at: usize, dims: usize, theta: f32, scaling: RopeScaling) -> f32 {
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
        RopeScaling::Yarn { factor, original, beta_fast, beta_slow, truncate, .. } => {
            // The dimension that makes `rotations` turns over the trained length.
            let dimension =
                |rotations: f32| dims as f32 * (original / (rotations * 2.0 * PI)).ln() / (2.0 * theta.ln());
            let (low, high) = (dimension(beta_fast), dimension(beta_slow));
            let (low, high) = if truncate { (low.floor(), high.ceil()) } else { (low, high) };
            let low = low.max(0.0);
            // As published: the 0.001 keeps the ramp from a division by zero.
            let high = high.min(dims as f32 - 1.0).max(low + 0.001);
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
        // Pair (0, 2) is rotated by 7 radians, pair (1, 3) by 0.07.
        assert!((x[4] - (7_f32.cos() - 3.0 * 7_f32.sin())).abs() < 1e-5);
        assert!((x[5] - (2.0 * 0.07_f32.cos() - 4.0 * 0.07_f32.sin())).abs() < 1e-5);
    }

    #[test]
    fn a_part_of_a_head_turns_like_a_smaller_head_and_the_rest_passes_through() {
        let head: Vec<f32> = (1..=8).map(|at| at as f32).collect();
        let (mut whole, mut part) = (head[..4].to_vec(), [head.clone(), head.clone()].concat());
        Rope::new(4, 10_000.0, RopeScaling::None).apply(&mut whole, &[7]);
        let rope = Rope::partial(8, 4, Pairing::Halves, 10_000.0, RopeScaling::None);
        rope.apply(&mut part, &[7]);
        for part in part.chunks_exact(8) {
            assert_eq!(part[..4], whole);
            assert_eq!(part[4..], head[4..]);
        }
        assert_eq!((rope.head_dim(), rope.dims(), rope.table(3).len()), (8, 4, 12));
    }

    #[test]
    fn interleaved_pairs_turn_as_halves_do_in_another_place() {
        let halves = Rope::new(6, 10_000.0, RopeScaling::None);
        let interleaved = Rope::partial(6, 6, Pairing::Interleaved, 10_000.0, RopeScaling::None);
        let (mut a, mut b) = ([1.0, 3.0, 5.0, 2.0, 4.0, 6.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        halves.apply(&mut a, &[9]);
        interleaved.apply(&mut b, &[9]);
        assert_eq!([a[0], a[3], a[1], a[4], a[2], a[5]], b);
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
            truncate: true,
        };
        let (plain, scaled) = (Rope::new(128, 10_000.0, RopeScaling::None), Rope::new(128, 10_000.0, scaling));
        assert_eq!(plain.inverse_frequencies[0], scaled.inverse_frequencies[0]);
        assert!((plain.inverse_frequencies[63] / scaled.inverse_frequencies[63] - 4.0).abs() < 1e-5);
        assert_eq!(scaled.scale, 1.14);
    }

    #[test]
    fn yarn_without_rounding_has_a_ramp_that_starts_within_a_dimension() {
        // gpt-oss: 64 dimensions, theta 150000, 4096 positions. Rotations of 32 are at dimension
        // 8.09, one at 17.40.
        let of = |truncate| {
            let scaling = RopeScaling::Yarn {
                factor: 32.0,
                original: 4096.0,
                beta_fast: 32.0,
                beta_slow: 1.0,
                attention_factor: 1.35,
                truncate,
            };
            Rope::new(64, 150_000.0, scaling).inverse_frequencies
        };
        let plain = Rope::new(64, 150_000.0, RopeScaling::None).inverse_frequencies;
        let (rounded, exact) = (of(true), of(false));
        assert_eq!((exact[8], exact[20]), (plain[8], plain[20] / 32.0));
        let ramp = (9.0 - 8.092_78) / (17.398_02 - 8.092_78);
        let expected = plain[9] / 32.0 * ramp + plain[9] * (1.0 - ramp);
        assert!((exact[9] / expected - 1.0).abs() < 1e-5, "{} {expected}", exact[9]);
        assert!((rounded[9] / exact[9] - 1.0).abs() > 1e-3);
    }
}

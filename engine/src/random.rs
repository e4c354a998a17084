//! Random numbers as a function of the seed and the position at which they are used.

/// A number in [0, 1), the same for the same seed and position on every machine and in every batch.
///
/// SplitMix64's output function (Steele, Lea, Flood 2014) over seed and position.
pub fn uniform(seed: u64, position: usize) -> f64 {
    let mixed =
        // A function of seed and position alone: a token's random number depends neither on the
        // batch nor on the rounds before. The kernels compute the same bits.
        mix(mix(seed.wrapping_add(0x9E37_79B9_7F4A_7C15)) ^ (position as u64).wrapping_mul(0xD1B5_4A32_D192_ED03));
    // 53 bits, as many as a float of 64 bits holds exactly.
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_the_unit_interval_evenly_over_positions_and_over_seeds() {
        for draw in [|at: usize| uniform(7, at), |at: usize| uniform(at as u64, 7)] {
            let mut bins = [0_u32; 16];
            for at in 0..16_000 {
                bins[(draw(at) * 16.0) as usize] += 1;
            }
            let chi_square: f64 = bins.iter().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0).sum();
            // 15 degrees of freedom: the 0.1% critical value is 37.7.
            assert!(chi_square < 37.7, "{chi_square} {bins:?}");
        }
    }
}

//! The exponential, without branches or tables, so that a loop over it is vectorised, and with the
//! same bits on every machine, which the platform's function does not guarantee.

/// `e^x` within two units in the last place; 0 below −104, infinite above 89, NaN for NaN.
///
/// x = n·ln 2 + r with |r| ≤ ln 2 / 2: the power of two goes into the exponent, a polynomial gives
/// e^r.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // Adding and subtracting 1.5·2²³ rounds to an integer, which is then also in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts: the first has few bits, so that its product with n is exact.
    const LN_2: (f32, f32) = (0.693_359_4, -2.121_944_4e-4);
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN_2.1, n.mul_add(-LN_2.0, x));
    let mut power = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        power = r.mul_add(power, coefficient);
    }
    // Two factors, since 2^n alone leaves the normal range at both ends.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    power * power_of_two(n >> 1) * power_of_two(n.wrapping_sub(n >> 1))
}

/// 2ⁿ. The addition wraps, since an overflow check would prevent vectorisation; |n| is below 100.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn it_is_within_two_units_in_the_last_place() {
        for step in -8_700_000..=8_870_000 {
            let x = step as f32 * 1e-5;
            let (found, expected) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((found / expected - 1.0).abs() < 2.0 * f64::from(f32::EPSILON), "{x}: {found} {expected}");
        }
    }

    #[test]
    fn it_is_right_at_the_ends() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1e30), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        // Between the smallest normal number and zero.
        assert!((exp(-100.0) - 3.8e-44).abs() < 3e-45);
    }
}

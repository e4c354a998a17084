//! Student's t and Fisher's F, for means whose scatter is estimated.

/// The value that Student's t with this many degrees of freedom exceeds with the given probability,
/// which must be below one half. Infinite without a degree of freedom.
pub fn quantile_above(probability: f64, freedom: f64) -> f64 {
    if freedom <= 0.0 || probability <= 0.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while above(high, freedom) > probability {
        high *= 2.0;
        if high > 1e12 {
            return f64::INFINITY;
        }
    }
    for _ in 0..36 {
        let middle = (low + high) / 2.0;
        if above(middle, freedom) > probability { low = middle } else { high = middle }
    }
    high
}

/// Probability that a standard normal number exceeds a value ≥ 0: by its series near zero, by
/// Laplace's continued fraction in the tail (Abramowitz & Stegun 26.2.11 and 26.2.14).
pub fn normal_above(value: f64) -> f64 {
    let density = (-value * value / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if value > 2.5 {
        return density / (1..60).rev().fold(value, |rest, term| value + f64::from(term) / rest);
    }
    let (mut term, mut sum) = (value, value);
    for at in 1..60 {
        term *= value * value / f64::from(2 * at + 1);
        sum += term;
    }
    0.5 - density * sum
}

/// Probability that Student's t exceeds a value ≥ 0.
fn above(value: f64, freedom: f64) -> f64 {
    beta(freedom / (freedom + value * value), freedom / 2.0, 0.5) / 2.0
}

/// Probability that the ratio of two estimates of the same variance, with these degrees of freedom,
/// exceeds a value.
pub fn variance_ratio_above(ratio: f64, freedom: f64, below: f64) -> f64 {
    if freedom <= 0.0 || below <= 0.0 {
        return 1.0;
    }
    beta(below / (below + freedom * ratio), below / 2.0, freedom / 2.0)
}

/// The regularized incomplete beta function I_x(a, b), by its continued fraction (Lentz's method;
/// Press et al., Numerical Recipes, 6.4).
fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    // The fraction converges fast only on this side.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    front / continued_fraction(x, a, b)
}

/// 1 + d₁ / (1 + d₂ / (1 + …)).
fn continued_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TERMS: usize = 300;
    const TINY: f64 = 1e-300;
    let (mut value, mut c, mut d) = (1.0, 1.0, 0.0);
    for term in 1..TERMS {
        let m = (term / 2) as f64;
        let coefficient = if term % 2 == 0 {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        let guarded = |value: f64| if value.abs() < TINY { TINY } else { value };
        d = 1.0 / guarded(1.0 + coefficient * d);
        c = guarded(1.0 + coefficient / c);
        value *= c * d;
        if (c * d - 1.0).abs() < 1e-14 {
            break;
        }
    }
    value
}

/// ln Γ(x) for x > 0, shifted up until Stirling's series is exact to twelve digits.
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 12.0 {
        shift += x.ln();
        x += 1.0;
    }
    let square = x * x;
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x * square) + 1.0 / (1260.0 * x * square * square);
    (x - 0.5) * x.ln() - x + (2.0 * std::f64::consts::PI).ln() / 2.0 + series - shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let check = |probability: f64, freedom: f64, expected: f64| {
            let found = quantile_above(probability, freedom);
            assert!((found / expected - 1.0).abs() < 5e-4, "{probability} {freedom}: {found}, not {expected}");
        };
        check(0.025, 1.0, 12.706);
        check(0.005, 2.0, 9.925);
        check(0.025, 4.0, 2.776);
        check(0.005, 10.0, 3.169);
        check(0.05, 30.0, 1.697);
        check(0.005, 1e6, 2.5758);
        assert_eq!(quantile_above(0.05, 0.0), f64::INFINITY);
        for (value, expected) in
            [(0.0, 0.5), (1.96, 0.0249979), (2.5, 6.209665e-3), (3.0, 1.349898e-3), (5.0, 2.866516e-7)]
        {
            let found = normal_above(value);
            assert!((found / expected - 1.0).abs() < 1e-4, "{value}: {found}");
        }
    }

    #[test]
    fn ratios_of_variances_are_judged_as_in_the_tables() {
        let check = |ratio: f64, freedom: f64, below: f64, expected: f64| {
            let found = variance_ratio_above(ratio, freedom, below);
            assert!((found - expected).abs() < 5e-4, "{ratio} {freedom} {below}: {found}");
        };
        check(4.96, 1.0, 10.0, 0.05);
        check(3.49, 2.0, 20.0, 0.05);
        check(4.43, 4.0, 20.0, 0.01);
        check(0.0, 3.0, 9.0, 1.0);
    }
}

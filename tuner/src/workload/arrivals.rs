//! Arrival times of an open loop.

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Separates this random stream from the one for prompts and lengths.
const STREAM: u64 = 0xA221_7A15;

/// Arrival times of a Poisson process, relative to its first request, scaled so that the rate from
/// the first to the last is exact: with few requests an unscaled draw is easily 20% off. Seed and
/// repeat determine everything but the scale, so that two rates differ only in their pace, and all
/// configurations see the same process.
pub fn poisson(seed: u64, repeat: usize, rate: f64, count: usize) -> Vec<Duration> {
    let mut numbers = StdRng::seed_from_u64(seed ^ STREAM ^ (repeat as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut gaps: Vec<f64> = (1..count).map(|_| -(1.0 - numbers.random::<f64>()).ln()).collect();
    let scale = gaps.len() as f64 / gaps.iter().sum::<f64>() / rate;
    gaps.iter_mut().for_each(|gap| *gap *= scale);
    let mut seconds = 0.0;
    let times = std::iter::once(0.0).chain(gaps).map(|gap| {
        seconds += gap;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    });
    times.take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_gaps_scatter_as_much_as_they_are_long() {
        let count = 20_000;
        let arrivals = poisson(1, 0, 50.0, count);
        assert!(arrivals.is_sorted());
        assert_eq!(arrivals[0], Duration::ZERO);
        let gaps: Vec<f64> = arrivals.windows(2).map(|two| (two[1] - two[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean * 50.0 - 1.0).abs() < 1e-6, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{variance}");
    }

    #[test]
    fn a_seed_is_one_process_at_every_pace() {
        let (slow, fast) = (poisson(7, 3, 2.0, 50), poisson(7, 3, 4.0, 50));
        assert_eq!(slow, poisson(7, 3, 2.0, 50));
        assert_ne!(slow, poisson(8, 3, 2.0, 50));
        assert_ne!(slow, poisson(7, 4, 2.0, 50));
        for (slow, fast) in slow.iter().zip(&fast) {
            assert!((slow.as_secs_f64() - 2.0 * fast.as_secs_f64()).abs() < 1e-6);
        }
        assert_eq!(poisson(7, 0, f64::MIN_POSITIVE, 3).last(), Some(&Duration::MAX));
    }

    #[test]
    fn few_requests_come_at_the_very_rate_in_every_repeat() {
        for repeat in 0..20 {
            let last = poisson(1, repeat, 4.0, 48).last().expect("requests").as_secs_f64();
            assert!((47.0 / last - 4.0).abs() < 1e-6, "{repeat}: {last}");
        }
        assert_eq!(poisson(1, 0, 4.0, 1), [Duration::ZERO]);
        assert_eq!(poisson(1, 0, 4.0, 0), []);
    }
}

//! Medians and their intervals.

use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::selection::Interval;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// The median of the finite ones of some values; `None` without any.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_unstable_by(f64::total_cmp);
    middle(&values)
}

/// The middle of sorted values, the mean of the two middle ones for an even count.
pub(crate) fn middle(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Values from which on there is a 95% interval. The range of fewer holds the true median less often than that: of three
/// in 75 cases of 100, of five in 94, of n in 1 − 2^(1 − n) of all.
pub const FEWEST_FOR_INTERVAL: usize = 6;

/// Median with the 95% percentile bootstrap interval (Efron 1979), or with the range where there are fewer values than
/// [`FEWEST_FOR_INTERVAL`]. The seed is fixed: equal data, equal interval.
pub fn interval(values: &[f64]) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let center = middle(&sorted)?;
    if let (true, Some(low), Some(high)) = (sorted.len() < FEWEST_FOR_INTERVAL, sorted.first(), sorted.last()) {
        return Some(Interval { median: center, low: *low, high: *high });
    }
    let mut random = StdRng::seed_from_u64(0x5EED);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            let mut sample: Vec<f64> = sorted.iter().map(|_| sorted[random.random_range(0..sorted.len())]).collect();
            sample.sort_by(f64::total_cmp);
            middle(&sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians.get((share * (RESAMPLES - 1) as f64).round() as usize).copied();
    Some(Interval { median: center, low: at(0.025)?, high: at(0.975)? })
}

/// Median absolute deviation relative to the median: a spread that one outlier does not move.
pub fn relative_deviation(values: &[f64]) -> Option<f64> {
    let center = median(values.to_vec())?;
    median(values.iter().map(|value| (value - center).abs()).collect()).map(|deviation| deviation / center.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_true_median_about_as_often_as_it_says() {
        let mut random = StdRng::seed_from_u64(1);
        let mut held = 0;
        for _ in 0..200 {
            // Uniform on [0, 2): the median is 1.
            let values: Vec<f64> = (0..25).map(|_| random.random::<f64>() * 2.0).collect();
            let interval = interval(&values).expect("values");
            held += usize::from(interval.low <= 1.0 && 1.0 <= interval.high);
        }
        assert!((180..=199).contains(&held), "{held} of 200");
    }

    #[test]
    fn few_values_have_a_range_and_no_interval() {
        let check = |values: &[f64], low: f64, high: f64| {
            let found = interval(values).expect("values");
            assert_eq!((found.low, found.high), (low, high), "{values:?}");
        };
        check(&[2.0, 1.0], 1.0, 2.0);
        check(&[5.0, 1.0, 2.0, 3.0, 4.0], 1.0, 5.0);
        let six = interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 100.0]).expect("values");
        assert!(six.high < 100.0, "{six:?}");
    }

    #[test]
    fn the_median_ignores_what_is_no_number() {
        assert_eq!(median(vec![3.0, f64::NAN, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![1.0, 2.0]), Some(1.5));
        assert_eq!(median(vec![f64::INFINITY]), None);
    }

    #[test]
    fn one_value_is_its_own_interval_and_none_has_none() {
        assert_eq!(interval(&[3.0]), Some(Interval { median: 3.0, low: 3.0, high: 3.0 }));
        assert_eq!(interval(&[]), None);
        assert_eq!(relative_deviation(&[9.0, 10.0, 11.0, 40.0]), Some(1.0 / 10.5));
    }
}

//! Medians and their intervals.

pub mod student;

use serde::{Deserialize, Serialize};

/// A figure over repeats with an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median over repeats; for a ratio, the median over pairs.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The kind of interval.
    pub kind: RangeKind,
    /// Coverage of the interval, from 0 to 1; 0 for a single repeat.
    pub coverage: f64,
}

/// The kind of an [`Interval`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RangeKind {
    /// A confidence interval of at least 95%; [`Interval::coverage`] is its exact coverage.
    Confidence,
    /// The minimum and maximum of repeats that are too few for a confidence interval.
    Range,
    /// A single repeat: both ends are the figure itself, and the scatter is unknown.
    Single,
}

/// The median of the finite values; `None` without any.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_unstable_by(f64::total_cmp);
    middle(&values)
}

/// The median of sorted values: the mean of the two middle ones for an even count.
pub(crate) fn middle(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Minimum coverage of the true median. Fewer than six values cannot reach it.
const LEVEL: f64 = 0.95;

/// The median with its exact interval between two order statistics (Thompson 1936): the narrowest
/// that covers the true median of any distribution in at least 95% of cases, or the range if the
/// values are too few for that. The exact coverage is returned too: the range of three values
/// covers 75%, of five 94%; of seven values, the second to the sixth cover 87.5% and the first to
/// the seventh 98.4%.
pub fn interval(values: &[f64]) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = middle(&sorted)?;
    let count = sorted.len();
    let [low, high] = [*sorted.first()?, *sorted.last()?];
    if count == 1 {
        return Some(Interval { median, low, high, kind: RangeKind::Single, coverage: 0.0 });
    }
    let enough =
        // Coverage falls with each value that is left out at both ends.
        (0..count / 2).map(|at| (at, coverage(count, at))).take_while(|(_, coverage)| *coverage >= LEVEL).last();
    Some(match enough {
        Some((at, coverage)) => {
            Interval { median, low: sorted[at], high: sorted[count - 1 - at], kind: RangeKind::Confidence, coverage }
        }
        None => Interval { median, low, high, kind: RangeKind::Range, coverage: coverage(count, 0) },
    })
}

/// Probability that the true median is between the value with `below` smaller ones and the value
/// with as many larger ones.
fn coverage(count: usize, below: usize) -> f64 {
    // The number of values below the median is binomial; this is 1 − 2 · P(at most `below`).
    let mut chance = 0.5_f64.powi(count as i32);
    let mut outside = 0.0;
    for at in 0..=below {
        outside += chance;
        chance *= (count - at) as f64 / (at + 1) as f64;
    }
    1.0 - 2.0 * outside
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    /// Share of runs in which the interval of `count` draws covers their true median.
    fn held(count: usize, truth: f64, mut draw: impl FnMut(&mut StdRng) -> f64) -> f64 {
        const RUNS: usize = 4000;
        let mut random = StdRng::seed_from_u64(count as u64);
        let holds = |_: &usize| {
            let values: Vec<f64> = (0..count).map(|_| draw(&mut random)).collect();
            let interval = interval(&values).expect("values");
            interval.low <= truth && truth <= interval.high
        };
        (0..RUNS).filter(holds).count() as f64 / RUNS as f64
    }

    fn normal(random: &mut StdRng) -> f64 {
        (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
    }

    #[test]
    fn the_coverage_is_what_is_printed_whatever_the_values_are_drawn_from() {
        for count in [3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25] {
            let reported = interval(&(0..count).map(f64::from).collect::<Vec<_>>()).expect("values");
            assert_eq!(reported.kind == RangeKind::Confidence, count >= 6, "{count}");
            assert_eq!(reported.coverage >= 0.95, count >= 6, "{count}: {}", reported.coverage);
            let skewed = |random: &mut StdRng| -(1.0 - random.random::<f64>()).ln();
            // A third of the trials take 10 to 300% longer. The true median of such times comes
            // from a million draws.
            let stalled = |random: &mut StdRng| {
                let stall = if random.random::<f64>() < 1.0 / 3.0 { 0.1 + 2.9 * random.random::<f64>() } else { 0.0 };
                (1.0 + 0.02 * normal(random)) * (1.0 + stall)
            };
            let mut random = StdRng::seed_from_u64(7);
            let median = super::median((0..200_000).map(|_| stalled(&mut random)).collect()).expect("values");
            let (count, reported) = (count as usize, reported.coverage);
            for (name, found) in [
                ("normal", held(count, 0.0, normal)),
                ("skewed", held(count, std::f64::consts::LN_2, skewed)),
                ("stalled", held(count, median, stalled)),
            ] {
                // Three standard errors of the simulation.
                assert!((found - reported).abs() < 0.022, "{count} {name} values: {found}, told {reported}");
            }
        }
    }

    #[test]
    fn few_values_have_a_range_and_no_interval() {
        let check = |values: &[f64], ends: (f64, f64), kind: RangeKind, coverage: f64| {
            let found = interval(values).expect("values");
            assert_eq!(((found.low, found.high), found.kind), (ends, kind), "{values:?}");
            assert!((found.coverage - coverage).abs() < 1e-12, "{values:?}: {}", found.coverage);
        };
        check(&[3.0], (3.0, 3.0), RangeKind::Single, 0.0);
        check(&[2.0, 1.0], (1.0, 2.0), RangeKind::Range, 0.5);
        check(&[5.0, 1.0, 2.0], (1.0, 5.0), RangeKind::Range, 0.75);
        check(&[5.0, 1.0, 4.0, 2.0, 3.0, 100.0], (1.0, 100.0), RangeKind::Confidence, 0.96875);
        check(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], (2.0, 8.0), RangeKind::Confidence, 0.9609375);
    }

    #[test]
    fn the_median_ignores_what_is_no_number() {
        assert_eq!(median(vec![3.0, f64::NAN, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![1.0, 2.0]), Some(1.5));
        assert_eq!(median(vec![f64::INFINITY]), None);
        assert_eq!(interval(&[]), None);
    }
}

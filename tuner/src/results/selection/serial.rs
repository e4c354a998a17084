//! Serial correlation of block scores: whether consecutive repeats of a configuration resemble each
//! other more than distant ones, so that they say less than independent ones.
//!
//! The noise that one configuration keeps from block to block is modelled as a first-order
//! autoregression. A variance estimated around the mean of such a series is too low, and the mean
//! scatters more than that of independent blocks; both are exact functions of the correlation and
//! the number of blocks. The correlation itself is an estimate: if the number of repeats is decided
//! beforehand, it counts once it is significant ([`correlation`]); if results are looked at after
//! every repeat, its upper bound counts ([`bound`]), since a correlation that is not significant
//! yet is no reason to stop.

use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde::{Deserialize, Serialize};

/// Fewer blocks cannot show a correlation: with four, one order in twelve is as smooth as the
/// smoothest.
const FEWEST: usize = 5;
/// Random orders of the blocks that the real one is compared with.
const ORDERS: usize = 400;
/// The blocks are correlated if chance would make an order this smooth less often than this.
const LEVEL: f64 = 0.05;
/// Relative scatter of single scores above which repeats that are too few to show a correlation are
/// taken as correlated: such repeats vary with other work on the machine, for several trials in a
/// row.
const UNSTEADY: f64 = 0.10;
/// The correlation that is then assumed.
const ASSUMED: f64 = 0.5;
/// Upper bound of the estimated correlation.
const MOST: f64 = 0.9;
/// Standard errors from an estimate to its upper bound, chosen by simulation: with 1.5 verdicts for
/// every look are wrong in 2.4% of races at a correlation of 0.9.
const TO_BOUND: f64 = 1.645;
/// Standard errors by which an estimate is above what independent blocks have, to count as found:
/// one-sided 5%.
const TO_FOUND: f64 = 1.645;
/// Upper bound of an upper bound: closer to 1, no number of blocks says anything.
const MOST_BOUND: f64 = 0.98;

/// A correlation of consecutive repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SerialCorrelation {
    /// Correlation of consecutive block scores that the intervals allow for, from 0 to 1.
    pub lag_one: f64,
    /// Number of blocks.
    pub blocks: usize,
    /// Where the correlation comes from.
    pub basis: IntervalBasis,
    /// Whether it is significant.
    pub found: bool,
}

/// Where a correlation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalBasis {
    /// Estimated, and significant.
    Estimate,
    /// The upper bound of an estimate, for intervals that hold at every look.
    Bound,
    /// Assumed, because repeats vary much and are too few to show it.
    Assumed,
}

impl SerialCorrelation {
    /// Number of independent blocks that say as much about a mean as all of these, at least one.
    pub fn effective(self) -> f64 {
        let blocks = self.blocks.max(1) as f64;
        blocks / inflation(self.lag_one, blocks)
    }
}

/// The variance of the mean of this many values of an autoregression, relative to that of
/// independent ones: from 1 to the number of values (Bayley & Hammersley 1946, in closed form).
pub fn inflation(lag_one: f64, count: f64) -> f64 {
    if lag_one <= 0.0 || count <= 1.0 {
        return 1.0;
    }
    let rest = 1.0 - lag_one;
    (1.0 + lag_one) / rest - 2.0 * lag_one * (1.0 - lag_one.powf(count)) / (count * rest * rest)
}

/// The expected sums that an estimate of the correlation is made of, for this many values of an
/// autoregression of variance 1 around their own mean: the products of consecutive ones, and the
/// squares.
fn expected(lag_one: f64, count: f64) -> (f64, f64) {
    let inflation = inflation(lag_one, count);
    let end = match lag_one > 0.0 {
        true => (1.0 - lag_one.powf(count)) / (count * (1.0 - lag_one)),
        false => 1.0 / count,
    };
    let products = (count - 1.0) * (lag_one + inflation / count) - 2.0 * inflation + 2.0 * end;
    (products, count - inflation)
}

/// The upper bound of the correlation in scores around the effects of their configurations and
/// blocks, one row per configuration in order of time, with this many degrees of freedom together.
/// `None` without a row of two.
pub fn bound(residuals: &[Vec<Option<f64>>], freedom: f64) -> Option<SerialCorrelation> {
    let columns = residuals.iter().map(Vec::len).max().unwrap_or_default();
    let cell = |row: &[Option<f64>], at: usize| row.get(at).copied().flatten();
    let used: Vec<usize> = (0..columns).filter(|at| residuals.iter().any(|row| cell(row, *at).is_some())).collect();
    let counts: Vec<f64> =
        residuals.iter().map(|row| row.iter().flatten().count() as f64).filter(|count| *count > 1.0).collect();
    if counts.is_empty() || freedom <= 0.0 {
        return None;
    }
    let squares: f64 = residuals.iter().flatten().flatten().map(|value| value * value).sum();
    let product = |row: &Vec<Option<f64>>, pair: &[usize]| Some(cell(row, pair[0])? * cell(row, pair[1])?);
    let products: f64 =
        residuals.iter().flat_map(|row| used.windows(2).filter_map(move |pair| product(row, pair))).sum();
    let estimate = if squares > 0.0 { products / squares } else { 0.0 };
    let error = 1.0 / freedom.sqrt();
    // The estimate around estimated means is too low; the bound is the correlation with which it
    // would be expected.
    let expected = |lag_one: f64| {
        let sums = counts.iter().map(|count| expected(lag_one, *count));
        let (products, squares) = sums.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        products / squares
    };
    let upper = estimate + TO_BOUND * error;
    let (mut low, mut high) = (0.0, MOST_BOUND);
    // The expectation grows with the correlation, so halving finds where it reaches the bound.
    for _ in 0..20 {
        let middle = (low + high) / 2.0;
        if expected(middle) < upper { low = middle } else { high = middle }
    }
    let found = used.len() >= FEWEST && estimate - TO_FOUND * error > expected(0.0);
    Some(SerialCorrelation { lag_one: high, blocks: used.len(), basis: IntervalBasis::Bound, found })
}

/// The correlation of the series, each a configuration's paired differences by block in order of
/// time; `None` unless it is significant.
///
/// The statistic is von Neumann's ratio (1941), the squared differences of consecutive values over
/// their squared deviations, of all series together. All series share the baseline, so its
/// distribution is taken from random orders of the blocks, which keep what the series have in
/// common.
pub fn correlation(series: &[Vec<Option<f64>>]) -> Option<SerialCorrelation> {
    let columns = series.iter().map(Vec::len).max().unwrap_or_default();
    let centred: Vec<Vec<Option<f64>>> = series.iter().map(|row| centred(row)).collect();
    let used: Vec<usize> =
        (0..columns).filter(|at| centred.iter().any(|row| row.get(*at).is_some_and(Option::is_some))).collect();
    if used.len() < FEWEST {
        return None;
    }
    let sum = |a: usize, b: usize, of: fn(f64, f64) -> f64| -> f64 {
        centred.iter().filter_map(|row| Some(of((*row.get(a)?)?, (*row.get(b)?)?))).sum()
    };
    let distance: Vec<Vec<f64>> =
        used.iter().map(|a| used.iter().map(|b| sum(*a, *b, |a, b| (a - b).powi(2))).collect()).collect();
    // Neighbours in time that resemble each other make the path through all blocks short. Other
    // orders show how short it is by chance.
    let roughness = |order: &[usize]| order.windows(2).map(|pair| distance[pair[0]][pair[1]]).sum::<f64>();
    let mut order: Vec<usize> = (0..used.len()).collect();
    let observed = roughness(&order);
    // Seeded by the data alone: a report that is written again says the same.
    let mut random = StdRng::seed_from_u64(used.len() as u64);
    let smoother = (0..ORDERS)
        .filter(|_| {
            order.shuffle(&mut random);
            roughness(&order) <= observed
        })
        .count();
    let squares: f64 = used.iter().map(|at| sum(*at, *at, |a, _| a * a)).sum();
    // The order of the measurement is one of all orders, so it counts as well.
    if (smoother + 1) as f64 / (ORDERS + 1) as f64 > LEVEL || squares <= 0.0 {
        return None;
    }
    let products: f64 = used.windows(2).map(|pair| sum(pair[0], pair[1], |a, b| a * b)).sum();
    // The estimate around an estimated mean is too low by about (1 + 3r) / n (Kendall 1954).
    let (found, count) = (products / squares, used.len() as f64);
    let lag_one = (found + (1.0 + 3.0 * found) / count).clamp(0.0, MOST);
    Some(SerialCorrelation { lag_one, blocks: used.len(), basis: IntervalBasis::Estimate, found: true })
}

/// The correlation to assume of blocks that are too few to show one, where single scores scatter by
/// this much.
pub fn assumed(series: &[Vec<Option<f64>>], scatter: f64) -> Option<SerialCorrelation> {
    let columns = series.iter().map(Vec::len).max().unwrap_or_default();
    let blocks = (0..columns).filter(|at| series.iter().any(|row| row.get(*at).is_some_and(Option::is_some))).count();
    // Too few blocks to see a correlation; scatter this large has mostly come with one.
    let is_so = scatter > UNSTEADY && (1..FEWEST).contains(&blocks);
    is_so.then_some(SerialCorrelation { lag_one: ASSUMED, blocks, basis: IntervalBasis::Assumed, found: false })
}

fn centred(row: &[Option<f64>]) -> Vec<Option<f64>> {
    let count = row.iter().flatten().count().max(1) as f64;
    let mean = row.iter().flatten().sum::<f64>() / count;
    row.iter().map(|value| value.map(|value| value - mean)).collect()
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;

    /// Series of a first-order autoregression, and a term that all share.
    fn drawn(random: &mut StdRng, correlation: f64, blocks: usize) -> Vec<Vec<Option<f64>>> {
        let mut uniform = || 2.0 * random.random::<f64>() - 1.0;
        let mut states = [0.0; 5].map(|_: f64| uniform());
        let mut rows = vec![Vec::new(); 4];
        for _ in 0..blocks {
            let rest = (1.0 - correlation * correlation).sqrt();
            states.iter_mut().for_each(|state| *state = correlation * *state + rest * uniform());
            rows.iter_mut().zip(&states).for_each(|(row, state)| row.push(Some(state - states[4])));
        }
        rows
    }

    #[test]
    fn it_is_found_where_it_is_and_seldom_where_it_is_not() {
        let mut random = StdRng::seed_from_u64(5);
        let mut found = |strength: f64, blocks: usize| -> Vec<f64> {
            let races = (0..400).filter_map(|_| correlation(&drawn(&mut random, strength, blocks)));
            races.map(|found| found.lag_one).collect()
        };
        assert!(found(0.0, 4).is_empty(), "four blocks cannot show it");
        for blocks in [5, 8, 20] {
            let chance = found(0.0, blocks).len();
            assert!((2..=36).contains(&chance), "{chance} of 400 by chance, of {blocks} blocks");
        }
        assert!(found(0.7, 8).len() > 160);
        let long = found(0.7, 30);
        assert!(long.len() > 380, "{}", long.len());
        let mean = long.iter().sum::<f64>() / long.len() as f64;
        assert!((mean - 0.7).abs() < 0.1, "{mean}");
    }

    #[test]
    fn missing_blocks_are_passed_over() {
        let rising: Vec<Option<f64>> = (0..9).map(|at| (at != 4).then_some(f64::from(at))).collect();
        let found = correlation(&[rising, vec![None; 9]]).expect("a drift");
        assert_eq!(found.blocks, 8);
        assert!(found.effective() < 3.0, "{found:?}");
        assert_eq!(correlation(&[]), None);
    }

    #[test]
    fn few_repeats_that_vary_much_are_taken_as_correlated() {
        let few = [vec![Some(0.1), Some(0.4), None]];
        assert_eq!(assumed(&few, 0.05), None);
        assert_eq!(assumed(&few, 0.2).map(|found| (found.blocks, found.basis)), Some((2, IntervalBasis::Assumed)));
        assert_eq!(assumed(&[vec![Some(0.1); 5]], 0.2), None, "five blocks show it");
    }
    #[test]
    fn the_bound_is_above_the_correlation_and_comes_near_with_more_blocks() {
        let mut random = StdRng::seed_from_u64(3);
        for (strength, blocks, near) in
            [(0.0, 4, 0.99), (0.0, 30, 0.35), (0.5, 8, 0.99), (0.5, 30, 0.75), (0.8, 30, 0.97)]
        {
            let bounds = |_| {
                let mut rows = drawn(&mut random, strength, blocks);
                rows.iter_mut().for_each(|row| *row = centred(row));
                bound(&rows, (3 * (blocks - 1)) as f64).expect("rows").lag_one
            };
            let bounds: Vec<f64> = (0..200).map(bounds).collect();
            let held = bounds.iter().filter(|bound| **bound >= strength).count();
            let mean = bounds.iter().sum::<f64>() / bounds.len() as f64;
            assert!(held >= 170, "{held} of 200 at {strength}, {blocks} blocks");
            assert!(mean <= near, "{mean} at {strength}, {blocks} blocks");
        }
        assert_eq!(bound(&[vec![Some(1.0)], vec![None]], 1.0), None);
    }

    #[test]
    fn the_mean_of_an_autoregression_is_worth_fewer_values() {
        // By the sum over all pairs.
        for (lag_one, count) in [(0.0, 5), (0.3, 3), (0.7, 12), (0.98, 40)] {
            let pairs = |lag: i32| f64::from(count - lag) * f64::powi(lag_one, lag);
            let sum = f64::from(count) + 2.0 * (1..count).map(pairs).sum::<f64>();
            let found = inflation(lag_one, f64::from(count));
            assert!((found - sum / f64::from(count)).abs() < 1e-9, "{found}");
        }
        let all = SerialCorrelation { lag_one: 0.98, blocks: 3, basis: IntervalBasis::Bound, found: false };
        assert!((1.0..1.1).contains(&all.effective()), "{all:?}");
    }
}

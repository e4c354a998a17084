//! Serial correlation of block scores: whether consecutive repeats resemble each other more than distant ones, so that
//! they say less than independent ones.

use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde::{Deserialize, Serialize};

/// Fewer blocks cannot show a correlation: with four, one order in twelve is as smooth as the smoothest.
const FEWEST: usize = 5;
/// Random orders of the blocks that the real one is compared with.
const ORDERS: usize = 400;
/// The blocks are correlated if chance would make an order this smooth less often than this.
const LEVEL: f64 = 0.05;
/// Relative scatter of single scores above which repeats that are too few to show a correlation are taken as correlated:
/// such repeats vary with other work on the machine, for several trials in a row.
const UNSTEADY: f64 = 0.10;
/// The correlation that is then assumed.
const ASSUMED: f64 = 0.5;
/// Upper bound of the estimated correlation.
const MOST: f64 = 0.9;

/// A correlation of consecutive repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SerialCorrelation {
    /// Estimated correlation of consecutive block scores, from 0 to 1.
    pub lag_one: f64,
    /// Number of blocks.
    pub blocks: usize,
    /// Whether it is assumed, because repeats vary much and are too few to show it.
    pub assumed: bool,
}

impl SerialCorrelation {
    /// Number of independent blocks that say as much about a mean as one of these: (1 + r) / (1 − r) of these, as for
    /// an autoregressive series (Bayley & Hammersley 1946).
    pub fn blocks_for_one(self) -> f64 {
        (1.0 + self.lag_one) / (1.0 - self.lag_one)
    }

    /// Number of independent blocks that all of these are worth.
    pub fn effective(self) -> f64 {
        self.blocks as f64 / self.blocks_for_one()
    }
}

/// The correlation of the series, each a configuration's paired differences by block in order of time; `None` unless it
/// is significant.
///
/// The statistic is von Neumann's ratio (1941), the squared differences of consecutive values over their squared
/// deviations, of all series together. All series share the baseline, so its distribution is taken from random orders of
/// the blocks, which keep what the series have in common.
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
    let roughness = |order: &[usize]| order.windows(2).map(|pair| distance[pair[0]][pair[1]]).sum::<f64>();
    let mut order: Vec<usize> = (0..used.len()).collect();
    let observed = roughness(&order);
    let mut random = StdRng::seed_from_u64(used.len() as u64);
    let smoother = (0..ORDERS)
        .filter(|_| {
            order.shuffle(&mut random);
            roughness(&order) <= observed
        })
        .count();
    let squares: f64 = used.iter().map(|at| sum(*at, *at, |a, _| a * a)).sum();
    if (smoother + 1) as f64 / (ORDERS + 1) as f64 > LEVEL || squares <= 0.0 {
        return None;
    }
    let products: f64 = used.windows(2).map(|pair| sum(pair[0], pair[1], |a, b| a * b)).sum();
    // The estimate around an estimated mean is too low by about (1 + 3r) / n (Kendall 1954).
    let (found, count) = (products / squares, used.len() as f64);
    let lag_one = (found + (1.0 + 3.0 * found) / count).clamp(0.0, MOST);
    Some(SerialCorrelation { lag_one, blocks: used.len(), assumed: false })
}

/// The correlation to assume of blocks that are too few to show one, where single scores scatter by this much.
pub fn assumed(series: &[Vec<Option<f64>>], scatter: f64) -> Option<SerialCorrelation> {
    let columns = series.iter().map(Vec::len).max().unwrap_or_default();
    let blocks = (0..columns).filter(|at| series.iter().any(|row| row.get(*at).is_some_and(Option::is_some))).count();
    let is_so = scatter > UNSTEADY && (1..FEWEST).contains(&blocks);
    is_so.then_some(SerialCorrelation { lag_one: ASSUMED, blocks, assumed: true })
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
        assert_eq!(assumed(&few, 0.2).map(|found| (found.blocks, found.assumed)), Some((2, true)));
        assert_eq!(assumed(&[vec![Some(0.1); 5]], 0.2), None, "five blocks show it");
    }
}

//! How far the best must be ahead before that is more than noise.
//!
//! The best of many configurations is partly the luckiest: among enough equal ones, some always seem ahead. So its lead is
//! held against what the same race would show if all its configurations were equal and only noise made a difference
//! (multiple comparisons with the best, Hsu 1984, with a simulated threshold). The scatter is estimated from all
//! configurations together; races of pure noise, put through the very same steps, say how large a lead, in units of that
//! scatter, comes by chance in one race of twenty. Three repeats then say something, where a test of each pair by itself
//! has next to nothing to go by.

use std::cmp::Ordering;

use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::statistics::median;

/// Simulated races.
const RACES: usize = 1000;
/// The share of races between equals in which a given one may be taken for worse than the best.
const LEVEL: f64 = 0.05;
/// Passes that take the effects of configurations and repeats out where trials are missing. With all there, one does it.
const PASSES: usize = 8;
/// Pairs of which all must speak for the same side before that is no chance: of equals, five do in one case of sixteen.
const PAIRS: usize = 5;
/// Residuals below are the rounding that is left of equal scores.
const ROUNDING: f64 = 1e-12;

/// The scores of a race as logarithms, so that differences are ratios: a row for each configuration, a column for each
/// repeat; `None` where a trial is missing.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    rows: Vec<Vec<Option<f64>>>,
}

impl Scores {
    /// Rows of scores above 0, all of one length.
    pub fn new(rows: impl IntoIterator<Item = Vec<Option<f64>>>) -> Self {
        let logarithms = |row: Vec<Option<f64>>| row.into_iter().map(|score| score.map(f64::ln)).collect();
        Self { rows: rows.into_iter().map(logarithms).collect() }
    }

    /// The lead of one row over another: the median over the repeats that both have of the logarithm of their ratio.
    pub fn lead(&self, row: usize, over: usize) -> Option<f64> {
        lead(self.rows.get(row)?, self.rows.get(over)?)
    }

    /// Whether one row is ahead of another in each of at least [`PAIRS`] repeats that both have: with so many, the
    /// interval of their median ratio leaves out 1.
    pub fn always_leads(&self, row: usize, over: usize) -> bool {
        let (Some(row), Some(over)) = (self.rows.get(row), self.rows.get(over)) else { return false };
        let pairs: Vec<f64> = row.iter().zip(over).filter_map(|(a, b)| Some((*a)? - (*b)?)).collect();
        pairs.len() >= PAIRS && pairs.iter().all(|lead| *lead > 0.0)
    }

    /// The largest lead of the best that chance alone explains; 0 if nothing scatters, and `None` where the scatter is
    /// unknown, since nothing was measured twice.
    pub fn chance(&self) -> Option<f64> {
        match self.scatter()? {
            0.0 => Some(0.0),
            scatter => Some(scatter * self.scatters_by_chance()?),
        }
    }

    /// The same in units of the scatter. Depends on which trials there are, and not on their scores.
    fn scatters_by_chance(&self) -> Option<f64> {
        let mut random = StdRng::seed_from_u64(0x5EED);
        let mut leads: Vec<f64> = (0..RACES).filter_map(|_| self.of_noise(&mut random).relative_lead()).collect();
        leads.sort_by(f64::total_cmp);
        let rank = (leads.len() as f64 * (1.0 - LEVEL)).ceil() as usize;
        leads.get(rank.saturating_sub(1)).copied()
    }

    /// The scatter of a single score about the effects of its configuration and its repeat: the median absolute residual,
    /// which a few outliers do not move. It need not be a standard deviation, since races of noise are measured in it too.
    fn scatter(&self) -> Option<f64> {
        let (rows, columns) = (self.rows.len(), self.rows.first()?.len());
        let count = self.rows.iter().flatten().flatten().count();
        // Without a degree of freedom all residuals are 0 and say nothing.
        if count < rows + columns {
            return None;
        }
        let mut residuals = self.rows.clone();
        for _ in 0..if count == rows * columns { 1 } else { PASSES } {
            residuals.iter_mut().for_each(|row| center(row.iter_mut().flatten()));
            (0..columns).for_each(|at| center(residuals.iter_mut().filter_map(|row| row.get_mut(at)?.as_mut())));
        }
        let sizes: Vec<f64> = residuals.iter().flatten().flatten().map(|residual| residual.abs()).collect();
        median(sizes).map(|size| if size < ROUNDING { 0.0 } else { size })
    }

    /// In units of the scatter, the lead of the best over the configuration with the fewest repeats. Which one that is
    /// makes no difference between equals, but for the repeats that are missing.
    fn relative_lead(&self) -> Option<f64> {
        let best = self.rows.iter().max_by(|a, b| middle(a).partial_cmp(&middle(b)).unwrap_or(Ordering::Equal))?;
        let other = self.rows.iter().min_by_key(|row| row.iter().flatten().count())?;
        let scatter = self.scatter().filter(|scatter| *scatter > 0.0)?;
        Some(lead(best, other)? / scatter)
    }

    /// The same trials, had they been between equals.
    fn of_noise(&self, random: &mut StdRng) -> Self {
        let mut noise = |score: &Option<f64>| score.map(|_| normal(random));
        Self { rows: self.rows.iter().map(|row| row.iter().map(&mut noise).collect()).collect() }
    }
}

fn lead(row: &[Option<f64>], over: &[Option<f64>]) -> Option<f64> {
    let differences: Vec<Option<f64>> = row.iter().zip(over).map(|(a, b)| Some((*a)? - (*b)?)).collect();
    middle(&differences)
}

fn middle(values: &[Option<f64>]) -> Option<f64> {
    median(values.iter().copied().flatten().collect())
}

/// Subtracts the mean.
fn center<'a>(values: impl Iterator<Item = &'a mut f64>) {
    let values: Vec<&mut f64> = values.collect();
    let mean = values.iter().map(|value| **value).sum::<f64>() / values.len().max(1) as f64;
    values.into_iter().for_each(|value| *value -= mean);
}

/// A standard normal number (Box and Muller 1958).
fn normal(random: &mut StdRng) -> f64 {
    let (radius, angle) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often, in races of noise with `trials` missing here and there, the first row is taken for worse than the best.
    fn check(configurations: usize, repeats: usize, missing: usize, heavy_tails: bool) {
        const RUNS: usize = 300;
        let mut random = StdRng::seed_from_u64(7);
        let mut by_chance = None;
        let worse = (0..RUNS)
            .filter(|_| {
                let drift: Vec<f64> = (0..repeats).map(|_| 0.1 * normal(&mut random)).collect();
                let mut noise = |drift: &f64| {
                    let outlier = if heavy_tails && random.random::<f64>() < 0.1 { 5.0 } else { 1.0 };
                    Some((0.02 * outlier * normal(&mut random) + drift).exp())
                };
                let mut rows: Vec<Vec<Option<f64>>> =
                    (0..configurations).map(|_| drift.iter().map(&mut noise).collect()).collect();
                (0..missing).for_each(|at| rows[at % configurations][repeats - 1] = None);
                let scores = Scores::new(rows);
                let by_chance = *by_chance.get_or_insert_with(|| scores.scatters_by_chance().expect("a threshold"));
                let chance = by_chance * scores.scatter().expect("something was measured twice");
                (0..configurations)
                    .any(|row| scores.is_best(row) && scores.lead(row, 0).is_some_and(|lead| lead > chance))
            })
            .count();
        // Nominally 15 of 300, and chance in that number itself.
        assert!(worse <= 28, "{configurations} × {repeats}: {worse} of {RUNS}");
    }

    impl Scores {
        fn is_best(&self, row: usize) -> bool {
            let of = |row: &Vec<Option<f64>>| middle(row).expect("a score");
            self.rows.iter().all(|other| of(other) <= of(&self.rows[row]))
        }
    }

    #[test]
    fn equals_are_told_apart_no_more_often_than_the_level_says() {
        for (configurations, repeats) in [(2, 3), (3, 2), (6, 3), (16, 3), (5, 7)] {
            check(configurations, repeats, 0, false);
        }
        check(8, 3, 5, false);
        check(8, 3, 0, true);
    }

    #[test]
    fn a_lead_of_several_scatters_is_found_with_three_repeats() {
        let mut random = StdRng::seed_from_u64(11);
        let mut by_chance = None;
        let found = (0..100)
            .filter(|_| {
                let mut row = |mean: f64| (0..3).map(|_| Some(mean * (0.02 * normal(&mut random)).exp())).collect();
                let scores = Scores::new((0..12).map(|at| row(if at == 5 { 115.0 } else { 100.0 })));
                let by_chance = by_chance.get_or_insert_with(|| scores.scatters_by_chance().expect("a threshold"));
                let chance = scores.scatter().expect("repeats") * *by_chance;
                (0..12).all(|at| at == 5 || scores.lead(5, at).is_some_and(|lead| lead > chance))
            })
            .count();
        assert!(found >= 90, "{found} of 100");
    }

    #[test]
    fn without_repeats_or_without_scatter_there_is_no_chance_to_speak_of() {
        let once = Scores::new([vec![Some(1.0)], vec![Some(2.0)]]);
        assert_eq!(once.chance(), None);
        assert_eq!(Scores::default().chance(), None);
        let alike = Scores::new([vec![Some(1.0), Some(1.1)], vec![Some(2.0), Some(2.2)]]);
        assert_eq!(alike.chance(), Some(0.0));
        assert!((alike.lead(1, 0).expect("a lead") - 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!(Scores::new([vec![Some(1.0), None], vec![None, Some(1.0)]]).lead(0, 1), None);
    }
}

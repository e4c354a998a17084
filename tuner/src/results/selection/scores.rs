//! The scores of a race, and differences between configurations.
//!
//! Scores are logarithms, so that differences are ratios. Two configurations are compared within
//! the blocks that have both (see [`blocks`](super::blocks)), so that a drift of the machine
//! affects both alike. The scatter of single scores is estimated from all configurations together,
//! since three repeats of one say next to nothing about it; if the pairs of two configurations
//! scatter significantly more than that, only their own scatter counts. If consecutive blocks
//! resemble each other, or may do so, they count as fewer.

use super::{
    Interval, Looks, RangeKind,
    serial::{self, SerialCorrelation, inflation},
    slow,
};
use crate::statistics::{median, student::variance_ratio_above};

/// One-sided error of the intervals: all contenders' intervals together hold in 98.5% of races.
pub const ERROR: f64 = 0.0075;
/// Two estimates of the scatter count as different if chance would cause such a difference less
/// often than this.
const UNLIKE: f64 = 0.05;
/// Lower bound of the relative deviation of a single score: no machine is steadier, even if few
/// repeats suggest it.
const STEADIEST: f64 = 0.002;
/// Lower bound of the share of a degree of freedom that remains of correlated blocks.
const LEAST_FREEDOM: f64 = 1e-3;
/// Passes that remove the effects of configurations and blocks if trials are missing. Without gaps
/// one pass suffices.
const PASSES: usize = 32;

/// One row per configuration, one column per block; `None` without a trial.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    rows: Vec<Vec<Option<f64>>>,
    /// Of a single score, corrected for the correlation of blocks.
    scatter: Option<ScoreEstimate>,
    /// The relative deviation of a single score as it is seen.
    deviation: Option<f64>,
    /// Cells (row, column) that are far slower than the rest of their row.
    slow: Vec<(usize, usize)>,
    looks: Looks,
    serial: Option<SerialCorrelation>,
}

/// A variance with its degrees of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ScoreEstimate {
    variance: f64,
    freedom: f64,
}

/// The lead of one configuration over another, in logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lead {
    /// The mean over pairs.
    pub mean: f64,
    /// The median over pairs.
    pub median: f64,
    /// Number of common blocks; if there are none and both were compared with a third row, the
    /// smaller number of those.
    pub pairs: usize,
    /// Standard error of the mean with its degrees of freedom; `None` if the scatter is unknown.
    error: Option<(f64, f64)>,
    /// Number of independent pairs that the pairs are worth.
    effective: f64,
    looks: Looks,
}

impl Scores {
    /// Takes rows of positive scores, all of the same length, with their columns in order of time.
    /// `off_row` is the row that the others are compared with.
    pub fn new(rows: impl IntoIterator<Item = Vec<Option<f64>>>, off_row: Option<usize>, looks: Looks) -> Self {
        let logarithms = |row: Vec<Option<f64>>| row.into_iter().map(|score| score.map(f64::ln)).collect();
        let mut rows: Vec<Vec<Option<f64>>> = rows.into_iter().map(logarithms).collect();
        let slow = slow::cells(&rows);
        for (row, column) in &slow {
            // Dropped before the scatter is estimated, which one such trial would dominate.
            rows[*row][*column] = None;
        }
        let (scatter, residuals) = scatter(&rows).unzip();
        let differences = |off: &Vec<Option<f64>>| {
            let of = |row: &Vec<Option<f64>>| row.iter().zip(off).map(|(a, b)| Some((*a)? - (*b)?)).collect();
            // Differences, not scores: a drift of the machine that all configurations share is not
            // noise of a comparison.
            let others = rows.iter().enumerate().filter(|(row, _)| Some(*row) != off_row);
            let series: Vec<Vec<Option<f64>>> = others.map(|(_, row)| of(row)).collect();
            let deviation = scatter.map_or(0.0, |scatter: ScoreEstimate| scatter.variance.sqrt());
            serial::correlation(&series).or_else(|| serial::assumed(&series, deviation))
        };
        let serial = match looks {
            Looks::Every => scatter.and_then(|one| serial::bound(residuals.as_deref()?, one.freedom)),
            // Separate starts of a server are independent unless they are seen not to be.
            Looks::Planned | Looks::PlannedStarts | Looks::Twice | Looks::EveryStart { .. } => {
                off_row.and_then(|off| rows.get(off)).and_then(differences)
            }
        };
        let deviation = scatter.map(|scatter| scatter.variance.sqrt());
        let scatter = scatter.map(|scatter| correlated(scatter, &rows, serial));
        Self { rows, scatter, deviation, slow, looks, serial }
    }

    /// The correlation of consecutive blocks that leads allow for.
    pub fn serial(&self) -> Option<SerialCorrelation> {
        self.serial
    }

    /// Rows and columns of the trials that are omitted because they are far slower than the others.
    pub fn slow(&self) -> &[(usize, usize)] {
        &self.slow
    }

    /// Relative deviation of a single score after removing the effects of its configuration and
    /// block; `None` if nothing was measured twice.
    pub fn deviation(&self) -> Option<f64> {
        self.deviation
    }

    /// The lead of one row over another: within their common blocks or, if there are none, from the
    /// leads of both over one of the rows `via`.
    pub fn lead(&self, row: usize, over: usize, via: &[usize]) -> Option<Lead> {
        let through = |third: &usize| {
            let (first, second) = (self.direct(row, *third)?, self.direct(over, *third)?);
            Some(first.less(second))
        };
        // Two candidates may never have been measured in the same block, but each was in one with a
        // baseline.
        self.direct(row, over).or_else(|| via.iter().filter_map(through).max_by_key(|lead| lead.pairs))
    }

    fn direct(&self, row: usize, over: usize) -> Option<Lead> {
        let (row, over) = (self.rows.get(row)?, self.rows.get(over)?);
        let pairs: Vec<f64> = row.iter().zip(over).filter_map(|(a, b)| Some((*a)? - (*b)?)).collect();
        let own = spread(&pairs)?;
        let count = pairs.len() as f64;
        let mean = pairs.iter().sum::<f64>() / count;
        // The variance of a difference of two scores.
        let pooled = self.scatter.map(|scatter| ScoreEstimate { variance: 2.0 * scatter.variance, ..scatter });
        // Correlated blocks count as fewer, for the mean and for the scatter alike.
        let inflation = inflation(self.serial.map_or(0.0, |serial| serial.lag_one), count);
        let effective = count / inflation;
        let error = pooled.map(|pooled| {
            let own = ScoreEstimate {
                // Correlated values lie closer together than independent ones with the same
                // variance.
                variance: own.variance * (count - 1.0).max(1.0) / (count - inflation).max(LEAST_FREEDOM),
                freedom: own.freedom / inflation,
            };
            let unlike = variance_ratio_above(own.variance / pooled.variance, own.freedom, pooled.freedom) < UNLIKE;
            let ScoreEstimate { variance, freedom } = if unlike { own } else { pooled };
            ((variance / effective).sqrt(), freedom)
        });
        Some(Lead { mean, median: median(pairs.clone())?, pairs: pairs.len(), error, effective, looks: self.looks })
    }
}

impl Lead {
    /// Its ends at a simultaneous level of 98.5% for this many comparisons; `None` if the scatter
    /// is unknown.
    pub fn ends(&self, comparisons: usize) -> Option<(f64, f64)> {
        let (error, freedom) = self.error?;
        let reach = error * self.looks.reach(ERROR / comparisons.max(1) as f64, self.effective, freedom);
        // If single pairs pull the mean away from the median, the end on the other side is computed
        // from the median.
        let (low, high) = match self.mean - self.median {
            above if above > error => (self.median, self.mean),
            above if above < -error => (self.mean, self.median),
            _ => (self.mean, self.mean),
        };
        Some((low - reach, high + reach))
    }

    /// The lead as a ratio.
    pub fn interval(&self, comparisons: usize) -> Interval {
        match self.ends(comparisons) {
            Some((low, high)) => Interval {
                // A median outside of the interval of the mean would confuse readers.
                median: self.median.clamp(low, high).exp(),
                low: low.exp(),
                high: high.exp(),
                kind: RangeKind::Confidence,
                coverage: 1.0 - 2.0 * ERROR,
            },
            None => {
                let ratio = self.median.exp();
                Interval { median: ratio, low: ratio, high: ratio, kind: RangeKind::Single, coverage: 0.0 }
            }
        }
    }

    /// The difference of two leads over the same third row.
    fn less(self, other: Self) -> Self {
        // Both are against the same third one, whose noise they share; treating them as independent
        // only widens the interval.
        let error = self.error.zip(other.error).map(|(a, b)| (a.0.hypot(b.0), a.1.min(b.1)));
        Self {
            mean: self.mean - other.mean,
            median: self.median - other.median,
            pairs: self.pairs.min(other.pairs),
            error,
            effective: self.effective.min(other.effective),
            looks: self.looks,
        }
    }
}

/// The scatter of scores of unpaired configurations, as logarithms.
#[derive(Clone, Debug)]
pub struct Sample {
    scatter: Option<ScoreEstimate>,
}

impl Sample {
    /// Estimates the scatter of repeats around the mean of their configuration.
    pub fn new(configurations: Vec<Vec<f64>>) -> Self {
        let own = configurations.iter().filter_map(|scores| spread(scores)).filter(|own| own.freedom > 0.0);
        let (squares, freedom) = own
            .fold((0.0, 0.0), |(squares, freedom), own| (squares + own.variance * own.freedom, freedom + own.freedom));
        let variance = (squares / freedom).max(STEADIEST * STEADIEST);
        Self { scatter: (freedom > 0.0).then_some(ScoreEstimate { variance, freedom }) }
    }

    /// The lead of some scores over others; `None` without scores.
    pub fn lead(&self, scores: &[f64], over: &[f64]) -> Option<Lead> {
        let mean = |scores: &[f64]| scores.iter().sum::<f64>() / scores.len() as f64;
        let (this, that) = (spread(scores)?, spread(over)?);
        // Two runs have no common blocks, so their repeats are not paired.
        let error = self.scatter.map(|pooled| {
            let of = |own: ScoreEstimate, count: usize| {
                let unlike = variance_ratio_above(own.variance / pooled.variance, own.freedom, pooled.freedom) < UNLIKE;
                let ScoreEstimate { variance, freedom } = if unlike { own } else { pooled };
                (variance / count as f64, freedom)
            };
            let (one, other) = (of(this, scores.len()), of(that, over.len()));
            ((one.0 + other.0).sqrt(), one.1.min(other.1))
        });
        let pairs = scores.len().min(over.len());
        Some(Lead {
            mean: mean(scores) - mean(over),
            median: median(scores.to_vec())? - median(over.to_vec())?,
            pairs,
            error,
            effective: pairs as f64,
            looks: Looks::Planned,
        })
    }
}

/// The variance of some values around their mean; `None` without values.
fn spread(values: &[f64]) -> Option<ScoreEstimate> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (!values.is_empty()).then(|| ScoreEstimate { variance: squares / (count - 1.0).max(1.0), freedom: count - 1.0 })
}

/// The scatter of a single score after removing the effects of its configuration and block.
/// Deliberately not robust: if some trials are far off for no known reason, intervals must become
/// wider. The second value are the scores without these effects.
fn scatter(rows: &[Vec<Option<f64>>]) -> Option<(ScoreEstimate, Vec<Vec<Option<f64>>>)> {
    let columns = rows.iter().map(Vec::len).max()?;
    let used_rows = rows.iter().filter(|row| row.iter().flatten().count() > 0).count();
    let used_columns =
        (0..columns).filter(|at| rows.iter().any(|row| row.get(*at).is_some_and(Option::is_some))).count();
    let count = rows.iter().flatten().flatten().count();
    let freedom = (count + 1).checked_sub(used_rows + used_columns).filter(|freedom| *freedom > 0)? as f64;
    let mut residuals = rows.to_vec();
    // With holes in the table, centring rows shifts the means of columns, so both are repeated
    // until they settle.
    for _ in 0..if count == used_rows * used_columns { 1 } else { PASSES } {
        residuals.iter_mut().for_each(|row| center(row.iter_mut().flatten()));
        (0..columns).for_each(|at| center(residuals.iter_mut().filter_map(|row| row.get_mut(at)?.as_mut())));
    }
    let squares: f64 = residuals.iter().flatten().flatten().map(|residual| residual * residual).sum();
    Some((ScoreEstimate { variance: (squares / freedom).max(STEADIEST * STEADIEST), freedom }, residuals))
}

/// The scatter of scores whose blocks are correlated: a variance around means that are estimated
/// from few of them is too low, and is less certain.
fn correlated(scatter: ScoreEstimate, rows: &[Vec<Option<f64>>], serial: Option<SerialCorrelation>) -> ScoreEstimate {
    let Some(SerialCorrelation { lag_one, .. }) = serial else { return scatter };
    let counts = rows.iter().map(|row| row.iter().flatten().count() as f64).filter(|count| *count > 1.0);
    let (mut all, mut left, mut worth) = (0.0, 0.0, 0.0);
    for count in counts {
        let inflation = inflation(lag_one, count);
        all += count - 1.0;
        left += count - inflation;
        worth += (count - 1.0) / inflation;
    }
    if all <= 0.0 {
        return scatter;
    }
    let variance = scatter.variance * all / left.max(LEAST_FREEDOM);
    ScoreEstimate { variance, freedom: scatter.freedom * worth / all }
}

/// Subtracts the mean.
fn center<'a>(values: impl Iterator<Item = &'a mut f64>) {
    let values: Vec<&mut f64> = values.collect();
    let mean = values.iter().map(|value| **value).sum::<f64>() / values.len().max(1) as f64;
    values.into_iter().for_each(|value| *value -= mean);
}

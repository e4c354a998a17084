//! The residuals of the physical model, interpolated by a Gaussian process with three parts.
//!
//! One part is smooth in everything that the time of a round depends on. One depends only on the
//! number of rows of the target's (first) pass: a library chooses a kernel and tile for each number
//! of rows, and its speed jumps by ten percent and more from one choice to the next. So rounds with
//! the same number of rows share a deviation, weighted by the share of the target's linear layers
//! in each, and one number of rows says little about another. One is shared by rounds with the same
//! batch and tree size, regardless of how their trees grow: attention chooses kernels by these. All
//! parts fade to zero away from the measured points.

use serde::{Deserialize, Serialize};

use super::{LatencyError, Point, cholesky::Cholesky, fit::Physical, sample::SampleSummary};

/// Correlation lengths: a factor of e in batch, rows and context, three draft steps.
const LENGTHS: [f64; 5] = [1.0, 1.0, 1.0, 3.0, 1.0];

/// The features of a point that the process sees.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResidualPlace {
    /// Logarithms of batch, rows of the target's first pass and draft rows, draft steps, logarithm
    /// of the context; in units of [`LENGTHS`].
    features: [f64; 5],
    /// Logarithm of the rows of the target's first pass.
    log_rows: f64,
    /// Whether the rows are few enough for a separate kernel, whose time says nothing about the
    /// library's.
    few: bool,
    /// Share of the target's linear layers in the round, from 0 to 1.
    linear_share: f64,
    batch: usize,
    tree_size: usize,
}

/// A Gaussian process over logarithms of measured / modelled time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Residuals {
    /// The measured points.
    places: Vec<ResidualPlace>,
    strength: ResidualStrength,
    /// Variance of a measurement, mean over the points.
    noise: f64,
    /// Cholesky factor of the covariance of the points.
    covariance: Cholesky,
    /// Covariance⁻¹ · residuals.
    weights: Vec<f64>,
    /// Factor on the standard deviations, from cross-validation.
    pub(super) inflation: f64,
}

/// Strengths of the parts of the Gaussian process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResidualStrength {
    /// Standard deviation of the smooth part, as a logarithm of time.
    pub(super) smooth: f64,
    /// Standard deviation of the rows' part in a round that consists of linear layers only, as a
    /// logarithm of time.
    pub(super) rows: f64,
    /// Distance in logarithms of rows at which the rows' part is hardly correlated.
    pub(super) row_length: f64,
    /// Standard deviation of the part for batch and tree size, as a logarithm of time.
    pub(super) tree_size: f64,
}

impl ResidualStrength {
    /// Covariance of the physical model's residuals at two places.
    pub fn covariance(&self, one: &ResidualPlace, other: &ResidualPlace) -> f64 {
        self.smooth.powi(2) * one.similarity(other)
            + self.rows.powi(2) * one.common_rows(other, self.row_length)
            + self.tree_size.powi(2) * one.common_tree_size(other)
    }

    /// Whether its values are valid.
    pub fn is_sound(&self) -> bool {
        [self.smooth, self.rows, self.row_length, self.tree_size].iter().all(|value| value.is_finite())
            && self.row_length > 0.0
    }
}

impl ResidualPlace {
    /// The features of a point under a fitted physical model.
    pub fn new(physical: &Physical, point: &Point) -> Self {
        let (rows, _) = point.target_passes(&physical.machine.cost);
        Self::with(point, rows, rows <= physical.machine.few_rows, physical.linear_share(point))
    }

    /// The features of a point on an unknown machine, assuming that rounds consist of linear layers
    /// only.
    pub fn on_any_machine(point: &Point) -> Self {
        Self::with(point, point.verified_rows(), false, 1.0)
    }

    /// The features with this many rows in the target's first pass.
    fn with(point: &Point, rows: usize, few: bool, linear_share: f64) -> Self {
        let logarithm = |count: f64| (1.0 + count).ln();
        let mut features = [
            logarithm(point.batch as f64),
            logarithm(rows as f64),
            logarithm(point.draft_rows() as f64),
            point.shape.num_steps as f64,
            logarithm(point.context),
        ];
        features.iter_mut().zip(LENGTHS).for_each(|(feature, length)| *feature /= length);
        Self {
            features,
            log_rows: (rows as f64).ln(),
            few,
            linear_share,
            batch: point.batch,
            tree_size: point.shape.num_draft_tokens,
        }
    }

    /// Correlation of the smooth part, from 0 to 1.
    pub fn similarity(&self, other: &Self) -> f64 {
        let square: f64 = self.features.iter().zip(other.features).map(|(one, other)| (one - other).powi(2)).sum();
        (-square / 2.0).exp()
    }

    /// Covariance of the rows' part at unit strength, from 0 to 1; `length` is the distance in
    /// logarithms of rows at which numbers of rows are hardly correlated.
    pub fn common_rows(&self, other: &Self, length: f64) -> f64 {
        // Few and many rows run in different kernels, whose errors have nothing in common.
        if self.few != other.few {
            return 0.0;
        }
        // Row counts act through linear layers only, so attention-bound rounds share less.
        self.linear_share * other.linear_share * (-(self.log_rows - other.log_rows).abs() / length).exp()
    }

    /// Correlation of the part for batch and tree size, from 0 to 1.
    pub fn common_tree_size(&self, other: &Self) -> f64 {
        if (self.batch, self.tree_size) != (other.batch, other.tree_size) {
            return 0.0;
        }
        let [.., context] = self.features;
        let [.., others] = other.features;
        (-(context - others).abs()).exp()
    }
}

impl Residuals {
    /// The process over the residuals of a physical model at measured points.
    pub fn new(
        physical: &Physical,
        measured: &[SampleSummary],
        strength: ResidualStrength,
    ) -> Result<Self, LatencyError> {
        let places: Vec<ResidualPlace> = measured.iter().map(|one| ResidualPlace::new(physical, &one.point)).collect();
        let element = |row: usize, column: usize| {
            let noise = if row == column { measured[row].noise.powi(2) } else { 0.0 };
            noise + strength.covariance(&places[row], &places[column])
        };
        let covariance = Cholesky::new(measured.len(), element)
            .ok_or_else(|| LatencyError::Fit("the covariance of the points is not positive definite".into()))?;
        let left: Vec<f64> = measured.iter().map(|one| one.log_ms - physical.log_ms(&one.point)).collect();
        let weights = covariance.solve(&left);
        let noise = measured.iter().map(|one| one.noise.powi(2)).sum::<f64>() / measured.len().max(1) as f64;
        Ok(Self { places, strength, noise, covariance, weights, inflation: 1.0 })
    }

    /// Strengths of the parts.
    pub fn strength(&self) -> ResidualStrength {
        self.strength
    }

    /// Expected logarithm of measured / modelled time.
    pub fn mean(&self, place: &ResidualPlace) -> f64 {
        self.covariances(place).zip(&self.weights).map(|(covariance, weight)| covariance * weight).sum()
    }

    /// The same mean, and the standard deviation of a measurement there.
    pub fn at(&self, place: &ResidualPlace) -> (f64, f64) {
        let covariances: Vec<f64> = self.covariances(place).collect();
        let mean = covariances.iter().zip(&self.weights).map(|(covariance, weight)| covariance * weight).sum();
        // The part of the variance that the measured points explain.
        let known: f64 = self.covariance.forward(&covariances).iter().map(|value| value * value).sum();
        // Below zero by rounding alone.
        let unknown = (self.strength.covariance(place, place) - known).max(0.0);
        (mean, self.inflation * (unknown + self.noise).sqrt())
    }

    /// Minus twice the log-likelihood of each point given the others, up to a constant (Rasmussen
    /// and Williams 2006, equations 5.10 to 5.12): smaller is better.
    pub fn left_out_score(&self) -> f64 {
        let precisions = self.covariance.inverse_diagonal();
        precisions
            .iter()
            .zip(&self.weights)
            .map(|(precision, weight)| weight.powi(2) / precision - precision.ln())
            .sum()
    }

    /// Whether its parts are consistent; needed for values read from a file.
    pub fn is_sound(&self) -> bool {
        let count = self.places.len();
        let finite = |place: &ResidualPlace| {
            let numbers = [place.log_rows, place.linear_share];
            numbers.iter().chain(&place.features).all(|value| value.is_finite())
        };
        self.covariance.is_sound()
            && (count, count) == (self.covariance.size(), self.weights.len())
            && self.weights.iter().chain([&self.noise, &self.inflation]).all(|value| value.is_finite())
            && self.places.iter().all(finite)
            && self.strength.is_sound()
    }

    fn covariances<'a>(&'a self, place: &'a ResidualPlace) -> impl Iterator<Item = f64> + 'a {
        self.places.iter().map(|one| self.strength.covariance(one, place))
    }
}

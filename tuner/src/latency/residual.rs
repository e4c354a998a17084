//! What the physical model leaves, interpolated over the measured points by a Gaussian process.

use serde::{Deserialize, Serialize};

use super::{LatencyError, Point, cholesky::Cholesky, fit::Physical, sample::Summary};

/// How far apart points are that hardly tell of each other: a factor of e in batch, rows and context, three draft steps.
const LENGTHS: [f64; 5] = [1.0, 1.0, 1.0, 3.0, 1.0];

/// A Gaussian process over logarithms of measured / modelled time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Residuals {
    /// Measured points.
    measured: Vec<Summary>,
    /// Standard deviation of the physical model's error, as a logarithm.
    amplitude: f64,
    /// Covariance of the points, factored.
    covariance: Cholesky,
    /// Covariance⁻¹ · residuals.
    weights: Vec<f64>,
    /// Standard deviations are this much larger than the process says, so that they fit the points that were left out.
    pub(super) inflation: f64,
}

impl Residuals {
    /// Over what a physical model leaves at measured points.
    pub fn new(physical: &Physical, measured: &[Summary], amplitude: f64) -> Result<Self, LatencyError> {
        let element = |row: usize, column: usize| {
            let noise = if row == column { measured[row].noise.powi(2) } else { 0.0 };
            noise + similarity(&measured[row].point, &measured[column].point) * amplitude.powi(2)
        };
        let covariance = Cholesky::new(measured.len(), element)
            .ok_or_else(|| LatencyError::Fit("the covariance of the points is not positive definite".into()))?;
        let left: Vec<f64> = measured.iter().map(|one| one.log_ms - physical.log_ms(&one.point)).collect();
        let weights = covariance.solve(&left);
        Ok(Self { measured: measured.to_vec(), amplitude, covariance, weights, inflation: 1.0 })
    }

    /// Standard deviation of the physical model's error, as a logarithm.
    pub fn amplitude(&self) -> f64 {
        self.amplitude
    }

    /// Expected logarithm of measured / modelled time.
    pub fn mean(&self, point: &Point) -> f64 {
        self.covariances(point).zip(&self.weights).map(|(covariance, weight)| covariance * weight).sum()
    }

    /// The same with the standard deviation of a measurement there.
    pub fn at(&self, point: &Point) -> (f64, f64) {
        let covariances: Vec<f64> = self.covariances(point).collect();
        let mean = covariances.iter().zip(&self.weights).map(|(covariance, weight)| covariance * weight).sum();
        let known: f64 = self.covariance.forward(&covariances).iter().map(|value| value * value).sum();
        let noise = self.measured.iter().map(|one| one.noise.powi(2)).sum::<f64>() / self.measured.len().max(1) as f64;
        let variance = (self.amplitude.powi(2) - known).max(0.0) + noise;
        (mean, self.inflation * variance.sqrt())
    }

    /// Whether its parts fit each other: what was read from a file may not.
    pub fn is_sound(&self) -> bool {
        let count = self.measured.len();
        let numbers = self.weights.iter().chain([&self.amplitude, &self.inflation]);
        self.covariance.is_sound()
            && (count, count) == (self.covariance.size(), self.weights.len())
            && numbers
                .chain(self.measured.iter().flat_map(|one| [&one.log_ms, &one.noise]))
                .all(|value| value.is_finite())
    }

    fn covariances<'a>(&'a self, point: &'a Point) -> impl Iterator<Item = f64> + 'a {
        self.measured.iter().map(|one| similarity(&one.point, point) * self.amplitude.powi(2))
    }
}

/// From 0 to 1.
fn similarity(one: &Point, other: &Point) -> f64 {
    let distance = |((one, other), length): ((f64, f64), f64)| ((one - other) / length).powi(2);
    let square: f64 = features(one).into_iter().zip(features(other)).zip(LENGTHS).map(distance).sum();
    (-square / 2.0).exp()
}

fn features(point: &Point) -> [f64; 5] {
    let logarithm = |count: f64| (1.0 + count).ln();
    [
        logarithm(point.batch as f64),
        logarithm(point.verified_rows() as f64),
        logarithm(point.draft_rows() as f64),
        point.shape.num_steps as f64,
        logarithm(point.context),
    ]
}

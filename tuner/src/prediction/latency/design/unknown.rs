//! The uncertainty of candidates' round times: a Gaussian process over an unknown machine.

use engine::timing::TimingPoint;

use crate::prediction::latency::{
    Point,
    residual::{ResidualPlace, ResidualStrength},
    strength::USUAL,
};

/// Standard deviation, as a logarithm of time, of what the fitted machine model will explain.
const EXPLAINED: f64 = 0.3;

/// Correlation length of that part relative to the residuals.
const REACH: f64 = 3.0;

/// Standard deviation of a timed point, as a logarithm of time.
const NOISE: f64 = 0.005;

/// Covariance of the candidates' times, given the timed ones.
pub struct Unknown {
    covariance: Vec<Vec<f64>>,
    /// Sum of squares of each row of the covariance.
    squares: Vec<f64>,
    timed: Vec<bool>,
}

impl Unknown {
    /// Before any candidate is timed.
    pub fn from_candidates(candidates: &[TimingPoint]) -> Self {
        let place = |TimingPoint { context, batch, shape, .. }: &TimingPoint| {
            ResidualPlace::on_any_machine(&Point { shape: *shape, batch: *batch, context: *context as f64 })
        };
        let places: Vec<ResidualPlace> = candidates.iter().map(place).collect();
        let mut covariance = vec![vec![0.0; places.len()]; places.len()];
        for (row, one) in places.iter().enumerate() {
            for (column, other) in places.iter().enumerate().take(row + 1) {
                let value = covariance_of(&USUAL, one, other);
                covariance[row][column] = value;
                covariance[column][row] = value;
            }
        }
        let squares = covariance.iter().map(|row| row.iter().map(|value| value * value).sum()).collect();
        Self { covariance, squares, timed: vec![false; places.len()] }
    }

    /// The candidate whose timing minimises the sum of variances; `None` when all are timed.
    pub fn most_telling(&self) -> Option<usize> {
        // The variance of all candidates that timing this one removes.
        let reported = |at: usize| self.squares[at] / (self.covariance[at][at] + NOISE * NOISE);
        let untimed = (0..self.timed.len()).filter(|at| !self.timed[*at]);
        untimed.max_by(|one, other| reported(*one).total_cmp(&reported(*other)))
    }

    /// Conditions the covariance on a candidate's time.
    pub fn time(&mut self, at: usize) {
        self.timed[at] = true;
        let with = self.covariance[at].clone();
        let variance = with[at] + NOISE * NOISE;
        for ((row, square), own) in self.covariance.iter_mut().zip(&mut self.squares).zip(&with) {
            let factor = own / variance;
            // The rank-one update of a Gaussian process: no time has to be known to know what it
            // will tell.
            row.iter_mut().zip(&with).for_each(|(value, with)| *value -= factor * with);
            *square = row.iter().map(|value| value * value).sum();
        }
    }
}

fn covariance_of(strength: &ResidualStrength, one: &ResidualPlace, other: &ResidualPlace) -> f64 {
    // The similarity with lengths REACH times as long.
    let far = one.similarity(other).powf(REACH.powi(-2));
    EXPLAINED.powi(2) * far + strength.covariance(one, other)
}

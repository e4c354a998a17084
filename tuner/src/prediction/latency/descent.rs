//! Fits the machine's parameters by least squares with a trust region (argmin), in logarithms of
//! the parameters, so that all stay positive and steps are relative.

use argmin::{
    core::{CostFunction, Error, Executor, Gradient, Hessian},
    solver::trustregion::{Steihaug, TrustRegion},
};

use super::{
    LatencyError, LatencyMachine,
    physics::{self, FITTED, PhysicsParameters},
    sample::SampleSummary,
};

/// Weight that pulls parameters which the points do not determine to their start. Small: a factor
/// of e counts like an error of 0.5% at one point.
const PULL: f64 = 3e-5;

/// Maximum distance of a parameter from its start, as a logarithm.
const FARTHEST: f64 = 14.0;

/// Maximum step, as a logarithm: beyond it the model's gradient is not meaningful.
const LONGEST_STEP: f64 = 4.0;

/// Step of the finite differences, as a logarithm.
const SLOPE: f64 = 1e-4;

/// The error of parameters at the measured points.
#[derive(Clone, Copy, Debug)]
pub struct Misfit<'a> {
    pub machine: &'a LatencyMachine,
    pub measured: &'a [SampleSummary],
    /// The start, where undetermined parameters stay; its tile size is used throughout.
    pub start: PhysicsParameters,
}

impl Misfit<'_> {
    /// Descends from some parameters, for at most `steps` steps. Returns the final cost too.
    pub fn descend(self, from: &PhysicsParameters, steps: u64) -> Result<(f64, PhysicsParameters), LatencyError> {
        let failed = |error: Error| LatencyError::Fit(error.to_string());
        let within = Steihaug::new().with_max_iters(4 * FITTED as u64);
        let solver = TrustRegion::new(within).with_max_radius(LONGEST_STEP).map_err(failed)?;
        // In logarithms, so that parameters stay positive and steps are relative.
        let from = from.values().map(f64::ln).to_vec();
        let begin = |state: argmin::core::IterState<_, _, _, _, _, _>| state.param(from).max_iters(steps);
        let found = Executor::new(self, solver).configure(begin).run().map_err(failed)?;
        let at = found.state.best_param.ok_or_else(|| LatencyError::Fit("the fit did not converge".into()))?;
        Ok((found.state.best_cost, self.near(&at)))
    }

    /// Relative errors of the modelled times, as logarithms.
    fn errors(&self, at: &[f64]) -> impl Iterator<Item = f64> {
        let parameters = self.near(at);
        self.measured.iter().map(move |one| physics::round_ms(self.machine, &parameters, &one.point).ln() - one.log_ms)
    }

    /// The derivative of each error by each parameter.
    fn slopes(&self, at: &[f64]) -> Vec<Vec<f64>> {
        let here: Vec<f64> = self.errors(at).collect();
        let along = |axis: usize| {
            let mut shifted = at.to_vec();
            // Differences, since derivatives would be a second description of the model.
            shifted[axis] += SLOPE;
            self.errors(&shifted).zip(&here).map(|(shifted, here)| (shifted - here) / SLOPE).collect()
        };
        (0..FITTED).map(along).collect()
    }

    /// Distance of each parameter from its start, as a logarithm.
    fn strayed(&self, at: &[f64]) -> impl Iterator<Item = f64> {
        self.start.values().into_iter().zip(at).map(|(start, at)| at - start.ln())
    }

    /// The parameters with these logarithms, clamped to the range around the start.
    fn near(&self, at: &[f64]) -> PhysicsParameters {
        // Beyond this range exponentials overflow, and one parameter would hide all others.
        let mut values = self.start.values().map(f64::ln);
        for (value, at) in values.iter_mut().zip(at) {
            *value = (*value + (at - *value).clamp(-FARTHEST, FARTHEST)).exp();
        }
        PhysicsParameters::from_values(values, self.start.tile_rows)
    }
}

impl CostFunction for Misfit<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    /// Sum of squared relative errors, plus the pull to the start.
    fn cost(&self, at: &Vec<f64>) -> Result<f64, Error> {
        let pulls: f64 = self.strayed(at).map(|far| PULL * far.powi(2)).sum();
        Ok(self.errors(at).map(|error| error.powi(2)).sum::<f64>() + pulls)
    }
}

impl Gradient for Misfit<'_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, at: &Vec<f64>) -> Result<Vec<f64>, Error> {
        let errors: Vec<f64> = self.errors(at).collect();
        let slopes = self.slopes(at);
        Ok(slopes
            .iter()
            .zip(self.strayed(at))
            .map(|(slope, far)| 2.0 * (product(slope, &errors) + PULL * far))
            .collect())
    }
}

impl Hessian for Misfit<'_> {
    type Param = Vec<f64>;
    type Hessian = Vec<Vec<f64>>;

    /// The Gauss-Newton approximation, from the slopes of the errors.
    fn hessian(&self, at: &Vec<f64>) -> Result<Vec<Vec<f64>>, Error> {
        let slopes = self.slopes(at);
        let pull = |row: usize, column: usize| if row == column { PULL } else { 0.0 };
        let entry = |row: usize, column: usize| 2.0 * (product(&slopes[row], &slopes[column]) + pull(row, column));
        Ok((0..FITTED).map(|row| (0..FITTED).map(|column| entry(row, column)).collect()).collect())
    }
}

fn product(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

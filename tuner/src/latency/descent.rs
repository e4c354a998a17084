//! Descends to the parameters under which the machine's model misses the measured points least (Levenberg 1944,
//! Marquardt 1963), in logarithms of the parameters, so that all stay positive and steps are relative.

use super::{
    Machine,
    cholesky::Cholesky,
    physics::{self, FITTED, Parameters},
    sample::Summary,
};

/// Steps of a descent at most; most end after some dozens.
const STEPS: usize = 200;

/// Pulls a parameter that the points say nothing of to where it began. Small: a factor of e weighs like 0.5% at one point.
const PULL: f64 = 3e-5;

/// Farthest that a parameter may go from its start, as a logarithm.
const FARTHEST: f64 = 14.0;

/// Largest step of a parameter, as a logarithm: beyond, the model's slope tells nothing.
const LONGEST_STEP: f64 = 2.0;

/// Difference over which slopes are taken, as a logarithm.
const SLOPE: f64 = 1e-4;

/// A descent is over when a step gains less than this share of the cost.
const LEAST_GAIN: f64 = 1e-7;

/// Damping of a descent that finds no way down any more, relative to the curvature.
const MOST_DAMPING: f64 = 1e8;

/// How badly parameters fit measured points.
pub struct Misfit<'a> {
    pub machine: &'a Machine,
    pub measured: &'a [Summary],
    /// Where parameters that the points say nothing of stay; its tile is the one of all.
    pub start: Parameters,
}

/// Logarithms of parameters, what they miss, and what that costs.
struct Stand {
    at: [f64; FITTED],
    /// Logarithms of modelled / measured time.
    errors: Vec<f64>,
    cost: f64,
}

impl Misfit<'_> {
    /// Goes down from some parameters. Returns the cost of where it ends, too.
    pub fn descend(&self, from: &Parameters) -> (f64, Parameters) {
        let mut stand = self.stand(from.values().map(f64::ln));
        let mut damping = 1e-2;
        for _ in 0..STEPS {
            let Some(next) = self.step(&stand, &mut damping) else { break };
            let gain = stand.cost - next.cost;
            stand = next;
            if gain <= LEAST_GAIN * stand.cost {
                break;
            }
        }
        (stand.cost, self.near(&stand.at))
    }

    /// The next stand below this one. The better the model's slopes tell what a step gains, the less it is damped.
    fn step(&self, stand: &Stand, damping: &mut f64) -> Option<Stand> {
        let (curvature, slope) = self.quadratic(stand);
        while *damping < MOST_DAMPING {
            let damped =
                |row: usize, column: usize| curvature[row][column] * if row == column { 1.0 + *damping } else { 1.0 };
            let next = Cholesky::new(FITTED, damped).map(|factor| {
                let mut at = stand.at;
                for (value, step) in at.iter_mut().zip(factor.solve(&slope)) {
                    *value -= step.clamp(-LONGEST_STEP, LONGEST_STEP);
                }
                self.stand(at)
            });
            // A cost that is no number is not below.
            if let Some(next) = next.filter(|next| next.cost < stand.cost) {
                *damping = (*damping / 5.0).max(1e-9);
                return Some(next);
            }
            *damping *= 4.0;
        }
        None
    }

    /// Half the second derivatives of the cost, as far as slopes of the model give them, and half its first.
    fn quadratic(&self, stand: &Stand) -> ([[f64; FITTED]; FITTED], [f64; FITTED]) {
        let slopes: Vec<Vec<f64>> = (0..FITTED)
            .map(|axis| {
                let mut beside = stand.at;
                beside[axis] += SLOPE;
                let difference = |(beside, here): (f64, &f64)| (beside - here) / SLOPE;
                self.errors(&beside).zip(&stand.errors).map(difference).collect()
            })
            .collect();
        let product =
            |one: &[f64], other: &[f64]| -> f64 { one.iter().zip(other).map(|(one, other)| one * other).sum() };
        let start = self.start.values().map(f64::ln);
        let mut curvature = [[0.0; FITTED]; FITTED];
        let mut slope = [0.0; FITTED];
        for row in 0..FITTED {
            for column in 0..=row {
                curvature[row][column] = product(&slopes[row], &slopes[column]);
                curvature[column][row] = curvature[row][column];
            }
            curvature[row][row] += PULL;
            slope[row] = product(&slopes[row], &stand.errors) + PULL * (stand.at[row] - start[row]);
        }
        (curvature, slope)
    }

    /// The cost is the sum of squared relative errors, and the pull to the start.
    fn stand(&self, at: [f64; FITTED]) -> Stand {
        let errors: Vec<f64> = self.errors(&at).collect();
        let pull = |(start, at): (f64, f64)| PULL * (at - start.ln()).powi(2);
        let pulls: f64 = self.start.values().into_iter().zip(at).map(pull).sum();
        let cost = errors.iter().map(|error| error.powi(2)).sum::<f64>() + pulls;
        Stand { at, errors, cost }
    }

    fn errors(&self, at: &[f64; FITTED]) -> impl Iterator<Item = f64> {
        let parameters = self.near(at);
        self.measured.iter().map(move |one| physics::round_ms(self.machine, &parameters, &one.point).ln() - one.log_ms)
    }

    /// The parameters of these logarithms, none too far from the start.
    fn near(&self, at: &[f64; FITTED]) -> Parameters {
        let mut values = self.start.values().map(f64::ln);
        for (value, at) in values.iter_mut().zip(at) {
            *value = (*value + (at - *value).clamp(-FARTHEST, FARTHEST)).exp();
        }
        Parameters::of_values(values, self.start.tile_rows)
    }
}

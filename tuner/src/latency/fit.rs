//! Fits the machine's parameters to timed points.

use argmin::{
    core::{CostFunction, Executor},
    solver::neldermead::NelderMead,
};

use super::{
    LatencyError, Machine, Point,
    physics::{self, FITTED, Parameters, TILES},
    sample::Summary,
};

/// Iterations of one descent.
const ITERATIONS: u64 = 1200;

/// Descents from a start: a simplex that has collapsed gets a new one where it stands.
const DESCENTS: usize = 3;

/// Descents from a solution to one of nearly the same points.
const REFIT_DESCENTS: usize = 2;

/// Pulls a parameter that the points say nothing of to where it began. Small: a factor of e weighs like 0.5% at one point.
const PULL: f64 = 3e-5;

/// Relative errors beyond this weigh in proportion to their size and no longer to its square: what a library does at a
/// few numbers of rows alone must not bend the whole model, and is left to the [`residual`](super::residual).
const USUAL_ERROR: f64 = 0.02;

/// Farthest that a parameter may go from its start, as a logarithm.
const FARTHEST: f64 = 14.0;

/// Starts: factors on the memory speeds, on the arithmetic and on the fixed costs.
const STARTS: [[f64; 3]; 4] = [[1.0, 1.0, 1.0], [0.5, 0.3, 5.0], [1.0, 4.0, 0.2], [2.0, 0.1, 20.0]];

/// A machine with fitted parameters.
#[derive(Clone, Copy, Debug)]
pub struct Physical {
    pub machine: Machine,
    pub parameters: Parameters,
}

struct Misfit<'a> {
    machine: &'a Machine,
    measured: &'a [Summary],
    start: [f64; FITTED],
    tile_rows: usize,
}

impl Physical {
    /// The best of several tile sizes from one start, then of several starts.
    pub fn fit(machine: &Machine, measured: &[Summary]) -> Result<Self, LatencyError> {
        let mut best: Option<(f64, Parameters)> = None;
        let attempt = |best: &mut Option<(f64, Parameters)>, tile_rows, factors| {
            let start = Parameters::start(machine, tile_rows);
            let found = descend(machine, measured, &scaled(&start, factors), &start, DESCENTS)?;
            if best.is_none_or(|(cost, _)| found.0 < cost) {
                *best = Some(found);
            }
            Ok(())
        };
        let [first, others @ ..] = STARTS;
        TILES.iter().try_for_each(|tile_rows| attempt(&mut best, *tile_rows, first))?;
        let tile_rows = best.map_or(1, |(_, parameters)| parameters.tile_rows);
        others.iter().try_for_each(|factors| attempt(&mut best, tile_rows, *factors))?;
        let (_, parameters) = best.ok_or_else(|| LatencyError::Fit("there is no start".into()))?;
        Ok(Self { machine: *machine, parameters })
    }

    /// Fitted to other points, from where this one stands.
    pub fn refit(&self, measured: &[Summary]) -> Result<Self, LatencyError> {
        let start = Parameters::start(&self.machine, self.parameters.tile_rows);
        let (_, parameters) = descend(&self.machine, measured, &self.parameters, &start, REFIT_DESCENTS)?;
        Ok(Self { machine: self.machine, parameters })
    }

    /// Share of the target's linear layers in a round, from 0 to 1.
    pub fn linear_share(&self, point: &Point) -> f64 {
        physics::linear_share(&self.machine, &self.parameters, point)
    }

    /// Logarithm of a round's time in ms.
    pub fn log_ms(&self, point: &Point) -> f64 {
        physics::round_ms(&self.machine, &self.parameters, point).ln()
    }
}

fn scaled(start: &Parameters, [memory, arithmetic, fixed]: [f64; 3]) -> Parameters {
    Parameters {
        round_us: start.round_us * fixed,
        draft_pass_us: start.draft_pass_us * fixed,
        row_us: start.row_us * fixed,
        few_rows_gb_per_s: start.few_rows_gb_per_s * memory,
        many_rows_gb_per_s: start.many_rows_gb_per_s * memory,
        cache_gb_per_s: start.cache_gb_per_s * memory,
        few_rows_tflop_per_s: start.few_rows_tflop_per_s * arithmetic,
        many_rows_tflop_per_s: start.many_rows_tflop_per_s * arithmetic,
        attention_gb_per_s: start.attention_gb_per_s * arithmetic,
        ..*start
    }
}

/// Goes down from `from`; what the points do not determine stays near `start`.
fn descend(
    machine: &Machine,
    measured: &[Summary],
    from: &Parameters,
    start: &Parameters,
    descents: usize,
) -> Result<(f64, Parameters), LatencyError> {
    let failed = |error: argmin::core::Error| LatencyError::Fit(error.to_string());
    let logarithms = |parameters: &Parameters| parameters.values().map(f64::ln);
    let tile_rows = start.tile_rows;
    let mut at = logarithms(from).to_vec();
    let mut cost = f64::INFINITY;
    for descent in 0..descents {
        let size = if descent % 2 == 0 { 0.7 } else { -0.3 };
        let mut simplex = vec![at.clone()];
        for axis in 0..at.len() {
            let mut corner = at.clone();
            corner[axis] += size;
            simplex.push(corner);
        }
        let solver = NelderMead::new(simplex).with_sd_tolerance(1e-10).map_err(failed)?;
        let misfit = Misfit { machine, measured, start: logarithms(start), tile_rows };
        let found =
            Executor::new(misfit, solver).configure(|state| state.max_iters(ITERATIONS)).run().map_err(failed)?;
        let Some(best) = found.state.best_param.filter(|_| found.state.best_cost < cost) else { break };
        (at, cost) = (best, found.state.best_cost);
    }
    Ok((cost, near(&logarithms(start), &at, tile_rows)))
}

/// The parameters of these logarithms, none too far from the start.
fn near(start: &[f64; FITTED], logarithms: &[f64], tile_rows: usize) -> Parameters {
    let mut values = *start;
    for (value, logarithm) in values.iter_mut().zip(logarithms) {
        *value = (*value + (logarithm - *value).clamp(-FARTHEST, FARTHEST)).exp();
    }
    Parameters::of_values(values, tile_rows)
}

impl CostFunction for Misfit<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    /// Sum of squared relative errors, of large ones less, and the pull to the start.
    fn cost(&self, logarithms: &Vec<f64>) -> Result<f64, argmin::core::Error> {
        let pull: f64 = self.start.iter().zip(logarithms).map(|(start, at)| PULL * (at - start).powi(2)).sum();
        let parameters = near(&self.start, logarithms, self.tile_rows);
        let error = |one: &Summary| physics::round_ms(self.machine, &parameters, &one.point).ln() - one.log_ms;
        let softened = |error: f64| 2.0 * USUAL_ERROR.powi(2) * ((1.0 + (error / USUAL_ERROR).powi(2)).sqrt() - 1.0);
        let misfit: f64 = self.measured.iter().map(|one| softened(error(one))).sum();
        Ok(misfit + pull)
    }
}

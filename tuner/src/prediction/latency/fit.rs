//! Fits the machine's parameters to timed points.

use super::{
    LatencyError, LatencyMachine, Point,
    descent::Misfit,
    physics::{self, PhysicsParameters, TILES},
    sample::SampleSummary,
};

/// Maximum number of steps of a descent.
const STEPS: u64 = 80;

/// Maximum number of steps from a solution to that of nearly the same points.
const REFIT_STEPS: u64 = 12;

/// Start points: factors on the memory speeds, on the arithmetic and on the fixed costs.
const STARTS: [[f64; 3]; 4] = [[1.0, 1.0, 1.0], [0.5, 0.3, 5.0], [1.0, 4.0, 0.2], [2.0, 0.1, 20.0]];

/// A machine with fitted parameters.
#[derive(Clone, Copy, Debug)]
pub struct Physical {
    pub machine: LatencyMachine,
    pub parameters: PhysicsParameters,
}

impl Physical {
    /// Fits with several tile sizes from one start, then the best of them from several starts.
    pub fn fit(machine: &LatencyMachine, measured: &[SampleSummary]) -> Result<Self, LatencyError> {
        let from = |tile_rows, factors| {
            let start = PhysicsParameters::start(machine, tile_rows);
            Misfit { machine, measured, start }.descend(&scaled(&start, factors), STEPS)
        };
        let [first, others @ ..] = STARTS;
        let mut found: Vec<(f64, PhysicsParameters)> =
            TILES.into_iter().map(|tile_rows| from(tile_rows, first)).collect::<Result<_, _>>()?;
        let best = |found: &[(f64, PhysicsParameters)]| {
            let best = found.iter().min_by(|one, other| one.0.total_cmp(&other.0));
            best.map(|(_, parameters)| *parameters)
                .ok_or_else(|| LatencyError::Fit("there is no starting point".into()))
        };
        let tile_rows = best(&found)?.tile_rows;
        // The cost has several minima: a descent ends in the one next to its start.
        for factors in others {
            found.push(from(tile_rows, factors)?);
        }
        Ok(Self { machine: *machine, parameters: best(&found)? })
    }

    /// Fits to other points, starting from these parameters.
    pub fn refit(&self, measured: &[SampleSummary]) -> Result<Self, LatencyError> {
        // The pull towards the start must be that of the first fit, or leaving a point out would
        // change more than the point.
        let start = PhysicsParameters::start(&self.machine, self.parameters.tile_rows);
        let misfit = Misfit { machine: &self.machine, measured, start };
        let (_, parameters) = misfit.descend(&self.parameters, REFIT_STEPS)?;
        Ok(Self { machine: self.machine, parameters })
    }

    /// Share of the target's linear layers in the time of a round, from 0 to 1.
    pub fn linear_share(&self, point: &Point) -> f64 {
        physics::linear_share(&self.machine, &self.parameters, point)
    }

    /// Logarithm of a round's time in ms.
    pub fn log_ms(&self, point: &Point) -> f64 {
        physics::round_ms(&self.machine, &self.parameters, point).ln()
    }
}

fn scaled(start: &PhysicsParameters, [memory, arithmetic, fixed]: [f64; 3]) -> PhysicsParameters {
    PhysicsParameters {
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

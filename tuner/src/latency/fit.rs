//! Fits the machine's parameters to timed points.

use super::{
    LatencyError, Machine, Point,
    descent::Misfit,
    physics::{self, Parameters, TILES},
    sample::Summary,
};

/// Starts: factors on the memory speeds, on the arithmetic and on the fixed costs.
const STARTS: [[f64; 3]; 4] = [[1.0, 1.0, 1.0], [0.5, 0.3, 5.0], [1.0, 4.0, 0.2], [2.0, 0.1, 20.0]];

/// A machine with fitted parameters.
#[derive(Clone, Copy, Debug)]
pub struct Physical {
    pub machine: Machine,
    pub parameters: Parameters,
}

impl Physical {
    /// The best of several tile sizes from one start, then of several starts.
    pub fn fit(machine: &Machine, measured: &[Summary]) -> Result<Self, LatencyError> {
        let from = |tile_rows, factors| {
            let start = Parameters::start(machine, tile_rows);
            Misfit { machine, measured, start }.descend(&scaled(&start, factors))
        };
        let less = |one: &(f64, Parameters), other: &(f64, Parameters)| one.0.total_cmp(&other.0);
        let [first, others @ ..] = STARTS;
        let none = || LatencyError::Fit("there is no start".into());
        let best = TILES.into_iter().map(|tile_rows| from(tile_rows, first)).min_by(less).ok_or_else(none)?;
        let tile_rows = best.1.tile_rows;
        let (_, parameters) = others
            .into_iter()
            .map(|factors| from(tile_rows, factors))
            .fold(best, |best, one| if one.0 < best.0 { one } else { best });
        Ok(Self { machine: *machine, parameters })
    }

    /// Fitted to other points, from where this one stands.
    pub fn refit(&self, measured: &[Summary]) -> Self {
        let start = Parameters::start(&self.machine, self.parameters.tile_rows);
        let (_, parameters) = Misfit { machine: &self.machine, measured, start }.descend(&self.parameters);
        Self { machine: self.machine, parameters }
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

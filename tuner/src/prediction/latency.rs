//! Predicts the time of a round, with a model fitted to a few dozen timed points.
//!
//! The time of a round depends on its tree, batch and context, not on its text. [`design`] chooses
//! the points, [`engine::Engine::time_rounds`] times them, and [`RoundModel::fit`] fits a model of
//! the machine ([`physics`]) to them, and a Gaussian process to its residuals (`residual`).
//! [`RoundModel::predict`] says for every point whether it is within the measured range.

pub mod additive;
mod cholesky;
mod cross_validation;
mod descent;
pub mod design;
mod file;
pub mod filling;
mod fit;
pub mod physics;
pub mod prefill;
mod residual;
mod sample;
mod strength;
#[cfg(test)]
mod tests;

use engine::{Engine, EngineError, spec::ModelCost};
use serde::{Deserialize, Serialize};

pub use self::{
    cross_validation::CrossValidation,
    file::FORMAT,
    sample::{Point, Quantity, RoundClock, TimedSample},
};
use self::{
    fit::Physical,
    physics::PhysicsParameters,
    residual::{ResidualPlace, ResidualStrength, Residuals},
};

/// Half-width of a 90% interval in standard deviations.
const NINETY_PERCENT: f64 = 1.645;

/// A context up to this share outside the measured range still counts as inside, since timed rounds
/// lie around the requested context.
const CONTEXT_SLACK: f64 = 0.05;

/// Up to this many rows the CUDA backend uses kernels for few rows, which stream the weights
/// (docs/notes/cuda.md). Rounds are predicted better with 32 than with 8, 16, 64 or 128
/// (docs/notes/tuner.md).
const STREAMED_ROWS: usize = 32;

/// What is known about a machine and its models before anything is timed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyMachine {
    /// Bytes and operations of passes, from [`engine::Engine::cost`].
    pub cost: ModelCost,
    /// Memory bandwidth of the device in bytes per second, from
    /// [`engine::Engine::measure_bandwidth`].
    pub bandwidth: f64,
    /// Up to this many rows, linear layers use a kernel for few rows. The model has separate
    /// efficiencies below and above.
    pub few_rows: usize,
}

/// A fitted model of the round time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundModel {
    format: u32,
    machine: LatencyMachine,
    parameters: PhysicsParameters,
    residuals: Residuals,
    ranges: Vec<Range>,
    /// Share of a place's attention that a place without a request costs ([`filling`]).
    #[serde(default)]
    empty_place: f64,
    /// Leave-one-out errors of the predictions; `None` below three points.
    cross_validation: Option<CrossValidation>,
}

/// The range of a quantity over the measured points.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The quantity.
    pub quantity: Quantity,
    /// The smallest measured value.
    pub min: f64,
    /// The largest measured value.
    pub max: f64,
}

/// A predicted round time.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedTime {
    /// The time in ms.
    pub ms: f64,
    /// Lower end of the 90% interval for a measurement, in ms.
    pub low: f64,
    /// Upper end of the same interval, in ms.
    pub high: f64,
    /// Whether it is inside the measured range.
    pub kind: PrefillKind,
}

/// Whether a prediction is inside the measured range.
#[derive(Clone, Debug, PartialEq)]
pub enum PrefillKind {
    /// Inside in every quantity.
    Interpolated,
    /// Outside in these quantities: nothing near it was timed.
    Extrapolated(Vec<Beyond>),
}

/// A quantity outside the measured range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beyond {
    /// Its value at the predicted point.
    pub value: f64,
    /// The measured range.
    pub measured: Range,
}

/// Why a model could not be fitted or read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LatencyError {
    /// No points to fit.
    #[error("no round was timed: a model of the round time needs at least one point")]
    NoPoint,
    /// An invalid point.
    #[error("timed point {number} ({point}): {reason}")]
    Point {
        /// Its number, from one.
        number: usize,
        /// The point.
        point: Point,
        /// What is wrong with it.
        reason: String,
    },
    /// Invalid figures of the machine.
    #[error("machine: {0}")]
    Machine(String),
    /// The numbers do not allow a fit.
    #[error("the model of the round time could not be fitted: {0}")]
    Fit(String),
    /// A file that does not contain a valid model.
    #[error("model of the round time: {0}")]
    File(String),
}

impl RoundModel {
    /// Fits a model to timed points. Equal points result in an equal model. Rounds in partly filled
    /// graphs tell only what an empty place costs.
    ///
    /// # Errors
    /// Without points, with non-positive times or contexts, or with invalid shapes.
    pub fn fit(machine: LatencyMachine, samples: &[TimedSample]) -> Result<Self, LatencyError> {
        machine.check()?;
        let (full, partly_filled): (Vec<_>, Vec<_>) = samples.iter().partition(|sample| sample.empty == 0);
        let measured = sample::summaries(&full)?;
        let physical = Physical::fit(&machine, &measured)?;
        // Refits start from the fitted parameters, so leaving each point out once stays cheap.
        let left_out = cross_validation::refits(&physical, &measured)?;
        let mut residuals =
            Residuals::new(&physical, &measured, ResidualStrength::from_physical(&physical, &measured))?;
        let cross_validation = cross_validation::validate(&measured, &left_out, &mut residuals)?;
        let mut model = Self {
            format: FORMAT,
            machine,
            parameters: physical.parameters,
            residuals,
            ranges: sample::ranges(&measured),
            empty_place: 0.0,
            cross_validation,
        };
        model.fit_empty_place(&partly_filled);
        Ok(model)
    }

    /// The time of a round, its uncertainty, and whether it is inside the measured range.
    pub fn predict(&self, point: &Point) -> PredictedTime {
        let (mean, deviation) = self.residuals.at(&self.place(point));
        let ms = self.physical_ms(point) * mean.exp();
        let factor = (NINETY_PERCENT * deviation).exp();
        PredictedTime { ms, low: ms / factor, high: ms * factor, kind: self.kind(point) }
    }

    /// The time of a round in ms without the uncertainty, for loops over many rounds.
    /// [`kind`](Self::kind) says whether it is extrapolated.
    pub fn ms(&self, point: &Point) -> f64 {
        self.physical_ms(point) * self.residuals.mean(&self.place(point)).exp()
    }

    /// Whether a point is inside the measured range.
    pub fn kind(&self, point: &Point) -> PrefillKind {
        let outside = |measured: &Range| {
            let value = point.quantity(measured.quantity);
            let slack = if measured.quantity == Quantity::Context { 1.0 + CONTEXT_SLACK } else { 1.0 };
            let inside = value * slack >= measured.min && value <= measured.max * slack;
            (!inside).then_some(Beyond { value, measured: *measured })
        };
        let beyond: Vec<Beyond> = self.ranges.iter().filter_map(outside).collect();
        if beyond.is_empty() { PrefillKind::Interpolated } else { PrefillKind::Extrapolated(beyond) }
    }

    /// The fitted parameters.
    pub fn parameters(&self) -> &PhysicsParameters {
        &self.parameters
    }

    /// Leave-one-out errors of the predictions; `None` below three points.
    pub fn cross_validation(&self) -> Option<&CrossValidation> {
        self.cross_validation.as_ref()
    }

    /// The measured range of each quantity.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// The machine that the model was fitted for.
    pub fn machine(&self) -> &LatencyMachine {
        &self.machine
    }

    fn physical_ms(&self, point: &Point) -> f64 {
        physics::round_ms(&self.machine, &self.parameters, point)
    }

    fn place(&self, point: &Point) -> ResidualPlace {
        ResidualPlace::new(&Physical { machine: self.machine, parameters: self.parameters }, point)
    }
}

impl LatencyMachine {
    /// The figures of a loaded engine's machine. Measures its memory bandwidth.
    ///
    /// # Errors
    /// When the device fails.
    pub fn from_engine(engine: &Engine) -> Result<Self, EngineError> {
        let few_rows = match (engine.device().device.as_str(), engine.options().batch_invariant) {
            // The CPU reference and batch-invariant mode have one implementation for all numbers of
            // rows.
            ("cpu", _) | (_, true) => usize::MAX,
            _ => STREAMED_ROWS,
        };
        Ok(Self { cost: engine.cost(), bandwidth: engine.measure_bandwidth()?, few_rows })
    }

    fn check(&self) -> Result<(), LatencyError> {
        if self.bandwidth.is_finite() && self.bandwidth > 0.0 {
            return Ok(());
        }
        Err(LatencyError::Machine(format!("bandwidth is {}: expected bytes per second above 0", self.bandwidth)))
    }
}

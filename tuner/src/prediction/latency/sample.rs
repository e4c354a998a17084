//! Timed points: the input of a fit.

use std::fmt;

use engine::{backend, spec::ModelCost, timing::RoundTimes};
use schemas::tree::{NodeSource, TreeShape};
use serde::{Deserialize, Serialize};

use super::{LatencyError, Range, filling::Filling};
use crate::statistics::median;

/// Share of the rounds that is dropped at either end of the sorted times: a momentarily busy host
/// says nothing about a round.
const OUTLIERS: f64 = 0.1;

/// Number of consecutive parts of the rounds whose differences give the uncertainty of the mean.
const PARTS: usize = 4;

/// Smallest relative uncertainty of a point's time: timers and clock frequencies are not more
/// exact.
const LEAST_NOISE: f64 = 0.002;

/// What the time of a round depends on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The tree shape.
    pub shape: TreeShape,
    /// Requests of the round: those of a full graph, or the places of a partly filled one.
    pub batch: usize,
    /// Tokens of each request in the cache, on average over the batch.
    pub context: f64,
}

/// A timed point.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedSample {
    /// The point; its context is that of each request.
    pub point: Point,
    /// Places of the graph without a request.
    pub empty: usize,
    /// The times of its rounds in ms, in the order in which they ran.
    pub ms: Vec<f64>,
}

/// Which time of a round to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundClock {
    /// The device's work only.
    Device,
    /// From one round to the next, including the host's work: the time that counts for a workload.
    Wall,
}

/// A quantity whose measured range is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Number of requests.
    Batch,
    /// Number of rows that the target verifies.
    VerifiedRows,
    /// Number of rows in a draft pass.
    DraftRows,
    /// Number of draft steps.
    Steps,
    /// Tokens of a request.
    Context,
}

/// A point with the combined time of its rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SampleSummary {
    pub point: Point,
    /// Logarithm of the time in ms.
    pub log_ms: f64,
    /// Standard deviation of that logarithm.
    pub noise: f64,
}

impl Point {
    /// Rows that the target verifies in a round.
    pub fn verified_rows(&self) -> usize {
        self.shape.verified_rows(self.batch)
    }

    /// Rows of the target's passes in a round: one pass, or two if the first skips some nodes.
    pub(super) fn target_passes(&self, cost: &ModelCost) -> (usize, Option<usize>) {
        backend::target_passes(self.shape, self.batch, cost)
    }

    /// Rows of each draft pass of a round; 0 without speculation.
    pub fn draft_rows(&self) -> usize {
        if self.shape.is_off() { 0 } else { self.batch.saturating_mul(self.shape.topk) }
    }

    /// The value of a quantity.
    pub fn quantity(&self, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::Batch => self.batch as f64,
            Quantity::VerifiedRows => self.verified_rows() as f64,
            Quantity::DraftRows => self.draft_rows() as f64,
            Quantity::Steps => self.shape.num_steps as f64,
            Quantity::Context => self.context,
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "({}) at batch {} and {:.0} tokens", self.shape, self.batch, self.context)
    }
}

impl Quantity {
    /// All quantities.
    pub const ALL: [Self; 5] = [Self::Batch, Self::VerifiedRows, Self::DraftRows, Self::Steps, Self::Context];
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Batch => "batch",
            Self::VerifiedRows => "rows verified",
            Self::DraftRows => "rows of a draft pass",
            Self::Steps => "draft steps",
            Self::Context => "context",
        })
    }
}

impl TimedSample {
    /// The rounds of a point that the engine timed.
    pub fn from_times(times: &RoundTimes, clock: RoundClock) -> Self {
        let milliseconds = |duration: &std::time::Duration| duration.as_secs_f64() * 1e3;
        Self {
            point: Point {
                shape: times.point.shape,
                batch: times.point.batch + times.point.empty,
                context: times.context,
            },
            empty: times.point.empty,
            ms: match clock {
                RoundClock::Device => times.device.iter().map(|timing| milliseconds(&timing.total)).collect(),
                RoundClock::Wall => times.wall.iter().map(milliseconds).collect(),
            },
        }
    }

    /// A timed point of a graph whose places all held a request.
    pub fn full(point: Point, ms: Vec<f64>) -> Self {
        Self { point, empty: 0, ms }
    }

    /// Its requests in their graph.
    pub fn filling(&self) -> Filling {
        let Point { batch: places, context, .. } = self.point;
        Filling { places, requests: places.saturating_sub(self.empty) as f64, context }
    }

    /// Mean time in ms without the fastest and the slowest tenth of the rounds; `None` without
    /// rounds. A mean, not a median: a device at its power limit alternates between faster and
    /// slower, and a workload sees the mean of both.
    pub fn mean_ms(&self) -> Option<f64> {
        let mut sorted = self.ms.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let left_out = (sorted.len() as f64 * OUTLIERS).round() as usize;
        // A trimmed mean: stalls only lengthen rounds, but clocks also speed up for a while.
        let kept = sorted.get(left_out..sorted.len() - left_out)?;
        (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
    }

    /// Standard deviation of the logarithm of the mean. Consecutive rounds are correlated if the
    /// device's clock frequency fluctuates, so the spread of single rounds would underestimate it;
    /// the spread of parts does not.
    fn noise(&self) -> f64 {
        // Rounds that follow each other share drifts, so their scatter alone would be too small.
        let parts = self.ms.chunks(self.ms.len().div_ceil(PARTS).max(1));
        let logs: Vec<f64> = parts.filter_map(|part| median(part.to_vec())).map(f64::ln).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        (variance / count).sqrt().max(LEAST_NOISE)
    }

    fn summary(&self, number: usize) -> Result<SampleSummary, LatencyError> {
        let Self { point, ms, .. } = self;
        let wrong = |reason: String| Err(LatencyError::Point { number, point: *point, reason });
        if let Err(error) = NodeSource::check_any(point.shape) {
            return wrong(error.to_string());
        }
        if point.batch == 0 || !point.context.is_finite() || point.context < 0.0 {
            return wrong("expected a batch of at least 1 and a context of at least 0".into());
        }
        if let Some(time) = ms.iter().find(|time| !(time.is_finite() && **time > 0.0)) {
            return wrong(format!("a round took {time} ms: expected a number above 0"));
        }
        let Some(mean_ms) = self.mean_ms() else {
            return wrong("it has no round".into());
        };
        Ok(SampleSummary { point: *point, log_ms: mean_ms.ln(), noise: self.noise() })
    }
}

/// The points with their mean times.
pub(super) fn summaries(samples: &[&TimedSample]) -> Result<Vec<SampleSummary>, LatencyError> {
    if samples.is_empty() {
        return Err(LatencyError::NoPoint);
    }
    (1..).zip(samples).map(|(number, sample)| sample.summary(number)).collect()
}

/// The range of each quantity over the points.
pub(super) fn ranges(measured: &[SampleSummary]) -> Vec<Range> {
    let range = |quantity| {
        let values = || measured.iter().map(|one| one.point.quantity(quantity));
        Range { quantity, min: values().fold(f64::INFINITY, f64::min), max: values().fold(0.0, f64::max) }
    };
    Quantity::ALL.into_iter().map(range).collect()
}

//! Timed rounds, stored as a JSON file.

use std::{collections::BTreeMap, error::Error, fs, path::Path, time::Duration};

use engine::timing::{RoundTimes, TimingPoint};
use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};
use tuner::prediction::latency::{LatencyMachine, Point, TimedSample};

/// All timed points of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The inputs of the model that are known without timing.
    pub machine: LatencyMachine,
    /// The points to which the model is fitted.
    pub designed: Vec<Timed>,
    /// The points that each seed holds out.
    pub held_out: BTreeMap<u64, Vec<Timed>>,
    /// The designed points, timed again at the end.
    pub designed_again: Vec<Timed>,
}

/// The rounds of a point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timed {
    shape: TreeShape,
    batch: usize,
    /// The requested context.
    #[serde(rename = "asked")]
    requested: usize,
    /// Mean context of the timed rounds.
    context: f64,
    /// End of the group of points with this batch and context, in seconds since the start of the
    /// run.
    pub at_s: f64,
    /// Time from one round to the next, in ms.
    wall_ms: Vec<f64>,
    /// Time of the device's work only, in ms.
    device_ms: Vec<f64>,
}

impl Measured {
    /// Reads a file written by [`write`](Self::write).
    pub fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
    }

    /// Writes it as JSON.
    pub fn write(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        Ok(fs::write(path, serde_json::to_string(self)?)?)
    }

    /// All points, each once.
    pub fn every_point(&self) -> BTreeMap<TimingPoint, &Timed> {
        let all = self.designed.iter().chain(self.held_out.values().flatten());
        all.map(|timed| (timed.requested(), timed)).collect()
    }
}

impl Timed {
    /// The engine's times of a point that was done at `at_s`.
    pub fn new(times: &RoundTimes, at_s: f64) -> Self {
        // Rounded to tenths of µs, the resolution of the clocks.
        let ms = |duration: Duration| (duration.as_secs_f64() * 1e7).round() / 1e4;
        let TimingPoint { shape, batch, context: requested, .. } = times.point;
        Self {
            shape,
            batch,
            requested,
            context: times.context,
            at_s,
            wall_ms: times.wall.iter().copied().map(ms).collect(),
            device_ms: times.device.iter().map(|timing| ms(timing.total)).collect(),
        }
    }

    /// The point as requested, with the requested context.
    pub fn requested(&self) -> TimingPoint {
        TimingPoint::full(self.shape, self.batch, self.requested)
    }

    /// The sample to which a model is fitted.
    pub fn sample(&self) -> TimedSample {
        TimedSample::full(self.point(), self.wall_ms.clone())
    }

    pub fn point(&self) -> Point {
        Point { shape: self.shape, batch: self.batch, context: self.context }
    }

    /// Mean time of a round, the host's work included.
    pub fn ms(&self) -> Result<f64, Box<dyn Error>> {
        self.sample().mean_ms().ok_or_else(|| "a point without rounds".into())
    }

    /// Mean time of the device's work.
    pub fn device_ms(&self) -> Result<f64, Box<dyn Error>> {
        let device = TimedSample { ms: self.device_ms.clone(), ..self.sample() };
        device.mean_ms().ok_or_else(|| "a point without rounds".into())
    }
}

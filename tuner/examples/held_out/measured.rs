//! What was timed, as a file.

use std::{collections::BTreeMap, error::Error, fs, path::Path, time::Duration};

use engine::timing::{RoundTimes, TimingPoint};
use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};
use tuner::latency::{Machine, Point, Sample};

/// All that one run has timed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// What was known before.
    pub machine: Machine,
    /// The points that are fitted.
    pub designed: Vec<Timed>,
    /// The points that each seed holds out.
    pub held_out: BTreeMap<u64, Vec<Timed>>,
    /// The designed points once more, at the end.
    pub designed_again: Vec<Timed>,
}

/// The rounds of a point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timed {
    shape: TreeShape,
    batch: usize,
    /// The context that was asked for.
    asked: usize,
    /// Mean context of the timed rounds.
    context: f64,
    /// When the points of its batch and context were done, in s since the first of all began.
    pub at_s: f64,
    /// From one round to the next, in ms.
    wall_ms: Vec<f64>,
    /// The device's work alone, in ms.
    device_ms: Vec<f64>,
}

impl Measured {
    /// From a file that [`write`](Self::write) has left.
    pub fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
    }

    /// As JSON.
    pub fn write(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        Ok(fs::write(path, serde_json::to_string(self)?)?)
    }

    /// All points, each once.
    pub fn every_point(&self) -> BTreeMap<TimingPoint, &Timed> {
        let all = self.designed.iter().chain(self.held_out.values().flatten());
        all.map(|timed| (timed.asked(), timed)).collect()
    }
}

impl Timed {
    /// What the engine has timed by `at_s`.
    pub fn new(times: &RoundTimes, at_s: f64) -> Self {
        // Tenths of µs: clocks tell no more.
        let ms = |duration: Duration| (duration.as_secs_f64() * 1e7).round() / 1e4;
        let TimingPoint { shape, batch, context: asked } = times.point;
        Self {
            shape,
            batch,
            asked,
            context: times.context,
            at_s,
            wall_ms: times.wall.iter().copied().map(ms).collect(),
            device_ms: times.device.iter().map(|timing| ms(timing.total)).collect(),
        }
    }

    /// The requested file or URL.
    pub fn asked(&self) -> TimingPoint {
        TimingPoint { context: self.asked, batch: self.batch, shape: self.shape }
    }

    /// What is fitted.
    pub fn sample(&self) -> Sample {
        Sample { point: self.point(), ms: self.wall_ms.clone() }
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
        let device = Sample { ms: self.device_ms.clone(), ..self.sample() };
        device.mean_ms().ok_or_else(|| "a point without rounds".into())
    }
}

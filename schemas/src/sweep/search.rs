//! The search strategy and the objective.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::within;
use crate::toml_file::FieldError;

/// Largest number of repeats that make up for excluded trials.
const MOST_REMEASURED: usize = 100;

/// The search strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// The strategy.
    pub strategy: StrategyName,
    /// Repeats of each configuration under each load. `guided` adds repeats where the ranking is
    /// undecided.
    pub repeats: usize,
    /// When repeats end. `decided` goes on after `repeats` until it is decided whether speculation
    /// pays and which configuration is chosen, or until `trials` or `seconds` are used up.
    pub until: Until,
    /// How many more repeats make up for trials that are excluded because something disturbed them;
    /// 0 for none.
    pub remeasure: usize,
    /// Servers, with a fixed number of repeats: measure a configuration that beats no speculation
    /// once more in a second start, with as many repeats. What differs from start to start cannot
    /// be seen within one.
    pub confirm: bool,
    /// Stop after this many trials.
    pub trials: Option<usize>,
    /// Start no trial after this many seconds; a resumed sweep counts from its own start. On
    /// servers it counts from the first one that is ready, and a later start or a trial that has
    /// not ended by then is cut off.
    pub seconds: Option<f64>,
    /// `guided`: minimum number of the best predicted configurations that are measured under each
    /// load.
    pub candidates: usize,
    /// Seed of the search.
    pub seed: u64,
}

/// When repeats end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// After the number of repeats.
    #[default]
    Repeats,
    /// When every open comparison is decided, or more repeats cannot decide it. Intervals then hold
    /// at every look.
    Decided,
}

/// A search strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StrategyName {
    /// Every shape.
    #[default]
    Grid,
    /// Shapes in random order, for a budget that does not reach all of them.
    Random,
    /// Simulated annealing over the space, for a budget that does not reach all of it.
    Anneal,
    /// Predict the space from one replay and a few dozen timed rounds, and measure the best
    /// predicted configurations.
    Guided,
}

/// What to optimise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Objective {
    /// The figure that is maximised or minimised.
    pub metric: Metric,
    /// `goodput`: maximum time to the first token of a request, in ms.
    pub ttft_ms: Option<f64>,
    /// `goodput`: maximum mean time between output tokens of a request, in ms.
    pub itl_ms: Option<f64>,
}

/// A figure to optimise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Output tokens per second over all requests; higher is better.
    #[default]
    Throughput,
    /// Median end-to-end time of a request; lower is better.
    Latency,
    /// Output tokens per second of the requests within `ttft_ms` and `itl_ms`; higher is better.
    Goodput,
    /// Throughput against tokens per second per user: configurations that no other one beats on
    /// both axes.
    Pareto,
}

/// CUDA graphs: the list of batch sizes is chosen from the batches that run and the time of their
/// rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Capture {
    /// Maximum number of graphs per tree shape.
    pub graphs: usize,
}

impl Search {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        within(&["search", "repeats"], self.repeats)?;
        within(&["search", "candidates"], self.candidates)?;
        if self.remeasure > MOST_REMEASURED {
            let reason = format!("{} is more than {MOST_REMEASURED}", self.remeasure);
            return Err(FieldError::at(&["search", "remeasure"], reason));
        }
        if self.trials == Some(0) {
            return Err(FieldError::at(&["search", "trials"], "a budget of 0 trials measures nothing"));
        }
        if self.seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds.is_finite())) {
            return Err(FieldError::at(&["search", "seconds"], "expected a number above 0"));
        }
        Ok(())
    }
}

impl Objective {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        for (path, limit) in [(&["objective", "ttft_ms"], self.ttft_ms), (&["objective", "itl_ms"], self.itl_ms)] {
            if limit.is_some_and(|limit| !(limit > 0.0 && limit.is_finite())) {
                return Err(FieldError::at(path, "expected a number above 0"));
            }
            // Refused rather than ignored: the limit would seem to have been kept.
            if limit.is_some() && self.metric != Metric::Goodput {
                return Err(FieldError::at(path, "a limit has no effect unless metric is \"goodput\""));
            }
        }
        if self.metric == Metric::Goodput && self.ttft_ms.is_none() && self.itl_ms.is_none() {
            return Err(FieldError::at(
                &["objective", "metric"],
                "goodput needs a limit: give ttft_ms, itl_ms or both",
            ));
        }
        Ok(())
    }
}

impl Capture {
    pub(super) fn check(self) -> Result<(), FieldError> {
        within(&["capture", "graphs"], self.graphs)
    }
}

impl Metric {
    /// The metric's name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Goodput => "goodput",
            Self::Pareto => "pareto",
        }
    }
}

impl Until {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Repeats, Self::Decided];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Repeats => "repeats",
            Self::Decided => "decided",
        }
    }
}

impl std::str::FromStr for Until {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = Self::ALL;
        all.into_iter().find(|one| one.name() == name).ok_or_else(|| format!("'{name}' is neither repeats nor decided"))
    }
}

impl StrategyName {
    /// The strategy's name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grid => "grid",
            Self::Random => "random",
            Self::Anneal => "anneal",
            Self::Guided => "guided",
        }
    }
}

impl Default for Search {
    fn default() -> Self {
        Self {
            strategy: StrategyName::default(),
            repeats: 3,
            until: Until::default(),
            remeasure: 2,
            confirm: true,
            trials: None,
            seconds: None,
            candidates: 3,
            seed: 0,
        }
    }
}

impl Default for Capture {
    fn default() -> Self {
        Self { graphs: 16 }
    }
}

//! Compares predictions with measurements.

use schemas::sweep::Metric;
use tuner::{
    prediction::guide::{Guide, Prediction},
    results::selection::Interval,
    trials::configuration::TrialLoad,
};

use crate::{race::Race, statistics};

/// The predictions of one load.
pub struct Agreement<'a> {
    /// How requests arrive.
    pub load: TrialLoad,
    /// The compared figure.
    pub figure: ComparedPrediction,
    /// All predictions, best first, with measurements where they exist.
    pub rows: Vec<PredictedGain<'a>>,
}

/// A prediction and its measurement.
pub struct PredictedGain<'a> {
    /// The prediction.
    pub prediction: &'a Prediction,
    /// The predicted figure.
    pub predicted: f64,
    /// The measured figure, if any.
    pub measured: Option<Interval>,
}

/// The figure that is compared: the one that the objective is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedPrediction {
    /// Output tokens per second of all requests.
    Throughput,
    /// Median time of a whole request in ms.
    Latency,
}

/// The predictions of a guide under the load of a race; `None` if there are none.
pub fn compute<'a>(guide: &'a Guide, race: &Race, metric: Metric) -> Option<Agreement<'a>> {
    let figure = match metric {
        Metric::Latency => ComparedPrediction::Latency,
        Metric::Throughput | Metric::Goodput | Metric::Pareto => ComparedPrediction::Throughput,
    };
    let row = |prediction: &'a Prediction| {
        let entry = race.measured().find(|entry| entry.ranked.configuration == prediction.configuration);
        let measured = entry.and_then(|entry| match figure {
            ComparedPrediction::Throughput => entry.ranked.output_tokens_per_s,
            ComparedPrediction::Latency => entry.ranked.latency_ms,
        });
        PredictedGain { prediction, predicted: figure.value_in(prediction), measured }
    };
    let mut rows: Vec<PredictedGain<'a>> =
        guide.predictions.iter().filter(|prediction| prediction.load == race.load).map(row).collect();
    rows.sort_by(|a, b| match figure {
        ComparedPrediction::Throughput => b.predicted.total_cmp(&a.predicted),
        ComparedPrediction::Latency => a.predicted.total_cmp(&b.predicted),
    });
    (!rows.is_empty()).then_some(Agreement { load: race.load, figure, rows })
}

impl Agreement<'_> {
    /// The predictions that have a measurement.
    pub fn pairs(&self) -> impl Iterator<Item = (&PredictedGain<'_>, Interval)> {
        self.rows.iter().filter_map(|row| Some((row, row.measured?)))
    }

    /// Absolute relative errors: the median, and the largest with its row. `None` without a pair.
    pub fn errors(&self) -> Option<(f64, f64, &PredictedGain<'_>)> {
        let sizes = || self.pairs().filter_map(|(row, _)| Some((row.error()?.abs(), row)));
        let median = statistics::median(sizes().map(|(size, _)| size).collect())?;
        let (largest, row) = sizes().max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((median, largest, row))
    }
}

impl PredictedGain<'_> {
    /// Relative error: how far the prediction is above the measurement.
    pub fn error(&self) -> Option<f64> {
        let measured = self.measured.map(|interval| interval.median).filter(|median| *median > 0.0)?;
        Some(self.predicted / measured - 1.0).filter(|error| error.is_finite())
    }
}

impl ComparedPrediction {
    fn value_in(self, prediction: &Prediction) -> f64 {
        match self {
            Self::Throughput => prediction.output_tokens_per_s,
            Self::Latency => prediction.latency_ms,
        }
    }

    /// Its unit and description.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Throughput => ("output tokens/s", "output tokens per second of all requests"),
            Self::Latency => ("ms per request", "median time of a whole request"),
        }
    }
}

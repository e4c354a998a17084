//! Chooses the batch sizes that are worth a graph under each load.

use super::{
    predictions::Predicted,
    rounds::{Timed, graph_sizes},
};
use crate::{
    TunerError,
    prediction::{
        capture::{self, CaptureLimits, Demand},
        guide::{CaptureChoice, CapturePoint, GuideCaptureList},
        latency::Point,
    },
    preparation::Ready,
    trials::configuration::TrialLoad,
};

/// The best list for the best predicted configuration of each load, next to commonly used lists.
/// Empty if rounds run without graphs.
pub fn choose(ready: &mut Ready, predictions: &[Predicted], timed: &Timed) -> Result<Vec<CaptureChoice>, TunerError> {
    let graphs = ready.inputs.file.capture.graphs;
    let loads = ready.experiment.loads.clone();
    let engine = ready.engine()?;
    if graph_sizes(engine).is_empty() {
        return Ok(Vec::new());
    }
    let largest = engine.max_running_requests();
    let best = |load: TrialLoad| {
        let of = predictions.iter().filter(move |one| one.prediction.load == load);
        of.max_by(|a, b| a.prediction.output_tokens_per_s.total_cmp(&b.prediction.output_tokens_per_s))
    };
    loads.into_iter().filter_map(best).map(|best| choice(best, largest, graphs, timed)).collect()
}

fn choice(best: &Predicted, largest: usize, graphs: usize, timed: &Timed) -> Result<CaptureChoice, TunerError> {
    let Predicted { prediction, forecast, context } = best;
    let shape = prediction.configuration.shape;
    let largest = prediction.load.batch_size().unwrap_or(largest).min(largest);
    let round_ms = |batch: usize| Ok(timed.model.ms(&Point { shape, batch, context: *context }));
    let demand = Demand::new(&forecast.batches, largest, round_ms)?;
    let curve = capture::optimize(&demand, &CaptureLimits { graphs, memory: None })?;
    let list = |name: &str, list: &capture::CaptureList| GuideCaptureList {
        name: name.into(),
        sizes: list.sizes.clone(),
        seconds: list.expected_ms / 1e3,
        padding: list.padding_percent / 100.0,
    };
    let mut lists: Vec<GuideCaptureList> = curve.last().map(|best| list("chosen", best)).into_iter().collect();
    lists
        .extend(capture::known_lists(largest).iter().map(|(name, sizes)| list(name, &capture::assess(&demand, sizes))));
    Ok(CaptureChoice {
        configuration: prediction.configuration.clone(),
        load: prediction.load,
        running_batch: forecast.batches.iter().skip(1).map(|rounds| *rounds as f64).collect(),
        lists,
        curve: (1..)
            .zip(&curve)
            .map(|(graphs, list)| CapturePoint { graphs, seconds: list.expected_ms / 1e3 })
            .collect(),
    })
}

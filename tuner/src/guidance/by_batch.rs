//! What each tree does at every running batch: from where to where it is the best.

use super::rounds::Timed;
use crate::{
    TunerError,
    guide::{AcceptanceTable, RoundsByBatch},
    latency::Point,
    sweep::prepare::Ready,
};

/// The predicted round times of all trees of which acceptance is known, no speculation first.
pub fn all(ready: &mut Ready, acceptance: &AcceptanceTable, timed: &Timed) -> Result<Vec<RoundsByBatch>, TunerError> {
    let shapes: Vec<_> = std::iter::once(schemas::tree::TreeShape::OFF).chain(super::shapes(ready)).collect();
    let (engine, workload) = ready.parts()?;
    let graphs = if engine.capture_time().is_some() { engine.options().graph_sizes() } else { Vec::new() };
    let halfway = |request: &engine::Request| {
        request.input_ids.len() as f64 + request.stop.max_new_tokens.unwrap_or_default() as f64 / 2.0
    };
    let context = workload.requests.iter().map(halfway).sum::<f64>() / workload.requests.len().max(1) as f64;
    let padded = |batch: usize| graphs.get(graphs.partition_point(|size| *size < batch)).copied().unwrap_or(batch);
    let largest = engine.max_running_requests();
    let of = |shape| {
        let accept_length = acceptance.length(shape)?;
        let round_ms = |batch| timed.model.ms(&Point { shape, batch: padded(batch), context });
        Some(RoundsByBatch { shape, accept_length, round_ms: (1..=largest).map(round_ms).collect() })
    };
    Ok(shapes.into_iter().filter_map(of).collect())
}

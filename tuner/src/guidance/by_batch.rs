//! For each tree, the range of running batches in which it is predicted to be best.

use engine::options::padded;

use super::rounds::{self, Timed};
use crate::{
    TunerError,
    prediction::{
        guide::{AcceptanceTable, RoundsByBatch},
        latency::Point,
    },
    preparation::Ready,
    workload::context,
};

/// The predicted round times of all trees with known acceptance, no speculation first.
pub fn all(ready: &mut Ready, acceptance: &AcceptanceTable, timed: &Timed) -> Result<Vec<RoundsByBatch>, TunerError> {
    let shapes: Vec<_> = std::iter::once(schemas::tree::TreeShape::OFF).chain(super::shapes(ready)).collect();
    let (engine, workload) = ready.parts()?;
    let graphs = rounds::graph_sizes(engine);
    let context = context::mean_halfway(workload.requests.iter().map(context::requested));
    let largest = engine.max_running_requests();
    let of = |shape| {
        let accept_length = acceptance.length(shape)?;
        let round_ms = |batch| timed.model.ms(&Point { shape, batch: padded(&graphs, batch), context });
        Some(RoundsByBatch { shape, accept_length, round_ms: (1..=largest).map(round_ms).collect() })
    };
    Ok(shapes.into_iter().filter_map(of).collect())
}

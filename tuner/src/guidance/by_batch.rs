//! For each tree, the range of running batches in which it is predicted to be best.

use engine::options::padded;
use schemas::tree::TreeShape;

use super::{
    Replayed,
    rounds::{self, Timed},
};
use crate::{
    TunerError,
    prediction::{
        guide::{AcceptanceTable, RoundsByBatch},
        latency::filling::Filling,
    },
    preparation::Ready,
    trials::configuration::TrialLoad,
    workload::context,
};

/// The predicted round times of all trees with known acceptance, no speculation first, in each
/// context bucket of the loads.
pub fn all(
    ready: &mut Ready,
    acceptance: &AcceptanceTable,
    replayed: Option<&Replayed>,
    timed: &Timed,
) -> Result<Vec<RoundsByBatch>, TunerError> {
    let shapes: Vec<_> = std::iter::once(TreeShape::OFF).chain(super::shapes(ready)).collect();
    // One load of each bucket.
    let mut loads: Vec<TrialLoad> = ready.experiment.loads.clone();
    loads.sort_by_key(|load| load.contexts());
    loads.dedup_by_key(|load| load.contexts());
    let (engine, workload) = ready.parts()?;
    let graphs = rounds::graph_sizes(engine);
    let largest = engine.max_running_requests();
    let mut all = Vec::new();
    for load in loads {
        let places = workload.places_of(load);
        let context = context::mean_halfway(places.iter().map(|at| context::requested(&workload.requests[*at])));
        let of = |shape: &TreeShape| {
            let whole = acceptance.length(*shape)?;
            let own = load.contexts().and(replayed).and_then(|replayed| replayed.length_over(*shape, &places));
            let round_ms = |batch| {
                let filling = Filling { places: padded(&graphs, batch), requests: batch as f64, context };
                timed.model.filled_ms(*shape, filling)
            };
            Some(RoundsByBatch {
                contexts: load.contexts(),
                shape: *shape,
                accept_length: own.unwrap_or(whole),
                round_ms: (1..=largest).map(round_ms).collect(),
            })
        };
        all.extend(shapes.iter().filter_map(of));
    }
    Ok(all)
}

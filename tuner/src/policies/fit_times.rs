//! Times rounds and prefills of an engine at designed points, and fits the models with which
//! [`forecast`](crate::forecast) simulates policies on this machine.

use engine::{Engine, options::padded, timing::TimingPoint};

use crate::{
    TunerError,
    forecast::times::{FittedTimes, TimedPlaces},
    prediction::latency::{
        LatencyError, LatencyMachine, RoundClock, RoundModel, TimedSample,
        design::{self, DesignSpace},
        prefill::PrefillModels,
    },
};

/// Timed rounds per point.
const ROUNDS: usize = 15;

/// Times at most `points` points of a space, and fits models to them. `progress` receives the
/// number of timed points and of all.
///
/// # Errors
/// When a point does not fit the engine, the device fails, or the times allow no fit.
pub fn run(
    engine: &mut Engine,
    timed: TimedPlaces,
    points: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<FittedTimes, TunerError> {
    let unfit = |error: LatencyError| TunerError::Configuration(error.to_string());
    let capacity = engine.capacity();
    let graphs = engine.options().graph_sizes();
    let space = DesignSpace {
        shapes: timed.shapes.clone(),
        batches: timed.batches.iter().map(|batch| padded(&graphs, *batch)).collect(),
        contexts: timed.contexts.clone(),
        cache_tokens: Some(capacity.pages * capacity.page_size),
    };
    let mut design = design::design(&space, points.max(1));
    // Points of one batch and context share their prompts.
    design.sort_unstable();
    let mut times = Vec::new();
    for group in design.chunk_by(|a, b| (a.context, a.batch) == (b.context, b.batch)) {
        progress(times.len(), design.len());
        let room = capacity.context_length.saturating_sub(4 * ROUNDS).max(1);
        let group: Vec<TimingPoint> =
            group.iter().map(|point| TimingPoint { context: point.context.min(room), ..*point }).collect();
        times.extend(engine.time_rounds(&group, ROUNDS)?);
    }
    let samples: Vec<TimedSample> =
        times.iter().map(|times| TimedSample::from_times(times, RoundClock::Wall)).collect();
    let model = RoundModel::fit(LatencyMachine::from_engine(engine)?, &samples).map_err(unfit)?;
    let prefills: Vec<_> = times.iter().filter_map(|times| times.prefill).collect();
    let prefill = PrefillModels::fit(&prefills).map_err(unfit)?;
    let device = engine.device();
    let source = format!(
        "{} rounds timed on {} ({}) with {}",
        samples.iter().map(|sample| sample.ms.len()).sum::<usize>(),
        device.device,
        device.name,
        engine::NAME_AND_VERSION
    );
    FittedTimes::new(source, timed, model, [prefill.both, prefill.target])
}

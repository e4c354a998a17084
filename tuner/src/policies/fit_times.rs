//! Times rounds and prefills of an engine at designed points, and fits the models with which
//! [`forecast`](crate::forecast) simulates policies on this machine.

use engine::{
    Engine,
    options::padded,
    timing::{PrefillPoint, TimingPoint},
};
use schemas::model::DraftKind;

use crate::{
    TunerError,
    forecast::times::{FittedTimes, TimedPlaces},
    prediction::latency::{
        LatencyError, LatencyMachine, RoundClock, RoundModel, TimedSample,
        design::{self, DesignSpace},
        filling::partly_filled,
        prefill::PrefillModels,
    },
};

/// Timed rounds per point.
const ROUNDS: usize = 15;
/// Timed prefills per point.
const PREFILLS: usize = 3;
/// The shortest timed prompt in tokens; each further one is this many times as long.
const SHORTEST: usize = 16;
const LONGER: usize = 4;

/// Times at most `points` points of a space, and a few partly filled graphs beside them, and fits
/// models to them. `progress` receives the number of timed points and of all.
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
    if engine.capture_time().is_some() {
        design.extend(partly_filled(&design));
    }
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
    let mut prefills: Vec<_> = times.iter().filter_map(|times| times.prefill).collect();
    prefills.extend(engine.time_prefills(&prefill_points(engine, &timed), PREFILLS)?);
    let prefill = PrefillModels::fit(&prefills).map_err(unfit)?;
    let device = engine.device();
    let source = format!(
        "{} rounds timed on {} ({}) with {}",
        samples.iter().map(|sample| sample.ms.len()).sum::<usize>(),
        device.device,
        device.name,
        engine::NAME_AND_VERSION
    );
    let draft = engine.draft_algorithm().and_then(DraftKind::from_algorithm);
    Ok(FittedTimes::new(source, timed, model, [prefill.both, prefill.target])?.with_draft(draft))
}

/// Prompts of designed lengths, alone and as many as fill a step: rounds are timed with batches of
/// prompts of few lengths, which does not tell what a single prompt, a long one or a short one
/// costs.
fn prefill_points(engine: &Engine, timed: &TimedPlaces) -> Vec<PrefillPoint> {
    let budget = engine.options().chunked_prefill_size;
    let longest = timed.contexts.iter().copied().max().unwrap_or_default().max(budget);
    // The engine adds the tree of a round to what a request may fill.
    let nodes = timed.shapes.iter().map(|shape| shape.num_draft_tokens).max().unwrap_or(1);
    let room = engine.capacity().context_length.saturating_sub(2 * nodes + 1).max(1);
    let mut lengths: Vec<usize> = std::iter::successors(Some(SHORTEST), |length| Some(length * LONGER))
        .take_while(|one| *one < longest)
        .collect();
    lengths.extend(timed.contexts.iter().copied().chain([budget]));
    lengths.iter_mut().for_each(|length| *length = (*length).min(room));
    lengths.sort_unstable();
    lengths.dedup();
    let largest = timed.shapes.iter().copied().filter(|shape| !shape.is_off()).max_by_key(|one| one.num_draft_tokens);
    let off = timed.shapes.iter().copied().find(|shape| shape.is_off());
    let of_length = |length: usize| {
        let full = (budget / length).clamp(1, engine.max_running_requests());
        let mut counts = vec![1, full];
        counts.dedup();
        counts.into_iter().map(move |prompts| (length, prompts))
    };
    let shapes: Vec<_> = largest.into_iter().chain(off).collect();
    let of_shape = |shape| {
        let places = lengths.iter().copied().flat_map(of_length);
        places.map(move |(length, prompts)| PrefillPoint { length, prompts, shape }).collect::<Vec<_>>()
    };
    shapes.into_iter().flat_map(of_shape).collect()
}

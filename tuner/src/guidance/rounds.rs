//! Times rounds at designed points, and fits the model of round times.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use engine::{
    Engine,
    options::padded,
    timing::{RoundTimes, TimingPoint},
};

use crate::{
    TunerError,
    prediction::{
        guide::{AcceptanceTable, FittedParameter, GuideErrors, RoundTimeSummary, TimedPoint},
        latency::{
            LatencyError, LatencyMachine, Point, RoundClock, RoundModel, TimedSample,
            design::{self, MOST_POINTS},
            filling::partly_filled,
            prefill::PrefillModels,
        },
    },
    preparation::{Ready, context::SweepContext, request::SweepProgress},
    workload::{LoadedWorkload, context},
};

/// Timed rounds per point.
const ROUNDS: usize = 15;

/// Minimum number of points to time, if the space has this many.
const FEWEST_POINTS: usize = 36;

/// More points are timed as long as this takes less than this share of the time to measure the
/// whole space: it must stay small compared with what predictions save.
const WORTH: f64 = 0.02;

/// The models fitted to the timed rounds.
pub struct Timed {
    pub model: RoundModel,
    pub prefill: PrefillModels,
    pub summary: RoundTimeSummary,
}

/// Times the rounds. `None` if the user stopped the sweep.
pub fn time(context: &mut SweepContext<'_>, acceptance: &AcceptanceTable) -> Result<Option<Timed>, TunerError> {
    let SweepContext { ready, interrupted, progress, .. } = context;
    let shapes = super::shapes(ready).into_iter().filter(|shape| acceptance.length(*shape).is_some()).collect();
    let graphs = graph_sizes(ready.engine()?);
    let batches = batches(ready, &graphs);
    let contexts = contexts(&ready.workload);
    let engine = ready.engine()?;
    let capacity = engine.capacity();
    let space =
        design::DesignSpace { shapes, batches, contexts, cache_tokens: Some(capacity.pages * capacity.page_size) };
    let begin = Instant::now();
    let design = design::design(&space, MOST_POINTS);
    let (few, others) = design.split_at(FEWEST_POINTS.min(design.len()));
    let empty_places = if graphs.is_empty() { Vec::new() } else { partly_filled(few) };
    let points = in_order(&[few, &empty_places].concat());
    progress.preparing("rounds of a designed set of shapes, timed", points.len());
    let Some(mut times) = time_points(engine, &points, interrupted, *progress)? else { return Ok(None) };
    let machine = LatencyMachine::from_engine(engine)?;
    let first = RoundModel::fit(machine, &samples(&times)).map_err(unfit)?;
    let each = begin.elapsed().as_secs_f64() / points.len().max(1) as f64;
    let most = (WORTH * exhaustive_s(&first, ready, &space, acceptance) / each) as usize;
    let more = in_order(&others[..most.saturating_sub(points.len()).min(others.len())]);
    if !more.is_empty() {
        progress.preparing("further rounds, since the space is large", more.len());
        let Some(others) = time_points(ready.engine()?, &more, interrupted, *progress)? else { return Ok(None) };
        times.extend(others);
    }
    let samples = samples(&times);
    let model = if more.is_empty() { first } else { RoundModel::fit(machine, &samples).map_err(unfit)? };
    let prefills: Vec<_> = times.iter().filter_map(|times| times.prefill).collect();
    let prefill = PrefillModels::fit(&prefills).map_err(unfit)?;
    let summary = summary(&model, prefill, &samples);
    Ok(Some(Timed { model, prefill, summary }))
}

/// Sorts the points so that those of one context and batch are adjacent, and their prompts are
/// prefilled once.
fn in_order(points: &[TimingPoint]) -> Vec<TimingPoint> {
    let mut points = points.to_vec();
    points.sort_unstable();
    points
}

/// `None` if the user stopped the sweep.
fn time_points(
    engine: &mut Engine,
    points: &[TimingPoint],
    interrupted: &AtomicBool,
    progress: &mut dyn SweepProgress,
) -> Result<Option<Vec<RoundTimes>>, TunerError> {
    let mut times = Vec::new();
    for group in points.chunk_by(|a, b| (a.context, a.batch) == (b.context, b.batch)) {
        if interrupted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        times.extend(engine.time_rounds(&fitting(group, engine), ROUNDS)?);
        progress.prepared(times.len());
    }
    Ok(Some(times))
}

fn samples(times: &[RoundTimes]) -> Vec<TimedSample> {
    // By the wall clock, by which trials are measured.
    times.iter().map(|times| TimedSample::from_times(times, RoundClock::Wall)).collect()
}

fn unfit(error: LatencyError) -> TunerError {
    TunerError::Configuration(error.to_string())
}

/// Approximate time in s to measure every shape at every load with the requested repeats, without
/// prefill.
fn exhaustive_s(model: &RoundModel, ready: &Ready, space: &design::DesignSpace, acceptance: &AcceptanceTable) -> f64 {
    let each = ready.experiment.loads.iter().flat_map(|load| {
        let sent = ready.workload.sent_under(*load);
        let requested = || sent.iter().map(|at| context::requested(&ready.workload.requests[*at]));
        let tokens: usize = requested().map(|(_, output)| output).sum();
        let context = context::mean_halfway(requested());
        let batch = load.batch_size().unwrap_or(ready.options.max_running_requests);
        space.shapes.iter().map(move |shape| {
            let rounds = tokens as f64 / batch as f64 / acceptance.length(*shape).unwrap_or(1.0).max(1.0);
            rounds * model.ms(&Point { shape: *shape, batch, context }) / 1e3
        })
    });
    each.sum::<f64>() * ready.experiment.repeats as f64
}

/// The points with their contexts limited to what the engine has room for, timed rounds included.
fn fitting(points: &[TimingPoint], engine: &Engine) -> Vec<TimingPoint> {
    let longest = engine.capacity().context_length;
    let within = |point: &TimingPoint| {
        let room = longest.saturating_sub(point.shape.num_draft_tokens + 2 * ROUNDS);
        TimingPoint { context: point.context.min(room.max(1)), ..*point }
    };
    points.iter().map(within).collect()
}

/// The padded batch sizes that run under the loads: the sizes of closed loops and some in between,
/// more of them for open loops, where any batch may run.
fn batches(ready: &Ready, graphs: &[usize]) -> Vec<usize> {
    let closed = ready.experiment.loads.iter().filter_map(|load| load.batch_size());
    let open = ready.experiment.loads.iter().any(|load| load.batch_size().is_none());
    let largest = if open { ready.options.max_running_requests } else { closed.clone().max().unwrap_or(1) };
    let step: usize = if open { 2 } else { 4 };
    let between =
        std::iter::successors(Some(1), |size: &usize| size.checked_mul(step)).take_while(|size| *size < largest);
    let mut all: Vec<usize> = closed.chain(between).chain([largest]).map(|batch| padded(graphs, batch)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Contexts to time: the shortest request halfway through its output, and the longest at its end.
fn contexts(workload: &LoadedWorkload) -> Vec<usize> {
    let requests = || workload.requests.iter().map(context::requested);
    let halfway = |(prompt, output)| context::halfway(prompt, output) as usize;
    let shortest = requests().map(halfway).min().unwrap_or(1);
    let longest = requests().map(|(prompt, output)| prompt.saturating_add(output)).max().unwrap_or(1);
    // Nearly equal contexts do not differ measurably.
    if longest < shortest + shortest / 4 { vec![longest] } else { vec![shortest, longest] }
}

fn summary(model: &RoundModel, prefill: PrefillModels, samples: &[TimedSample]) -> RoundTimeSummary {
    let parameters = model.parameters();
    let parameter =
        |name: &str, value: f64, unit: &str| FittedParameter { name: name.into(), value, unit: unit.into() };
    let validated = model.cross_validation();
    // Left out one by one were those of full graphs.
    let full = samples.iter().filter(|sample| sample.empty == 0);
    let points = full.enumerate().map(|(at, sample)| {
        let left_out = validated.and_then(|validated| validated.left_out_ms.get(at).copied());
        TimedPoint {
            shape: sample.point.shape,
            batch: sample.point.batch,
            context: sample.point.context.round() as usize,
            measured_ms: sample.mean_ms().unwrap_or(f64::NAN),
            left_out_ms: left_out.unwrap_or_else(|| model.ms(&sample.point)),
        }
    });
    RoundTimeSummary {
        parameters: vec![
            parameter("fixed cost of a round", parameters.round_us, "µs"),
            parameter("fixed cost of a draft pass", parameters.draft_pass_us, "µs"),
            parameter("cost of a verified row on top of its arithmetic", parameters.row_us, "µs"),
            parameter("reading weights, few rows", parameters.few_rows_gb_per_s, "GB/s"),
            parameter("reading weights, many rows", parameters.many_rows_gb_per_s, "GB/s"),
            parameter("linear layers, few rows", parameters.few_rows_tflop_per_s, "TFLOP/s"),
            parameter("linear layers, many rows", parameters.many_rows_tflop_per_s, "TFLOP/s"),
            parameter("reading the KV cache", parameters.cache_gb_per_s, "GB/s"),
            parameter("attention over it", parameters.attention_gb_per_s, "GB/s"),
            parameter("the draft's share of the target's speed", parameters.draft_efficiency, ""),
            parameter("rows of a tile", parameters.tile_rows as f64, "rows"),
            parameter("a place without a request, as a share of a place's attention", model.empty_place(), ""),
            parameter("fixed cost of a prefill step", prefill.both.step_ms * 1e3, "µs"),
            parameter("prefill of a token", prefill.both.token_ms * 1e3, "µs"),
            parameter("prefill of a prompt", prefill.both.prompt_ms * 1e3, "µs"),
            parameter("attention of a million pairs of tokens in prefill", prefill.both.pairs_ms * 1e3, "µs"),
            parameter("fixed cost of a prefill step, target alone", prefill.target.step_ms * 1e3, "µs"),
            parameter("prefill of a token, target alone", prefill.target.token_ms * 1e3, "µs"),
            parameter("prefill of a prompt, target alone", prefill.target.prompt_ms * 1e3, "µs"),
            parameter("attention of a million pairs in prefill, target alone", prefill.target.pairs_ms * 1e3, "µs"),
        ],
        error: validated.map_or_else(GuideErrors::default, |one| GuideErrors {
            median: one.median,
            p90: one.p90,
            largest: one.max,
        }),
        points: points.collect(),
    }
}

/// The batch sizes that the engine captures graphs for, ascending; empty if it runs without graphs
/// and batches are not padded.
pub fn graph_sizes(engine: &Engine) -> Vec<usize> {
    if engine.capture_time().is_some() { engine.options().graph_sizes() } else { Vec::new() }
}

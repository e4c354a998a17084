//! How well round times are predicted that were not timed for the model: designed points are timed and fitted, then 30
//! other points of (shape, batch) are predicted and timed. The figures of `docs/notes/tuner.md`.
//!
//! `cargo run --release -p tuner --example held_out DEVICE MODEL_SHAPE|FOLDER [SEED,… [POINTS [any]]]`: each seed
//! holds out 30 points of its own; as many points are fitted as guided search times, unless told otherwise; batches are those that graphs are captured for, as in a sweep,
//! where all others are padded to them; with `any`, every batch up to 64.

use std::{error::Error, path::PathBuf};

use engine::{
    Engine, EngineOptions, ShapePolicy,
    options::LoadFormat,
    timing::{RoundTimes, TimingPoint},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::tree::TreeShape;
use tuner::{
    latency::{
        Clock, Kind, Machine, Point, RoundModel, Sample,
        design::{MOST_POINTS, Space, design},
    },
    statistics::median,
};

/// Rounds of each point.
const ROUNDS: usize = 25;
/// Points that are held out.
const HELD_OUT: usize = 30;
const CONTEXTS: [usize; 2] = [300, 700];
const BATCHES: [usize; 8] = [1, 2, 4, 8, 16, 24, 32, 64];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().unwrap_or_else(|| "auto".into()).parse()?;
    let model = arguments.next().unwrap_or_else(|| "llama-3.1-8b".into());
    let seeds = arguments.next().unwrap_or_else(|| "1".into());
    let seeds: Vec<u64> = seeds.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let points = arguments.next().map_or(Ok(MOST_POINTS), |points| points.parse())?;
    let any = arguments.next().is_some();
    let folder = PathBuf::from(&model);
    let random = !folder.join("target").exists();
    let largest = TreeShape::new(6, 8, 48)?;
    let mut engine = Engine::load(EngineOptions {
        model_path: if random { PathBuf::new() } else { folder.join("target") },
        draft_model_path: (!random).then(|| folder.join("eagle3")),
        load_format: if random { LoadFormat::Dummy } else { LoadFormat::Auto },
        model_shape: random.then_some(model),
        policy: ShapePolicy::fixed(largest),
        device,
        context_length: Some(1024),
        max_running_requests: 64,
        capture_sizes: vec![1],
        ..EngineOptions::default()
    })?;
    let shapes = shapes();
    let space =
        Space { shapes: shapes.clone(), batches: BATCHES.to_vec(), contexts: CONTEXTS.to_vec(), cache_tokens: None };
    let fitted = design(&space, points);
    let timed = engine.time_rounds(&fitted, ROUNDS)?;
    let samples: Vec<Sample> = timed.iter().map(|times| Sample::of(times, Clock::Wall)).collect();
    let model = RoundModel::fit(Machine::of(&engine)?, &samples)?;

    for seed in seeds {
        let held_out = hold_out(seed, &shapes, &fitted, any);
        compare(&model, &engine.time_rounds(&held_out, ROUNDS)?)?;
    }
    println!("left out of the fit: {:?}", model.cross_validation().map(|one| (one.median, one.p90, one.max)));
    println!("{:?}", model.parameters());
    Ok(())
}

/// Points that are not fitted.
fn hold_out(seed: u64, shapes: &[TreeShape], fitted: &[TimingPoint], any: bool) -> Vec<TimingPoint> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut held_out: Vec<TimingPoint> = Vec::new();
    while held_out.len() < HELD_OUT {
        let point = TimingPoint {
            context: CONTEXTS[random.random_range(0..CONTEXTS.len())],
            batch: if any { random.random_range(1..=64) } else { BATCHES[random.random_range(0..BATCHES.len())] },
            shape: shapes[random.random_range(0..shapes.len())],
        };
        if !fitted.contains(&point) && !held_out.contains(&point) {
            held_out.push(point);
        }
    }
    held_out
}

/// Prints what is predicted beside what was measured.
fn compare(model: &RoundModel, times: &[RoundTimes]) -> Result<(), Box<dyn Error>> {
    let mut errors = Vec::new();
    println!("shape     batch context  measured  predicted  error");
    for times in times {
        let sample = Sample::of(times, Clock::Wall);
        let predicted = model.predict(&sample.point);
        let measured = median(sample.ms.clone()).ok_or("a point without rounds")?;
        let error = predicted.ms / measured - 1.0;
        let outside = if predicted.kind == Kind::Interpolated { "" } else { "  extrapolated" };
        let Point { shape, batch, context } = sample.point;
        println!(
            "{:9} {batch:5} {context:7.0} {measured:9.3} {:10.3} {:+5.1}%{outside}",
            shape.to_string(),
            predicted.ms,
            100.0 * error
        );
        errors.push(error.abs());
    }
    errors.sort_by(f64::total_cmp);
    let within = errors.iter().filter(|error| **error <= 0.05).count();
    let at = |share: f64| 100.0 * errors[((errors.len() - 1) as f64 * share).round() as usize];
    println!(
        "held out: {within} of {} within 5%; median {:.1}%, 90% {:.1}%, largest {:.1}%",
        errors.len(),
        at(0.5),
        at(0.9),
        at(1.0)
    );
    Ok(())
}

/// Chains and trees as people run them, and no speculation.
fn shapes() -> Vec<TreeShape> {
    let mut shapes = vec![TreeShape::OFF];
    shapes.extend((1..=7).map(TreeShape::chain));
    for topk in [2, 4, 8] {
        for num_steps in [1, 2, 3, 4, 5, 6] {
            for nodes in [4, 8, 16, 32, 48] {
                shapes.extend(TreeShape::new(num_steps, topk, nodes));
            }
        }
    }
    shapes
}

//! Times the designed points, the held-out ones, and the designed ones again.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    path::{Path, PathBuf},
    time::Instant,
};

use engine::{DeviceChoice, Engine, EngineOptions, ShapePolicy, options::LoadFormat, timing::TimingPoint};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::tree::TreeShape;
use tuner::prediction::latency::{
    LatencyMachine,
    design::{DesignSpace, design},
};

use crate::measured::{Measured, Timed};

/// Rounds of each point, as in guided search.
const ROUNDS: usize = 15;
/// Points that a seed holds out.
const HELD_OUT: usize = 30;
const CONTEXTS: [usize; 2] = [300, 700];
const BATCHES: [usize; 8] = [1, 2, 4, 8, 16, 24, 32, 64];

/// What to time.
pub struct Request {
    pub device: DeviceChoice,
    /// A shape with random weights, or a folder with `target` and `eagle3`.
    pub model: String,
    pub seeds: Vec<u64>,
    /// Points that are fitted.
    pub points: usize,
    /// Whether points of every batch up to 64 are held out.
    pub any: bool,
}

/// Times all points, and writes those timed so far to a file after each part.
pub fn time(request: &Request, file: &Path) -> Result<Measured, Box<dyn Error>> {
    let mut engine = load(request)?;
    let shapes = shapes();
    let space = DesignSpace {
        shapes: shapes.clone(),
        batches: BATCHES.to_vec(),
        contexts: CONTEXTS.to_vec(),
        cache_tokens: None,
    };
    let designed: BTreeSet<TimingPoint> = design(&space, request.points).into_iter().collect();
    let held_out: BTreeMap<u64, Vec<TimingPoint>> =
        request.seeds.iter().map(|seed| (*seed, hold_out(*seed, &shapes, &designed, request.any))).collect();
    // Points that several seeds hold out are timed once, and prompts are prefilled once for all.
    let others: BTreeSet<TimingPoint> = held_out.values().flatten().copied().collect();

    let machine = LatencyMachine::from_engine(&engine)?;
    let begin = Instant::now();
    let mut measured =
        Measured { machine, designed: Vec::new(), held_out: BTreeMap::new(), designed_again: Vec::new() };
    for group in together(&designed) {
        measured.designed.extend(time_group(&mut engine, &group, begin)?);
    }
    measured.write(file)?;
    let mut timed: BTreeMap<TimingPoint, Timed> = BTreeMap::new();
    for group in together(&others) {
        timed.extend(time_group(&mut engine, &group, begin)?.into_iter().map(|one| (one.requested(), one)));
        let of_seed = |points: &Vec<TimingPoint>| points.iter().filter_map(|point| timed.get(point).cloned()).collect();
        measured.held_out = held_out.iter().map(|(seed, points)| (*seed, of_seed(points))).collect();
        measured.write(file)?;
    }
    for group in together(&designed) {
        measured.designed_again.extend(time_group(&mut engine, &group, begin)?);
    }
    measured.write(file)?;
    Ok(measured)
}

fn load(request: &Request) -> Result<Engine, Box<dyn Error>> {
    let folder = PathBuf::from(&request.model);
    let random = !folder.join("target").exists();
    Ok(Engine::load(EngineOptions {
        model_path: if random { PathBuf::new() } else { folder.join("target") },
        draft_model_path: (!random).then(|| folder.join("eagle3")),
        load_format: if random { LoadFormat::Dummy } else { LoadFormat::Auto },
        model_shape: random.then(|| request.model.clone()),
        policy: ShapePolicy::fixed(TreeShape::new(6, 8, 48)?),
        device: request.device,
        context_length: Some(1024),
        max_running_requests: 64,
        capture_sizes: vec![1],
        ..EngineOptions::default()
    })?)
}

/// Groups of points with the same batch and context, as guided search times them.
fn together(points: &BTreeSet<TimingPoint>) -> Vec<Vec<TimingPoint>> {
    let points: Vec<TimingPoint> = points.iter().copied().collect();
    let alike = |one: &TimingPoint, other: &TimingPoint| (one.context, one.batch) == (other.context, other.batch);
    points.chunk_by(alike).map(<[TimingPoint]>::to_vec).collect()
}

fn time_group(engine: &mut Engine, group: &[TimingPoint], begin: Instant) -> Result<Vec<Timed>, Box<dyn Error>> {
    let times = engine.time_rounds(group, ROUNDS)?;
    let at_s = begin.elapsed().as_secs_f64();
    Ok(times.iter().map(|times| Timed::new(times, at_s)).collect())
}

/// Random points that are not fitted.
fn hold_out(seed: u64, shapes: &[TreeShape], fitted: &BTreeSet<TimingPoint>, any: bool) -> Vec<TimingPoint> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut held_out: Vec<TimingPoint> = Vec::new();
    while held_out.len() < HELD_OUT {
        let context = CONTEXTS[random.random_range(0..CONTEXTS.len())];
        let batch = if any { random.random_range(1..=64) } else { BATCHES[random.random_range(0..BATCHES.len())] };
        let point = TimingPoint::full(shapes[random.random_range(0..shapes.len())], batch, context);
        if !fitted.contains(&point) && !held_out.contains(&point) {
            held_out.push(point);
        }
    }
    held_out
}

/// Typical chains and trees, and no speculation.
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

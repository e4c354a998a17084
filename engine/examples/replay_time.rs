//! Times a replay of 8 texts of 128 tokens for 40 tree shapes, a second replay from the kept states
//! of the target, and real rounds of the same shapes; and checks that all count the same. The
//! figures of `docs/notes/tuner.md`.
//!
//! `cargo run --release -p engine --example replay_time [FOLDER [DRAFT [DEVICE]]]`: a folder with
//! `target` and the draft (default: the demo pair on the CPU). On a GPU it runs in batch-invariant
//! mode.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Instant,
};

use engine::{
    DeviceChoice, Engine, EngineError, EngineOptions, KeepStates, ReplayText, Request, SamplingParams, ShapePolicy,
    StopConditions,
};
use schemas::tree::TreeShape;

fn main() -> Result<(), EngineError> {
    let mut arguments = std::env::args().skip(1);
    let demo = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    let models = arguments.next().map_or_else(demo, PathBuf::from);
    let draft = arguments.next().unwrap_or_else(|| "eagle3".into());
    let device: DeviceChoice = arguments.next().map_or(Ok(DeviceChoice::Cpu), |name| name.parse())?;
    let mut engine = Engine::load(EngineOptions {
        model_path: models.join("target"),
        draft_model_path: Some(models.join(draft)),
        device,
        batch_invariant: device != DeviceChoice::Cpu,
        context_length: Some(256),
        max_running_requests: 8,
        ..EngineOptions::default()
    })?;
    let requests: Vec<Request> = (0..8).map(request).collect();
    engine.set_policy(ShapePolicy::fixed(TreeShape::OFF))?;
    let plain = engine.run(requests.clone())?;
    let texts: Vec<ReplayText> =
        requests.iter().zip(&plain).map(|(request, completion)| ReplayText::new(request, completion)).collect();
    let shapes = shapes();

    let path = std::env::temp_dir().join(format!("replay-time-{}-states.bin", std::process::id()));
    let mut replay = || {
        let begin = Instant::now();
        let keep = KeepStates { path: &path, most_bytes: 1 << 30, note: &mut |words| println!("{words}") };
        let replayed = engine.replay_keeping(&texts, &shapes, keep, &mut |_| ControlFlow::Continue(()))?;
        Ok::<_, EngineError>((replayed.unwrap_or_default(), begin.elapsed().as_secs_f64()))
    };
    let (replayed, first) = replay()?;
    let (again, second) = replay()?;
    let states = fs::metadata(&path).map_or(0, |file| file.len());
    fs::remove_file(&path).map_err(|source| EngineError::Read { path, source })?;

    let begin = Instant::now();
    let mut different = 0;
    for (at, shape) in shapes.iter().enumerate() {
        engine.set_policy(ShapePolicy::fixed(*shape))?;
        let counted = engine.run(requests.clone())?;
        let same =
            counted.iter().zip(&replayed).filter(|(run, found)| run.accept_histogram == found[at].accept_histogram);
        different += counted.len() - same.count();
    }
    let runs = begin.elapsed();
    let (runs, count, same) = (runs.as_secs_f64(), shapes.len(), again == replayed);
    println!("{count} shapes: replay {first:.2} s, runs {runs:.2} s, {:.1} times; {different} differ", runs / first);
    println!("again from {} KiB of states: {second:.2} s, the same: {same}", states >> 10);
    Ok(())
}

fn request(seed: u32) -> Request {
    Request {
        input_ids: (0..24).map(|at| (at * at * 31 + seed * 97) % 2000 + 4).collect(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_new_tokens: Some(128), ignore_eos: true, ..StopConditions::default() },
    }
}

/// Chains of 1 to 8 steps; trees of four widths, four depths and two sizes.
fn shapes() -> Vec<TreeShape> {
    let mut shapes: Vec<TreeShape> = (1..=8).map(TreeShape::chain).collect();
    for topk in [2, 4, 6, 8] {
        for num_steps in [2, 3, 5, 7] {
            let largest = TreeShape::whole_tree(num_steps, topk, 2).largest_num_draft_tokens();
            shapes.extend([6, 32].map(|nodes| TreeShape::whole_tree(num_steps, topk, largest.min(nodes))));
        }
    }
    shapes
}

//! Gated delta nets in the emulator, in float32: the CPU's tokens and rounds, alone and together,
//! with prefixes that continue from copies of states.

use crate::{
    Completion, DeviceChoice, Engine, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions,
    selftest::models::{Pair, RandomModels, VOCABULARY},
};

const SHAPES: [&str; 3] = ["0,1,1", "2,1,3", "3,3,8"];

fn engine(models: &RandomModels, pair: Pair, device: DeviceChoice) -> Engine {
    let shapes = SHAPES[2].parse().expect("a shape");
    let options = EngineOptions {
        model_path: models.target(pair),
        algorithm: Some(pair.algorithm().into()),
        policy: ShapePolicy::fixed(shapes),
        device,
        dtype: "float32".into(),
        max_running_requests: 2,
        page_size: 4,
        batch_invariant: true,
        capture_sizes: vec![2],
        chunked_prefill_size: 16,
        ..EngineOptions::default()
    };
    Engine::load(options).expect("an engine")
}

/// Prompts with a common beginning.
fn request(length: usize, end: u32) -> Request {
    let common = (0..length as u32 - 1).map(|at| (at * at * 7 + 3) % VOCABULARY as u32);
    Request {
        input_ids: common.chain([end]).collect(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_new_tokens: Some(7), ignore_eos: true, ..StopConditions::default() },
    }
}

/// Outputs, rounds, and prompt tokens that were not read again.
fn outcome(completions: Vec<Completion>) -> Vec<(Vec<u32>, usize, usize)> {
    let of = |one: Completion| (one.output_ids, one.rounds, one.cached_tokens);
    completions.into_iter().map(of).collect()
}

fn check(pair: Pair) {
    let models = RandomModels::write().expect("a folder");
    let [mut cpu, mut cuda] = [DeviceChoice::Cpu, DeviceChoice::Emulator].map(|device| engine(&models, pair, device));
    for shape in SHAPES {
        let policy = || ShapePolicy::fixed(shape.parse().expect("a shape"));
        let mut run = |requests: &[Request]| {
            let [expected, found] = [&mut cpu, &mut cuda].map(|engine| {
                engine.set_policy(policy()).expect("it runs");
                outcome(engine.run(requests.to_vec()).expect("they run"))
            });
            assert_eq!(found, expected, "{pair} {shape}");
            found
        };
        run(&[request(19, 1)]);
        let continued = run(&[request(18, 5), request(6, 2), request(19, 7)]);
        assert!(continued[0].2 >= 8, "{pair} {shape}: nothing was continued: {continued:?}");
    }
}

#[test]
fn rounds_of_dense_layers_are_the_cpus() {
    check(Pair::Qwen35);
}

#[test]
fn rounds_of_experts_are_the_cpus() {
    check(Pair::Qwen35Moe);
}

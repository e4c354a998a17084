//! Gated delta nets in the emulator. In float32: the CPU's tokens and rounds, alone and together,
//! with prefixes that continue from copies of states. In bfloat16: prompts in chunks.

use crate::{
    Completion, DeviceChoice, Engine, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions,
    request::PromptLogprobs,
    selftest::models::{Pair, RandomModels, VOCABULARY},
};

const SHAPES: [&str; 3] = ["0,1,1", "2,1,3", "3,3,8"];

fn engine(models: &RandomModels, pair: Pair, device: DeviceChoice) -> Engine {
    Engine::load(options(models, pair, device)).expect("an engine")
}

fn options(models: &RandomModels, pair: Pair, device: DeviceChoice) -> EngineOptions {
    let shapes = SHAPES[2].parse().expect("a shape");
    EngineOptions {
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
    }
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

/// Prompts that end within chunks, read in pieces that end between chunks, and once from the copy
/// of a state: no further from float32 than the recurrence of batch-invariant mode is.
#[test]
fn prompts_in_chunks_are_as_exact_as_the_recurrence() {
    let models = RandomModels::write().expect("a folder");
    let run = |device, dtype: &str, batch_invariant| {
        let options = options(&models, Pair::Qwen35, device);
        let options = EngineOptions {
            batch_invariant,
            dtype: dtype.into(),
            chunked_prefill_size: 70,
            max_running_requests: 2,
            ..options
        };
        let mut engine = Engine::load(options).expect("an engine");
        let mut request = |length, end, from| {
            let request = request(length, end);
            let stop = StopConditions { max_new_tokens: Some(1), ..request.stop };
            let prompt_logprobs = Some(PromptLogprobs { from, alternatives: 1 });
            let sampling = SamplingParams { prompt_logprobs, ..request.sampling };
            engine.run(vec![Request { stop, sampling, ..request }]).expect("it runs").remove(0)
        };
        // What is read again for log-probabilities is not reused, so the second keeps the state.
        [request(120, 1, 1), request(120, 3, 66), request(100, 2, 66)]
    };
    let exact = run(DeviceChoice::Cpu, "float32", true);
    let [chunks, recurrence] = [false, true].map(|mode| run(DeviceChoice::Emulator, "bfloat16", mode));
    assert_eq!(chunks[2].cached_tokens, 64, "states are kept at multiples of a chunk");
    for at in 0..chunks.len() {
        let logprobs = |of: &[Completion]| of[at].prompt_logprobs.iter().map(|one| one.logprob).collect::<Vec<f32>>();
        let error = |of: &[Completion]| {
            let (found, expected) = (logprobs(of), logprobs(&exact));
            assert!(found.len() == expected.len() && found.len() >= 34, "{} rows", found.len());
            found.iter().zip(&expected).map(|(one, other)| (one - other).abs()).sum::<f32>() / found.len() as f32
        };
        assert_ne!(logprobs(&chunks), logprobs(&recurrence), "the modes have the same sums");
        let (found, usual) = (error(&chunks), error(&recurrence));
        assert!(found < 1.5 * usual, "request {at}: mean error {found} in chunks, {usual} as a recurrence");
    }
}

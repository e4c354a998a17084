//! FP8 weights, as published and as quantised at load: outputs equal those of a checkpoint with the
//! same values in float32, regardless of the layout of the scales. Broken and unsupported formats
//! are refused by name.
//!
//! Run by the crate `engine`: `cargo test -p engine --test fp8`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use engine::{
    Completion, Engine, EngineError, EngineOptions, Event, Request, SamplingParams, ShapePolicy, StopConditions,
    backend::ProducedToken,
    options::{DeviceChoice, Quantization},
};
use half::bf16;
use kernels::reference::FP8_BLOCK;
use safetensors::Dtype;
use serde_json::{Value, json};

use self::{
    quantiser::{Scales, bytes, quantised},
    tensors::{Tensors, read},
};

#[path = "support/quantiser.rs"]
mod quantiser;
#[path = "support/tensors.rs"]
mod tensors;

const ALL: [Scales; 4] = [Scales::Blocks, Scales::ShortBlocks, Scales::Channels, Scales::Tensor];

fn family(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/families").join(name)
}

fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny")
}

fn write(folder: &Path, tensors: &Tensors, config: &Value) {
    tensors::write(&folder.join("model.safetensors"), tensors);
    fs::write(folder.join("config.json"), config.to_string()).expect("a config");
}

fn config(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join("config.json")).expect("a config")).expect("JSON")
}

fn with(mut config: Value, changes: Value) -> Value {
    config.as_object_mut().expect("an object").extend(changes.as_object().expect("an object").clone());
    config
}

fn floats(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        Dtype::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Dtype::BF16 => bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
        other => panic!("{other:?}"),
    }
}

/// Whether a quantiser would convert a tensor.
fn is_quantised(name: &str, shape: &[usize]) -> bool {
    const LEFT_OUT: [&str; 6] = ["embed_tokens", "lm_head", "mlp.gate.weight", "input_proj", "eh_proj", "fc.weight"];
    shape.len() == 2 && name.ends_with(".weight") && !LEFT_OUT.iter().any(|part| name.contains(part))
}

/// A checkpoint in FP8, and one with the same values in float32.
fn both(source: &Path, scales: Scales) -> [tempfile::TempDir; 2] {
    let (mut fp8, mut plain) = (Tensors::new(), Tensors::new());
    for (name, (dtype, shape, data)) in read(source) {
        let values = if matches!(dtype, Dtype::F32 | Dtype::BF16) { floats(dtype, &data) } else { Vec::new() };
        if !is_quantised(&name, &shape) {
            let float = if values.is_empty() {
                (dtype, shape.clone(), data.clone())
            } else {
                (Dtype::F32, shape.clone(), bytes(&values))
            };
            plain.insert(name.clone(), float);
            fp8.insert(name, (dtype, shape, data));
            continue;
        }
        let [outputs, inputs] = shape[..] else { panic!("{name} is a matrix") };
        let matrix = quantised(&values, [outputs, inputs], scales);
        plain.insert(name.clone(), (Dtype::F32, shape.clone(), bytes(&matrix.values())));
        let (end, scale_shape, scale) = match scales {
            Scales::Tensor => ("_scale", vec![], matrix.scales()[..1].to_vec()),
            Scales::Channels => ("_scale", vec![outputs, 1], matrix.scales().to_vec()),
            Scales::Blocks | Scales::ShortBlocks => {
                ("_scale_inv", vec![outputs.div_ceil(FP8_BLOCK), inputs.div_ceil(FP8_BLOCK)], matrix.scales().to_vec())
            }
        };
        let scale = match scales {
            Scales::ShortBlocks => {
                let short = scale.iter().flat_map(|scale| bf16::from_f32(*scale).to_le_bytes()).collect();
                (Dtype::BF16, scale_shape, short)
            }
            _ => (Dtype::F32, scale_shape, bytes(&scale)),
        };
        fp8.insert(format!("{name}{end}"), scale);
        fp8.insert(name, (Dtype::F8_E4M3, shape, matrix.numbers().to_vec()));
    }
    let quantization = match scales {
        Scales::Blocks | Scales::ShortBlocks => {
            json!({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})
        }
        Scales::Channels => json!({
            "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                "num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true, "dynamic": false}}}
        }),
        Scales::Tensor => json!({"quant_method": "modelopt", "quant_algo": "FP8"}),
    };
    let config = config(source);
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    write(folders[0].path(), &fp8, &with(config.clone(), json!({"quantization_config": quantization})));
    write(folders[1].path(), &plain, &with(config, json!({"torch_dtype": "float32"})));
    folders
}

fn options(target: &Path, draft: Option<(&str, Option<&Path>)>) -> EngineOptions {
    EngineOptions {
        model_path: target.to_owned(),
        draft_model_path: draft.and_then(|(_, folder)| folder).map(ToOwned::to_owned),
        algorithm: draft.map(|(algorithm, _)| algorithm.to_owned()),
        device: DeviceChoice::Cpu,
        max_running_requests: 3,
        page_size: 4,
        context_length: Some(64),
        ..EngineOptions::default()
    }
}

fn run(options: EngineOptions, shape: &str) -> Vec<Completion> {
    let prompt = |seed: u32| (0..9 + 6 * seed).map(|at| (at * at * 31 + seed * 97) % 60 + 2).collect();
    let stop = StopConditions { max_new_tokens: Some(12), ignore_eos: true, ..StopConditions::default() };
    let request = |seed| Request { input_ids: prompt(seed), sampling: SamplingParams::default(), stop: stop.clone() };
    let policy = ShapePolicy::fixed(shape.parse().expect("a shape"));
    let mut engine = Engine::load(EngineOptions { policy, ..options }).expect("it loads");
    engine.run((0..3).map(request).collect()).expect("the requests run")
}

/// Outputs and number of rounds.
fn outcome(completions: &[Completion]) -> Vec<(Vec<u32>, usize)> {
    completions.iter().map(|completion| (completion.output_ids.clone(), completion.rounds)).collect()
}

fn check_refused(options: EngineOptions, expected: &[&str]) {
    let Err(error) = Engine::load(options) else { panic!("it loads, but should fail with {expected:?}") };
    let error: EngineError = error;
    let error = error.to_string();
    for part in expected {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn stored_matrices_have_the_values_that_they_stand_for() {
    for name in ["qwen3", "qwen3_moe", "glm4_moe", "mimo"] {
        for scales in ALL {
            let [fp8, plain] = both(&family(name), scales);
            // The MTP layers of these are quantised too.
            let draft = ["glm4_moe", "mimo"].contains(&name).then_some(("NEXTN", None));
            let shape = if draft.is_some() { "2,1,3" } else { "0,1,1" };
            let found = run(options(fp8.path(), draft), shape);
            let expected = run(options(plain.path(), draft), shape);
            assert_eq!(outcome(&found), outcome(&expected), "{name}, {scales:?}");
        }
    }
}

#[test]
fn heads_are_read_in_fp8_too() {
    let [fp8, plain] = both(&tiny().join("eagle3"), Scales::Blocks);
    let target = tiny().join("target");
    let [found, expected] =
        [&fp8, &plain].map(|head| run(options(&target, Some(("EAGLE3", Some(head.path())))), "3,1,4"));
    assert_eq!(outcome(&found), outcome(&expected));
}

#[test]
fn weights_quantised_at_load_are_those_of_a_checkpoint_with_scales_of_rows() {
    let [target, head] = ["target", "eagle3"].map(|name| tiny().join(name));
    let [fp8, plain] = both(&target, Scales::Channels);
    let [fp8_head, plain_head] = both(&head, Scales::Channels);
    let run = |target: &Path, head: &Path, by: [Option<Quantization>; 2]| {
        let [quantization, draft_quantization] = by;
        let options = options(target, Some(("EAGLE3", Some(head))));
        outcome(&run(EngineOptions { quantization, draft_quantization, ..options }, "3,1,4"))
    };
    let fp8_of = Some(Quantization::Fp8);
    let expected = run(plain.path(), plain_head.path(), [None; 2]);
    assert_eq!(run(&target, &head, [fp8_of; 2]), expected);
    // Tensors that are already in FP8 stay unchanged.
    assert_eq!(run(fp8.path(), fp8_head.path(), [fp8_of; 2]), expected);
    // The draft may stay in 16 bits without changing the text.
    let mixed = run(&target, &head, [fp8_of, None]);
    let text = |outcome: &[(Vec<u32>, usize)]| outcome.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>();
    assert_eq!(text(&mixed), text(&expected));
    assert_ne!(text(&run(&target, &head, [None; 2])), text(&expected), "quantising changes something");
}

/// The tokens that a target chooses, with their log-probabilities.
fn log_probabilities(options: EngineOptions) -> Vec<(u32, f64)> {
    let sampling = SamplingParams { logprobs: Some(0), ..SamplingParams::default() };
    let stop = StopConditions { max_new_tokens: Some(4), ignore_eos: true, ..StopConditions::default() };
    let prompt = (0..70_u32).map(|at| (at * at * 31 + 5) % 900 + 2).collect();
    let mut engine = Engine::load(options).expect("it loads");
    engine.submit(Request { input_ids: prompt, sampling, stop }).expect("there is room");
    let mut found = Vec::new();
    while !engine.is_idle() {
        let mut take = |event| {
            if let Event::Tokens { tokens, .. } = event {
                let logprob = |token: &ProducedToken| token.logprobs.as_ref().map_or(f64::NAN, |of| of.logprob.into());
                found.extend(tokens.iter().map(|token| (token.id, logprob(token))));
            }
        };
        engine.step(&mut take).expect("it runs");
    }
    found
}

/// Needs a C++ compiler for the emulator.
#[test]
fn the_kernels_of_a_gpu_read_the_same_weights() {
    let target = tiny().join("target");
    for (scales, batch_invariant) in [(Scales::Blocks, true), (Scales::Channels, false)] {
        let [fp8, plain] = both(&target, scales);
        let of = |target: &Path, device| EngineOptions {
            device,
            dtype: "bfloat16".into(),
            batch_invariant,
            max_running_requests: 1,
            context_length: Some(96),
            ..options(target, None)
        };
        let found = log_probabilities(of(fp8.path(), DeviceChoice::Emulator));
        let expected = log_probabilities(of(plain.path(), DeviceChoice::Cpu));
        let near = |((token, found), (other, expected)): (&(u32, f64), &(u32, f64))| {
            token == other && (found - expected).abs() < 0.1
        };
        assert!(found.iter().zip(&expected).all(near), "{scales:?}: {found:?}, expected {expected:?}");
    }
}

#[test]
fn who_is_quantised_says_so() {
    let load = |options| Engine::load(options).expect("it loads").identity().clone();
    let target = tiny().join("target");
    let plain = load(options(&target, None));
    assert_eq!(plain.quantised, None);
    let quantised = load(EngineOptions { quantization: Some(Quantization::Fp8), ..options(&target, None) });
    assert_eq!(quantised.quantised.as_deref(), Some("fp8 weights (e4m3)"));
    assert_eq!(quantised.target, format!("{} as fp8", plain.target), "figures of both are not compared");
    let [fp8, _] = both(&target, Scales::Blocks);
    assert_eq!(load(options(fp8.path(), None)).quantised.as_deref(), Some("fp8 weights (e4m3)"));
    // Kernels copy sixteen inputs at a time, so layers with another number of inputs stay in 16
    // bits, which is reported.
    let narrow = load(EngineOptions { quantization: Some(Quantization::Fp8), ..options(&family("qwen3"), None) });
    assert!(narrow.quantised.is_some_and(|words| words.contains("the feed-forward part of 0 of 3 layers")));
}

#[test]
fn wrong_scales_are_errors_that_say_where() {
    const NAME: &str = "model.layers.1.mlp.down_proj.weight";
    fn check(scales: Scales, change: impl FnOnce(&mut Tensors), expected: &[&str]) {
        let [fp8, _] = both(&family("qwen3"), scales);
        let mut tensors = read(fp8.path());
        change(&mut tensors);
        write(fp8.path(), &tensors, &config(fp8.path()));
        check_refused(options(fp8.path(), None), expected);
    }
    let scale = format!("{NAME}_scale_inv");
    check(Scales::Blocks, |tensors| drop(tensors.remove(&scale)), &["model.safetensors", &scale, "missing", "[1, 1]"]);
    check(
        Scales::Blocks,
        |tensors| {
            let (_, shape, data) = tensors.get_mut(&scale).expect("scales");
            *shape = vec![2, 1];
            data.extend([0; 4]);
        },
        &["model.safetensors", &scale, "[2, 1]", "[1, 1]"],
    );
    check(
        Scales::Blocks,
        |tensors| tensors.get_mut(&scale).expect("scales").2 = f32::NAN.to_le_bytes().to_vec(),
        &[&scale, "NaN"],
    );
    check(
        Scales::Blocks,
        |tensors| tensors.get_mut(&scale).expect("scales").0 = Dtype::I32,
        &[&scale, "I32", "F32, BF16"],
    );
    let scale = format!("{NAME}_scale");
    check(
        Scales::Channels,
        |tensors| {
            let (_, shape, data) = tensors.get_mut(&scale).expect("scales");
            shape[0] -= 1;
            data.truncate(shape[0] * 4);
        },
        &["model.safetensors", &scale, "1]"],
    );
    check(
        Scales::Tensor,
        |tensors| tensors.get_mut(NAME).expect("a matrix").0 = Dtype::F8_E5M2,
        &[NAME, "F8_E5M2", "F8_E4M3"],
    );
    // Scales of a 16-bit matrix are not read, and indicate an error.
    check(
        Scales::Tensor,
        |tensors| drop(tensors.insert("model.layers.0.mlp.odd.weight_scale".into(), (Dtype::F32, vec![], vec![0; 4]))),
        &["mlp.odd.weight_scale", "quantised"],
    );
}

#[test]
fn other_formats_are_refused_by_their_names() {
    for (settings, expected) in [
        (json!({"quant_method": "awq", "bits": 4}), "quant_method = awq"),
        (json!({"quant_method": "gptq", "bits": 4}), "quant_method = gptq"),
        (json!({"quant_method": "bitsandbytes"}), "quant_method = bitsandbytes"),
        (json!({"quant_method": "mxfp4"}), "quant_method = mxfp4"),
        (json!({"quant_method": "modelopt_fp4"}), "quant_method = modelopt_fp4"),
        (json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}), "quant_algo = NVFP4"),
        (json!({"quant_method": "w8a8_int8"}), "quant_method = w8a8_int8"),
        (
            json!({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}),
            "format = nvfp4-pack-quantized",
        ),
        (json!({"quant_method": "compressed-tensors", "format": "pack-quantized"}), "format = pack-quantized"),
        (
            json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}}}}),
            "config_groups.group_0.weights.type = int",
        ),
        (json!({"quant_method": "fp8", "weight_block_size": [64, 64]}), "weight_block_size = [64,64]"),
        (json!({"quant_method": "fp8", "fmt": "e5m2"}), "fmt = e5m2"),
        (json!({"bits": 4}), "quant_method = null"),
        (json!({"quant_method": "fp8"}), "no tensor in this folder is FP8"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        write(
            folder.path(),
            &read(&family("qwen3")),
            &with(config(&family("qwen3")), json!({"quantization_config": settings})),
        );
        check_refused(options(folder.path(), None), &["config.json", expected]);
    }
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), &read(&family("qwen3")), &config(&family("qwen3")));
    fs::write(folder.path().join("hf_quant_config.json"), r#"{"quantization": {"quant_algo": "NVFP4"}}"#)
        .expect("a file");
    check_refused(options(folder.path(), None), &["hf_quant_config.json", "quant_algo = NVFP4", "FP8"]);
}

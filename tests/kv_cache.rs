//! The KV cache in FP8: speculation is lossless with respect to it, the scales are the
//! checkpoint's, and what has no such cache is refused by name.
//!
//! Run by the crate `engine`: `cargo test -p engine --test kv_cache`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use engine::{
    Engine, EngineOptions, Event, Request, SamplingParams, ShapePolicy, StopConditions,
    backend::ProducedToken,
    options::{DeviceChoice, kv_cache},
    spec::CacheFormat,
};
use safetensors::Dtype;

#[path = "support/tensors.rs"]
mod tensors;

/// Tokens with their log-probabilities, bit by bit.
type Outputs = Vec<Vec<(u32, u32)>>;

fn tiny(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny").join(name)
}

fn family(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/families").join(name)
}

fn options(target: &Path, draft: Option<(&str, Option<&Path>)>) -> EngineOptions {
    EngineOptions {
        model_path: target.to_owned(),
        draft_model_path: draft.and_then(|(_, folder)| folder).map(ToOwned::to_owned),
        algorithm: draft.map(|(algorithm, _)| algorithm.to_owned()),
        kv_cache: CacheFormat::Fp8,
        device: DeviceChoice::Cpu,
        max_running_requests: 3,
        page_size: 4,
        context_length: Some(96),
        ..EngineOptions::default()
    }
}

/// The tiny target with scales of its caches under these names, in each layer.
fn with_scales(names: &[(&str, f32)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut all = tensors::read(&tiny("target"));
    for layer in 0..all.keys().filter(|name| name.ends_with("self_attn.q_proj.weight")).count() {
        for (name, scale) in names {
            let name = format!("model.layers.{layer}.self_attn.{name}");
            all.insert(name, (Dtype::F32, Vec::new(), scale.to_le_bytes().to_vec()));
        }
    }
    tensors::write(&folder.path().join("model.safetensors"), &all);
    fs::copy(tiny("target").join("config.json"), folder.path().join("config.json")).expect("a config");
    folder
}

/// What requests with a common prefix give, the last of them after the others; greedy and sampled.
fn run(options: EngineOptions, shape: &str) -> Outputs {
    let policy = ShapePolicy::fixed(shape.parse().expect("a shape"));
    let mut engine = Engine::load(EngineOptions { policy, ..options }).expect("it loads");
    let stop = StopConditions { max_new_tokens: Some(14), ignore_eos: true, ..StopConditions::default() };
    let request = |seed: u32| Request {
        input_ids: (0..13).chain(100 * seed..100 * seed + 5 * seed).map(|at| (at * at * 31 + 5) % 60 + 2).collect(),
        sampling: SamplingParams {
            logprobs: Some(0),
            temperature: if seed == 1 { 0.7 } else { 0.0 },
            seed: 7,
            ..SamplingParams::default()
        },
        stop: stop.clone(),
    };
    let mut found: Outputs = Vec::new();
    for batch in [0..2, 2..3] {
        let first = found.len();
        let mut order = Vec::new();
        for seed in batch {
            order.push(engine.submit(request(seed)).expect("there is room"));
            found.push(Vec::new());
        }
        while !engine.is_idle() {
            let mut take = |event| {
                if let Event::Tokens { request, tokens, .. } = event {
                    let at = order.iter().position(|known| *known == request).expect("a request of these");
                    let logprob = |token: &ProducedToken| token.logprobs.as_ref().map_or(f32::NAN, |of| of.logprob);
                    found[first + at].extend(tokens.iter().map(|token| (token.id, logprob(token).to_bits())));
                }
            };
            engine.step(&mut take).expect("it runs");
        }
    }
    found
}

#[test]
fn trees_read_the_rows_that_they_leave_in_the_cache() {
    let scaled = with_scales(&[("k_scale", 0.03), ("v_scale", 0.002)]);
    let head = tiny("eagle3");
    let draft = Some(("EAGLE3", Some(&*head)));
    let expected = run(options(scaled.path(), draft), "0,1,1");
    for shape in ["3,1,4", "3,2,6"] {
        for chunk in [3, 2048] {
            let options = EngineOptions { chunked_prefill_size: chunk, ..options(scaled.path(), draft) };
            assert_eq!(run(options, shape), expected, "{shape}, prefill of {chunk} tokens");
        }
    }
    let alone = EngineOptions { disable_radix_cache: true, max_running_requests: 1, ..options(scaled.path(), draft) };
    assert_eq!(run(alone, "2,2,4"), expected, "without prefixes and neighbours");
    let plain = EngineOptions { kv_cache: CacheFormat::Plain, ..options(scaled.path(), draft) };
    assert_ne!(run(plain, "0,1,1"), expected, "the cache changes something");
}

#[test]
fn mtp_layers_sinks_windows_and_states_run_with_it() {
    for (name, shape) in [("mimo", "2,1,3"), ("qwen3_5", "2,2,4"), ("gpt_oss", "0,1,1")] {
        let draft = (name != "gpt_oss").then_some(("NEXTN", None));
        let [found, expected] = [shape, "0,1,1"].map(|shape| run(options(&family(name), draft), shape));
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn scales_are_the_checkpoints_under_any_of_their_names() {
    let of = |names: &[(&str, f32)]| run(options(with_scales(names).path(), None), "0,1,1");
    let expected = of(&[("k_scale", 0.01), ("v_scale", 0.01)]);
    assert_eq!(of(&[("k_proj.k_scale", 0.01), ("v_proj.v_scale", 0.01)]), expected);
    assert_eq!(of(&[("attn.k_scale", 0.01), ("attn.v_scale", 0.01)]), expected);
    assert_eq!(of(&[("kv_scale", 0.01)]), expected);
    let of_one = of(&[]);
    assert_ne!(of_one, expected);
    assert_eq!(of(&[("k_scale", 1.0)]), of_one, "scales that are missing are 1");
}

#[test]
fn what_has_no_such_cache_is_refused_by_name() {
    let refused = |options: EngineOptions, expected: &[&str]| {
        let error = Engine::load(options).err().expect("it is refused").to_string();
        expected.iter().for_each(|part| assert!(error.contains(part), "{part:?} is not in: {error}"));
    };
    refused(options(&family("deepseek_v3"), None), &["--kv-cache-dtype fp8_e4m3", "latent attention", "auto"]);
    refused(options(with_scales(&[("k_scale", -1.0)]).path(), None), &["self_attn.k_scale", "-1", "positive"]);
    for name in ["fp8_e5m2", "fp8", "nvfp4", "bfloat16"] {
        let error = kv_cache("--kv-cache-dtype", Some(name)).expect_err("not supported").to_string();
        assert!(["--kv-cache-dtype", name, "auto", "fp8_e4m3"].iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn who_has_it_says_so_and_is_another_target() {
    let identity = |kv_cache| {
        let engine = Engine::load(EngineOptions { kv_cache, ..options(&tiny("target"), None) }).expect("it loads");
        engine.identity().clone()
    };
    let [plain, fp8] = [CacheFormat::Plain, CacheFormat::Fp8].map(identity);
    assert_eq!((plain.kv_cache, fp8.kv_cache), (None, Some("fp8_e4m3")));
    assert_eq!(fp8.target, format!("{} with a KV cache in fp8_e4m3", plain.target));
}

/// Number of tokens until the first that differs, over all requests, and the mean difference of
/// their log-probabilities.
fn alike(some: &Outputs, others: &Outputs) -> (usize, f32) {
    let (mut count, mut differences) = (0, 0.0);
    for (some, others) in some.iter().zip(others) {
        for ((_, one), (_, other)) in some.iter().zip(others).take_while(|((token, _), (other, _))| token == other) {
            count += 1;
            differences += (f32::from_bits(*one) - f32::from_bits(*other)).abs();
        }
    }
    (count, differences / count.max(1) as f32)
}

/// Needs a C++ compiler for the emulator.
#[test]
fn the_kernels_of_a_gpu_keep_the_same_cache() {
    // The largest values are cut off, so that another cache gives other logits.
    let scaled = with_scales(&[("k_scale", 0.03), ("v_scale", 0.0003)]);
    let head = tiny("eagle3");
    let of = |device, batch_invariant| EngineOptions {
        device,
        batch_invariant,
        dtype: "bfloat16".into(),
        max_running_requests: 2,
        ..options(scaled.path(), Some(("EAGLE3", Some(&*head))))
    };
    let cpu = of(DeviceChoice::Cpu, true);
    let plain = run(EngineOptions { kv_cache: CacheFormat::Plain, ..cpu.clone() }, "0,1,1");
    let expected = run(cpu, "0,1,1");
    let invariant = run(of(DeviceChoice::Emulator, true), "2,2,4");
    assert_eq!(run(of(DeviceChoice::Emulator, true), "0,1,1"), invariant, "trees read the rows that they leave");
    let default = run(of(DeviceChoice::Emulator, false), "2,2,4");
    let (other, _) = alike(&plain, &expected);
    for found in [invariant, default] {
        let (same, apart) = alike(&found, &expected);
        assert!(
            apart < 0.1 && same >= 9 + 2 * other,
            "{same} tokens, {apart} apart; with another cache {other} tokens"
        );
    }
}

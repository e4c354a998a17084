//! Checkpoints in the layouts of other tools: the same weights in another layout must give the same
//! output, and a broken folder must end in an error that says what is wrong and where.
//!
//! Run by the crate `engine`: `cargo test -p engine --test checkpoints`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use engine::{
    Engine, EngineOptions, FinishReason, Request, SamplingParams, ShapePolicy, StopConditions, checkpoint::Folder,
    options::DeviceChoice,
};
use safetensors::Dtype;
use schemas::tree::TreeShape;
use serde_json::{Value, json};

use self::tensors::{Tensors, change_tensors, read, write};

#[path = "support/tensors.rs"]
mod tensors;

/// A copy of the tiny pair that a test may modify.
struct Pair {
    folder: tempfile::TempDir,
    head: &'static str,
}

impl Pair {
    fn new(head: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for part in ["target", head] {
            let to = folder.path().join(part);
            fs::create_dir(&to).expect("a new folder");
            for file in ["config.json", "model.safetensors"] {
                fs::copy(tiny().join(part).join(file), to.join(file)).expect("a file of the tiny pair");
            }
        }
        Self { folder, head }
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("target")
    }

    fn draft(&self) -> PathBuf {
        self.folder.path().join(self.head)
    }

    fn options(&self) -> EngineOptions {
        EngineOptions {
            model_path: self.target(),
            draft_model_path: Some(self.draft()),
            policy: ShapePolicy::fixed("3,4,8".parse().expect("a shape")),
            max_running_requests: 2,
            context_length: Some(256),
            ..EngineOptions::default()
        }
    }

    fn run(&self) -> (Vec<u32>, usize) {
        run(&mut Engine::load(self.options()).expect("the pair loads"))
    }
}

/// Output and rounds of a short run: the number of rounds shows whether the head still drafts the
/// same.
fn run(engine: &mut Engine) -> (Vec<u32>, usize) {
    let completion = engine.run(vec![requested()]).expect("the request runs").remove(0);
    (completion.output_ids, completion.rounds)
}

fn requested() -> Request {
    Request {
        input_ids: (0..24).map(|at| at * at % 200 + 5).collect(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_new_tokens: Some(48), ignore_eos: true, ..StopConditions::default() },
    }
}

fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny")
}

fn rename(folder: &Path, new_name: impl Fn(&str) -> String) {
    change_tensors(folder, |tensors| {
        *tensors = std::mem::take(tensors).into_iter().map(|(name, tensor)| (new_name(&name), tensor)).collect();
    });
}

fn change_config(folder: &Path, changes: Value) {
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).expect("a config")).expect("JSON");
    let fields = config.as_object_mut().expect("an object");
    for (key, value) in changes.as_object().expect("an object") {
        fields.insert(key.clone(), value.clone());
    }
    fs::write(&path, config.to_string()).expect("a config");
}

/// Converts bfloat16 to float32, which is exact.
fn to_float32(tensors: &mut Tensors) {
    for (dtype, _, data) in tensors.values_mut().filter(|(dtype, ..)| *dtype == Dtype::BF16) {
        *data = data.as_chunks::<2>().0.iter().flat_map(|[low, high]| [0, 0, *low, *high]).collect();
        *dtype = Dtype::F32;
    }
}

/// The target's output without a limit, and the reason why it stops.
fn says(pair: &Pair) -> (Vec<u32>, FinishReason) {
    let options =
        EngineOptions { draft_model_path: None, policy: ShapePolicy::fixed(TreeShape::OFF), ..pair.options() };
    let mut engine = Engine::load(options).expect("the target loads");
    let stop = StopConditions { max_new_tokens: Some(16), ..StopConditions::default() };
    let request = Request { input_ids: (5..29).collect(), sampling: SamplingParams::default(), stop };
    let completion = engine.run(vec![request]).expect("the request runs").remove(0);
    (completion.output_ids, completion.finish_reason)
}

#[test]
fn the_tokenizers_own_end_of_text_ends_an_output() {
    let pair = Pair::new("eagle3");
    let (tokens, _) = says(&pair);
    let tokenizer = fs::read_to_string(tiny().join("target/tokenizer.json")).expect("a tokenizer");
    let vocabulary = serde_json::from_str::<Value>(&tokenizer).expect("JSON")["model"]["vocab"].take();
    let is = |id: &Value| id.as_u64() == tokens.last().map(|token| u64::from(*token));
    let (end, _) = vocabulary.as_object().expect("ids").iter().find(|(_, id)| is(id)).expect("the token has a name");
    fs::write(pair.target().join("tokenizer.json"), tokenizer).expect("a file");
    fs::write(pair.target().join("tokenizer_config.json"), json!({"eos_token": end}).to_string()).expect("a file");
    let first = tokens.iter().position(|token| Some(token) == tokens.last()).expect("it is there");
    assert_eq!(says(&pair), (tokens[..=first].to_vec(), FinishReason::StopToken(tokens[first])));
}

/// Checks that the same weights in another layout give the same tokens in the same rounds.
fn check_layout(name: &str, head: &'static str, change: impl FnOnce(&Pair)) {
    let pair = Pair::new(head);
    let expected = pair.run();
    change(&pair);
    assert_eq!(pair.run(), expected, "{name}");
}

#[test]
fn targets_are_read_in_every_published_layout() {
    check_layout("float32", "eagle3", |pair| change_tensors(&pair.target(), to_float32));
    check_layout("no prefix", "eagle3", |pair| rename(&pair.target(), |name| name.replacen("model.", "", 1)));
    check_layout("an untied copy of the embedding", "eagle3", |pair| {
        change_config(&pair.target(), json!({"tie_word_embeddings": false}));
        change_tensors(&pair.target(), |tensors| {
            tensors.insert("lm_head.weight".into(), tensors["model.embed_tokens.weight"].clone());
        });
    });
    check_layout("tied without saying so", "eagle3", |pair| {
        change_config(&pair.target(), json!({"tie_word_embeddings": null}));
    });
    check_layout("two shards", "eagle2", |pair| {
        let all = read(&pair.target());
        let (first, second): (Tensors, Tensors) = all.into_iter().partition(|(name, _)| name.contains("mlp"));
        let mut weight_map = serde_json::Map::new();
        for (shard, tensors) in [("model-1.safetensors", &first), ("model-2.safetensors", &second)] {
            write(&pair.target().join(shard), tensors);
            weight_map.extend(tensors.keys().map(|name| (name.clone(), shard.into())));
        }
        fs::remove_file(pair.target().join("model.safetensors")).expect("the file");
        let index = json!({"metadata": {"total_size": 1}, "weight_map": weight_map}).to_string();
        fs::write(pair.target().join("model.safetensors.index.json"), index).expect("an index");
    });
    check_layout("a window that holds the longest sequence", "eagle3", |pair| {
        change_config(&pair.target(), json!({"architectures": ["MistralForCausalLM"], "sliding_window": 4096}));
    });
    check_layout("rope parameters beside an older theta", "eagle3", |pair| {
        let parameters = json!({"rope_type": "default", "rope_theta": 10000.0});
        change_config(&pair.target(), json!({"rope_theta": 5.0, "rope_parameters": parameters}));
    });
    check_layout("rope parameters of transformers 5", "eagle2", |pair| {
        let parameters = json!({"rope_type": "default", "rope_theta": 10000.0});
        change_config(&pair.target(), json!({"rope_theta": null, "rope_parameters": parameters}));
    });
}

#[test]
fn heads_are_read_in_every_published_layout() {
    let vllm = |name: &str| match name {
        "d2t" | "t2d" | "lm_head.weight" => name.to_owned(),
        _ => format!("model.{}", name.replace("midlayer.", "layers.0.")),
    };
    check_layout("names of vLLM", "eagle3", |pair| rename(&pair.draft(), vllm));
    check_layout("a prefix", "eagle2", |pair| rename(&pair.draft(), |name| format!("model.{name}")));
    check_layout("a file of another name", "eagle3", |pair| {
        let to = pair.draft().join("eagle3.safetensors");
        fs::rename(pair.draft().join("model.safetensors"), to).expect("the file");
    });
    check_layout("a file of another name, with an adapter beside it", "eagle3", |pair| {
        let file = pair.draft().join("model.safetensors");
        fs::copy(&file, pair.draft().join("adapter_model.safetensors")).expect("a copy");
        fs::rename(&file, pair.draft().join("eagle3.safetensors")).expect("the file");
    });
    check_layout("the default layers, written out as outputs", "eagle3", |pair| {
        change_config(&pair.draft(), json!({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}}));
    });
    check_layout("the default layers, as vLLM writes them", "eagle3", |pair| {
        change_config(&pair.draft(), json!({"eagle_aux_hidden_state_layer_ids": [2, 4, 5]}));
    });
    check_layout("a config of the speculators library", "eagle3", |pair| {
        let path = pair.draft().join("config.json");
        let mut layer: Value = serde_json::from_str(&fs::read_to_string(&path).expect("a config")).expect("JSON");
        let vocabulary = layer.as_object_mut().expect("an object").remove("draft_vocab_size");
        let config = json!({
            "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": vocabulary,
            "transformer_layer_config": layer,
        });
        fs::write(&path, config.to_string()).expect("a config");
    });
    check_layout("a bias of zeros", "eagle3", |pair| with_bias(pair, 0.0));
    check_layout("no mask of the hot vocabulary, narrow offsets, float32", "eagle3", |pair| {
        change_tensors(&pair.draft(), |tensors| {
            tensors.remove("t2d");
            to_float32(tensors);
            let (dtype, _, data) = tensors.get_mut("d2t").expect("d2t");
            // Little-endian numbers that fit into 32 bits: the lower half has the same value.
            *data = data.as_chunks::<8>().0.iter().flat_map(|bytes| bytes[..4].to_vec()).collect();
            *dtype = Dtype::I32;
        });
    });
    let with_embedding = |pair: &Pair| {
        let embedding = read(&pair.target())["model.embed_tokens.weight"].clone();
        change_tensors(&pair.draft(), |tensors| {
            tensors.insert("embed_tokens.weight".into(), embedding);
        });
    };
    check_layout("a copy of the embedding", "eagle3", with_embedding);
    check_layout("a copy of the embedding", "eagle2", with_embedding);
    check_layout("theta left to its default", "eagle3", |pair| {
        change_config(&pair.draft(), json!({"rope_theta": null}));
    });
    // With the whole vocabulary and the target's own LM head, drafts differ but the output does
    // not.
    let pair = Pair::new("eagle3");
    let (expected, _) = pair.run();
    change_config(&pair.draft(), json!({"draft_vocab_size": null}));
    change_tensors(&pair.draft(), |tensors| {
        ["lm_head.weight", "d2t", "t2d"].iter().for_each(|name| drop(tensors.remove(*name)));
    });
    assert_eq!(pair.run().0, expected, "a head without lm_head");
}

/// Gives an EAGLE-3 head norms before its reduction: one on each captured layer, or one over all.
fn with_norms(pair: &Pair, norms: &[(&str, usize)], flags: Value) {
    change_config(&pair.draft(), flags);
    change_tensors(&pair.draft(), |tensors| {
        for (name, width) in norms {
            let factor = |at: usize| 0.5 + (at % 5) as f32 / 4.0;
            let data = (0..*width).flat_map(|at| factor(at).to_le_bytes()).collect();
            tensors.insert(format!("{name}.weight"), (Dtype::F32, vec![*width], data));
        }
    });
}

#[test]
fn the_norms_of_eagle_3_1_are_read_by_their_names_old_and_new() {
    let run = |norms: &[(&str, usize)], flags: Value| {
        let pair = Pair::new("eagle3");
        with_norms(&pair, norms, flags);
        pair.run()
    };
    let plain = Pair::new("eagle3").run();
    let each = run(&[("fc_norm.0", 128), ("fc_norm.1", 128), ("fc_norm.2", 128)], json!({"fc_norm": true}));
    let old = [("aux_norm_low", 128), ("aux_norm_mid", 128), ("aux_norm_high", 128)];
    assert_eq!(run(&old, json!({"use_aux_norm": true})), each);
    assert_eq!(run(&old, json!({"eagle_config": {"fc_norm": true}})), each);
    let joined = run(&[("input_norm", 384)], json!({"norm_before_fc": true}));
    assert_eq!(run(&[("input_norm", 384)], json!({"eagle_config": {"norm_before_fc": true}})), joined);
    let output = run(&[], json!({"norm_output": true}));
    for (name, found) in [("fc_norm", &each), ("norm_before_fc", &joined), ("norm_output", &output)] {
        assert_eq!(found.0, plain.0, "{name}: drafts decide no token");
        assert_ne!(found.1, plain.1, "{name}: but how many rounds it takes");
    }
}

/// Gives the reduction of an EAGLE-3 head a bias of alternating sign.
fn with_bias(pair: &Pair, size: f32) {
    change_config(&pair.draft(), json!({"bias": true}));
    change_tensors(&pair.draft(), |tensors| {
        let sign = |at: usize| if at.is_multiple_of(2) { size } else { -size };
        let data = (0..128).flat_map(|at| sign(at).to_le_bytes()).collect();
        tensors.insert("fc.bias".into(), (Dtype::F32, vec![128], data));
    });
}

#[test]
fn the_bias_of_an_eagle3_head_counts_on_every_device() {
    let pair = Pair::new("eagle3");
    let (plain, rounds) = pair.run();
    with_bias(&pair, 2.0);
    let biased = pair.run();
    assert_eq!(biased.0, plain, "drafts decide no token");
    assert_ne!(biased.1, rounds, "but how many rounds it takes");
    let emulated = EngineOptions {
        device: DeviceChoice::Emulator,
        dtype: "float32".into(),
        batch_invariant: true,
        ..pair.options()
    };
    // Needs a C++ compiler.
    let mut engine = Engine::load(emulated).expect("the emulator runs");
    assert_eq!(run(&mut engine), biased);
}

/// Fills a row of a bfloat16 tensor with NaN.
fn break_row(pair: &Pair, name: &str, row: usize) {
    change_tensors(&pair.target(), |tensors| {
        let (_, shape, data) = tensors.get_mut(name).expect("a tensor of this name");
        let bytes = 2 * shape.last().expect("a row");
        data[row * bytes..(row + 1) * bytes].fill(0xFF);
    });
}

/// Checks, on every device and with and without speculation, that a run fails at the token for this
/// position.
fn check_not_finite(pair: &Pair, position: usize) {
    for (device, shape) in
        [(DeviceChoice::Cpu, "0,1,1"), (DeviceChoice::Cpu, "3,4,8"), (DeviceChoice::Emulator, "3,4,8")]
    {
        let what = format!("{device:?}, {shape}");
        let options = EngineOptions {
            device,
            policy: ShapePolicy::fixed(shape.parse().expect("a shape")),
            dtype: "float32".into(),
            batch_invariant: true,
            ..pair.options()
        };
        // The emulator needs a C++ compiler.
        let mut engine = Engine::load(options).expect(&what);
        let error = engine.run(vec![requested()]).expect_err("the target computes no numbers").to_string();
        assert!(error.contains(&format!("logits for position {position} are not finite")), "{what}: {error}");
    }
}

#[test]
fn weights_that_are_not_finite_end_a_run_in_an_error_on_every_device() {
    let pair = Pair::new("eagle3");
    // Breaks a token's embedding without breaking its logit.
    change_config(&pair.target(), json!({"tie_word_embeddings": false}));
    change_tensors(&pair.target(), |tensors| {
        tensors.insert("lm_head.weight".into(), tensors["model.embed_tokens.weight"].clone());
    });
    let (prompt, output) = (requested().input_ids, pair.run().0);
    let is_new = |at: &usize| !prompt.contains(&output[*at]) && !output[..*at].contains(&output[*at]);
    let last = (3..output.len()).find(is_new).expect("a token that is new");
    break_row(&pair, "model.embed_tokens.weight", output[last] as usize);
    check_not_finite(&pair, prompt.len() + last + 1);
    break_row(&pair, "model.norm.weight", 0);
    check_not_finite(&pair, prompt.len());
}

/// Checks that loading ends in an error that contains all of `expected`.
fn check_broken(head: &'static str, change: impl FnOnce(&Pair), expected: &[&str]) {
    let pair = Pair::new(head);
    change(&pair);
    let error = Engine::load(pair.options()).err().map(|error| error.to_string());
    let error = error.unwrap_or_else(|| panic!("it loads, but should fail with {expected:?}"));
    for part in expected {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

/// A safetensors file with this header and this many bytes of data.
fn raw(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
}

#[test]
fn broken_files_are_errors_that_name_them() {
    let file = |pair: &Pair| pair.target().join("model.safetensors");
    let check = |bytes: Vec<u8>, expected: &str| {
        let spoil = |pair: &Pair| fs::write(file(pair), bytes).expect("a file");
        check_broken("eagle3", spoil, &["target/model.safetensors", expected]);
    };
    check([&(1_u64 << 60).to_le_bytes()[..], b"{}"].concat(), "1152921504606846976");
    check(b"version https://git-lfs.github.com/spec/v1\noid sha256:0".to_vec(), "git lfs pull");
    check(Vec::new(), "too few");
    check(vec![1, 2, 3], "too few");
    check(raw("not json", 0), "not valid");
    check(raw("[1]", 0), "not valid");
    check(vec![4, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFE, 0xFD, 0xFC], "UTF-8");
    check(raw(r#"{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}"#, 7), "truncated");
    check(raw(r#"{"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}"#, 8), "'a'");
    check(raw(r#"{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}"#, 8), "12 bytes");
    check(
        raw(r#"{"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 8]}}"#, 8),
        "impossible shape",
    );
    check(
        raw(
            r#"{"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
                "b": {"dtype": "U8", "shape": [8], "data_offsets": [4, 12]}}"#,
            12,
        ),
        "overlap",
    );
    let halve = |pair: &Pair| {
        let bytes = fs::read(file(pair)).expect("the file");
        fs::write(file(pair), &bytes[..bytes.len() / 2]).expect("a file");
    };
    check_broken("eagle3", halve, &["target/model.safetensors", "truncated"]);
}

#[test]
fn incomplete_folders_are_errors_that_say_what_to_do() {
    let remove = |pair: &Pair, name: &str| fs::remove_file(pair.target().join(name)).expect("the file");
    check_broken("eagle3", |pair| fs::remove_dir_all(pair.target()).expect("the folder"), &["cannot read", "target"]);
    check_broken("eagle3", |pair| remove(pair, "config.json"), &["no config.json"]);
    check_broken("eagle3", |pair| remove(pair, "model.safetensors"), &["no model.safetensors"]);
    let pickle = |pair: &Pair| {
        remove(pair, "model.safetensors");
        fs::write(pair.target().join("pytorch_model.bin"), "pickle").expect("a file");
    };
    check_broken("eagle3", pickle, &["pickle", "convert it once"]);
    let twice = |pair: &Pair| {
        for name in ["a.safetensors", "b.safetensors"] {
            fs::copy(pair.target().join("model.safetensors"), pair.target().join(name)).expect("a copy");
        }
        remove(pair, "model.safetensors");
    };
    check_broken("eagle3", twice, &["b.safetensors", "a.safetensors", "remove one of the two files"]);
    let broken_config = |pair: &Pair| fs::write(pair.target().join("config.json"), "{").expect("a file");
    check_broken("eagle3", broken_config, &["target/config.json", "not a valid config.json"]);
    for (index, expected) in [
        (r#"{"weight_map": {"a": "../elsewhere.safetensors"}}"#, "not a file of this checkpoint"),
        (r#"{"weight_map": {"a": "gone.safetensors"}}"#, "gone.safetensors"),
        (r#"{"weight_map": {}}"#, "names 0 shards"),
        ("[]", "not a valid index"),
    ] {
        let spoil = |pair: &Pair| {
            remove(pair, "model.safetensors");
            fs::write(pair.target().join("model.safetensors.index.json"), index).expect("a file");
        };
        check_broken("eagle3", spoil, &[expected]);
    }
}

#[test]
fn tensors_that_do_not_fit_are_named_with_what_was_expected() {
    let tensor = "model.layers.3.mlp.up_proj.weight";
    let change = |change: fn(&mut Tensors)| move |pair: &Pair| change_tensors(&pair.target(), change);
    let remove = change(|tensors| drop(tensors.remove("model.layers.3.mlp.up_proj.weight")));
    check_broken("eagle3", remove, &[tensor, "missing", "[384, 128]"]);
    let turn = change(|tensors| {
        tensors.get_mut("model.layers.3.mlp.up_proj.weight").expect("a tensor").1 = vec![128, 384];
    });
    check_broken("eagle3", turn, &["model.safetensors", tensor, "[128, 384]", "[384, 128]"]);
    let integers = change(|tensors| tensors.get_mut("model.norm.weight").expect("a tensor").0 = Dtype::I16);
    check_broken("eagle3", integers, &["model.norm.weight", "I16", "BF16"]);

    let config = |changes: Value| move |pair: &Pair| change_config(&pair.target(), changes);
    check_broken("eagle3", config(json!({"architectures": ["GemmaForCausalLM"]})), &["Gemma", "LlamaForCausalLM"]);
    check_broken("eagle3", config(json!({"num_hidden_layers": 7})), &["num_hidden_layers is 7", "layers.7"]);
    check_broken("eagle3", config(json!({"num_hidden_layers": 9})), &["layers.8", "missing"]);
    check_broken("eagle3", config(json!({"attention_bias": true})), &["q_proj.bias"]);
    check_broken("eagle3", config(json!({"hidden_size": 0})), &["hidden_size is 0"]);
    check_broken("eagle3", config(json!({"hidden_size": null})), &["hidden_size is missing"]);
    check_broken("eagle3", config(json!({"hidden_act": "gelu"})), &["gelu", "silu"]);
    check_broken(
        "eagle3",
        config(json!({"num_key_value_heads": 3})),
        &["num_key_value_heads is 3", "num_attention_heads"],
    );
    check_broken(
        "eagle3",
        config(json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2}})),
        &["dynamic", "yarn"],
    );
    check_broken("eagle3", config(json!({"rope_scaling": {"rope_type": "llama3"}})), &["llama3", "factor"]);
    check_broken("eagle3", config(json!({"rope_theta": -1.0})), &["rope_theta is -1", "expected a number above"]);
    let linear = json!({"rope_scaling": {"rope_type": "linear", "factor": 0.0}});
    check_broken("eagle3", config(linear), &["factor is 0", "expected a number above"]);
    let mistral = json!({"architectures": ["MistralForCausalLM"], "sliding_window": 512});
    check_broken("eagle3", config(mistral), &["window 512"]);
    check_broken("eagle3", config(json!({"quantization_config": {"quant_method": "fp8"}})), &["quantised"]);
}

#[test]
fn heads_that_do_not_fit_are_errors_that_say_why() {
    let config = |changes: Value| move |pair: &Pair| change_config(&pair.draft(), changes);
    let tensors = |change: fn(&mut Tensors)| move |pair: &Pair| change_tensors(&pair.draft(), change);
    check_broken("eagle3", config(json!({"target_hidden_size": 256})), &["256", "128"]);
    check_broken("eagle3", config(json!({"draft_vocab_size": 4096})), &["draft_vocab_size is 4096", "2048"]);
    check_broken("eagle3", config(json!({"num_hidden_layers": 2})), &["several decoder layers"]);
    check_broken("eagle3", config(json!({"norm_before_fc": true})), &["input_norm.weight", "missing"]);
    check_broken("eagle3", config(json!({"fc_norm": true})), &["fc_norm.0.weight", "missing"]);
    let layers = |ids: Value| config(json!({"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}}));
    check_broken("eagle3", layers(json!([1, 2, 8])), &["eagle3/config.json", "expected ids of layers from 0 to 7"]);
    for ids in [json!([1, 3, -1]), json!("1, 3, 4")] {
        check_broken(
            "eagle3",
            layers(ids),
            &["eagle_config.eagle_aux_hidden_state_layer_ids is ", "expected a list of whole numbers"],
        );
    }
    let with_ids = |ids: Value| config(json!({"eagle_aux_hidden_state_layer_ids": ids}));
    check_broken("eagle3", with_ids(json!([0, 1, 9])), &["[0, 1, 9]", "expected ids of layers from 0 to 8"]);
    check_broken("eagle3", with_ids(json!(3)), &["eagle_aux_hidden_state_layer_ids is 3, expected a list"]);
    check_broken("eagle3", config(json!({"bias": true})), &["fc.bias", "missing", "[128]"]);
    check_broken("eagle3", layers(json!([1, 2])), &["fc.weight takes 3 features", "names 2 layers"]);
    let outside = tensors(|tensors| tensors.get_mut("d2t").expect("d2t").2[1] = 8);
    check_broken("eagle3", outside, &["d2t[0]", "outside the target's 2048"]);
    check_broken("eagle3", tensors(|tensors| drop(tensors.remove("d2t"))), &["d2t", "missing", "[1024]"]);
    check_broken("eagle2", tensors(|tensors| drop(tensors.remove("fc.bias"))), &["fc.bias", "missing"]);
    check_broken("eagle2", config(json!({"hidden_size": 64})), &["hidden_size is 64", "128"]);
    let whole_model = |pair: &Pair| {
        for file in ["config.json", "model.safetensors"] {
            fs::copy(pair.target().join(file), pair.draft().join(file)).expect("a copy");
        }
    };

    let as_it_is = |_: &Pair| ();
    let named = |head, algorithm: &str, change: &dyn Fn(&Pair), expected: &str| {
        let pair = Pair::new(head);
        change(&pair);
        let error = Engine::load(EngineOptions { algorithm: Some(algorithm.into()), ..pair.options() }).err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(&format!("--speculative-algorithm {algorithm}")) && error.contains(expected), "{error}");
    };
    named("eagle3", "EAGLE", &as_it_is, "EAGLE3");
    named("eagle2", "EAGLE3", &as_it_is, "EAGLE-1/2");
    named("eagle3", "EAGLE3", &whole_model, "whole model");
}

#[test]
fn a_folder_has_a_hash() {
    let pair = Pair::new("eagle3");
    let hash = |folder: &Path| Folder::open(folder).and_then(|folder| folder.hash()).expect("a hash");
    let before = hash(&pair.target());
    assert_eq!(before, hash(&Pair::new("eagle3").target()), "copies agree");
    change_tensors(&pair.target(), |tensors| tensors.get_mut("model.norm.weight").expect("a tensor").2[0] ^= 1);
    assert_ne!(before, hash(&pair.target()), "one bit counts");
}

//! Heads read the layers of their target that SGLang and vLLM capture for them, also where layers
//! are of several kinds: what a head reads at a layer is what the target that ends there computes.
//!
//! Run by the crate `engine`: `cargo test -p engine --test captured_layers`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use engine::{Engine, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions, options::DeviceChoice};
use safetensors::Dtype;
use serde_json::{Value, json};

use self::tensors::{Tensors, read, weight, write};

#[path = "support/tensors.rs"]
mod tensors;

/// Models with layers of two kinds.
const FAMILIES: [&str; 3] = ["qwen3_5", "qwen3_5_moe", "gpt_oss"];
const HEAD_DIM: usize = 16;
const INTERMEDIATE: usize = 24;
/// Between the same sums in two models.
const CLOSE: f32 = 1e-4;
/// Between neighbouring layers.
const APART: f32 = 1e-2;

/// A target, and the folder in which tests make others of it and drafts for it.
struct Family {
    source: PathBuf,
    folder: tempfile::TempDir,
    config: Value,
}

impl Family {
    fn new(name: &str) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/families").join(name);
        let config = fs::read_to_string(source.join("config.json")).expect("a config");
        let config = serde_json::from_str(&config).expect("JSON");
        Self { source, folder: tempfile::tempdir().expect("a folder"), config }
    }

    /// The settings of its language model.
    fn text(&self) -> &Value {
        self.config.get("text_config").unwrap_or(&self.config)
    }

    fn size(&self, name: &str) -> usize {
        self.text()[name].as_u64().expect("a size") as usize
    }

    fn layers(&self) -> usize {
        self.size("num_hidden_layers")
    }

    /// Weight of its final norm as it multiplies.
    fn norm(&self) -> Vec<f32> {
        let tensors = read(&self.source);
        let less_one = tensors.get("model.language_model.norm.weight");
        let (dtype, _, bytes) = less_one.or(tensors.get("model.norm.weight")).expect("a norm");
        let weight: Vec<f32> = match dtype {
            Dtype::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            _ => bytes.as_chunks().0.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect(),
        };
        weight.into_iter().map(|weight| if less_one.is_some() { weight + 1.0 } else { weight }).collect()
    }

    /// A target of its first layers.
    fn first_layers(&self, count: usize) -> PathBuf {
        let folder = self.folder.path().join(format!("first-{count}"));
        let beyond = |name: &str| {
            let number =
                name.split_once(".layers.").and_then(|(_, rest)| rest.split('.').next()?.parse::<usize>().ok());
            name.starts_with("mtp.") || number.is_some_and(|number| number >= count)
        };
        let tensors: Tensors = read(&self.source).into_iter().filter(|(name, _)| !beyond(name)).collect();
        let mut config = self.config.clone();
        let text = if config.get("text_config").is_some() { &mut config["text_config"] } else { &mut config };
        text["num_hidden_layers"] = count.into();
        let kinds: Vec<Value> = text["layer_types"].as_array().expect("kinds").iter().take(count).cloned().collect();
        text["layer_types"] = kinds.into();
        if text.get("mtp_num_hidden_layers").is_some() {
            text["mtp_num_hidden_layers"] = 0.into();
        }
        save(&folder, &config, &tensors);
        folder
    }

    /// A head that joins this many captured layers: EAGLE-3, or DFLASH.
    fn head(&self, name: &str, captured: usize, changes: Value) -> PathBuf {
        let folder = self.folder.path().join(name);
        let (hidden, vocabulary) = (self.size("hidden_size"), self.size("vocab_size"));
        let is_block = changes.get("dflash_config").is_some();
        let mut tensors = Tensors::new();
        let mut add = |name: &str, shape: &[usize]| {
            let seed = tensors.len() as u64;
            let values = (0..shape.iter().product()).flat_map(|at| weight(seed, at, shape).to_le_bytes()).collect();
            tensors.insert(name.to_owned(), (Dtype::F32, shape.to_vec(), values));
        };
        let (layer, input) = if is_block { ("layers.0", hidden) } else { ("midlayer", 2 * hidden) };
        add("fc.weight", &[hidden, captured * hidden]);
        add("norm.weight", &[hidden]);
        let hidden_norm = if is_block { "hidden_norm".to_owned() } else { format!("{layer}.hidden_norm") };
        add(&format!("{hidden_norm}.weight"), &[hidden]);
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            add(&format!("{layer}.{norm}.weight"), &[hidden]);
        }
        for (projection, outputs, inputs) in [
            ("self_attn.q_proj", 2 * HEAD_DIM, input),
            ("self_attn.k_proj", HEAD_DIM, input),
            ("self_attn.v_proj", HEAD_DIM, input),
            ("self_attn.o_proj", hidden, 2 * HEAD_DIM),
            ("mlp.gate_proj", INTERMEDIATE, hidden),
            ("mlp.up_proj", INTERMEDIATE, hidden),
            ("mlp.down_proj", hidden, INTERMEDIATE),
        ] {
            add(&format!("{layer}.{projection}.weight"), &[outputs, inputs]);
        }
        if is_block {
            add("layers.0.self_attn.q_norm.weight", &[HEAD_DIM]);
            add("layers.0.self_attn.k_norm.weight", &[HEAD_DIM]);
        } else {
            add("lm_head.weight", &[vocabulary, hidden]);
        }
        let mut config = json!({
            "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": hidden, "intermediate_size": INTERMEDIATE, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": HEAD_DIM, "num_hidden_layers": 1, "rms_norm_eps": 1e-6,
            "vocab_size": vocabulary, "draft_vocab_size": vocabulary, "rope_theta": 10_000_000,
            "max_position_embeddings": 512, "tie_word_embeddings": false,
        });
        config.as_object_mut().expect("an object").extend(changes.as_object().expect("an object").clone());
        save(&folder, &config, &tensors);
        folder
    }

    /// An EAGLE-3 head that captures the outputs of these layers.
    fn eagle3(&self, layers: &[usize]) -> PathBuf {
        let ids = json!({"eagle_config": {"eagle_aux_hidden_state_layer_ids": layers}});
        self.head(&format!("eagle3-{layers:?}"), layers.len(), ids)
    }

    /// A DFLASH head that captures them.
    fn dflash(&self, layers: &[usize]) -> PathBuf {
        let changes = json!({
            "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": 4,
            "num_target_layers": self.layers(), "layer_types": ["full_attention"],
            "dflash_config": {"mask_token_id": 3, "target_layer_ids": layers},
        });
        self.head(&format!("dflash-{layers:?}"), layers.len(), changes)
    }
}

fn save(folder: &Path, config: &Value, tensors: &Tensors) {
    fs::create_dir_all(folder).expect("a folder");
    fs::write(folder.join("config.json"), config.to_string()).expect("a config");
    write(&folder.join("model.safetensors"), tensors);
}

fn load(target: &Path, head: &Path, algorithm: &str) -> Engine {
    let options = EngineOptions {
        model_path: target.to_owned(),
        draft_model_path: Some(head.to_owned()),
        algorithm: Some(algorithm.to_owned()),
        device: DeviceChoice::Cpu,
        max_running_requests: 3,
        page_size: 4,
        context_length: Some(128),
        chunked_prefill_size: 8,
        ..EngineOptions::default()
    };
    Engine::load(options).expect("the pair loads")
}

fn text() -> Vec<u32> {
    (0..27).map(|at| (at * at * 31 + 7) % 60 + 2).collect()
}

/// What a head reads of a text: `[positions][layers][hidden]`, and the final states.
fn states(target: &Path, head: &Path, algorithm: &str) -> (Vec<f32>, Vec<f32>) {
    let states = load(target, head, algorithm).states(&text()).expect("states");
    (states.captured, states.last)
}

/// The part of what a head has captured that is of one of its layers.
fn layer_rows(captured: &[f32], [layer, layers, hidden]: [usize; 3]) -> Vec<f32> {
    let rows = captured.chunks_exact(layers * hidden);
    rows.flat_map(|row| &row[layer * hidden..(layer + 1) * hidden]).copied().collect()
}

fn normed(rows: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let row = |row: &[f32]| {
        let mean = row.iter().map(|value| value * value).sum::<f32>() / row.len() as f32;
        let scale = 1.0 / (mean + epsilon).sqrt();
        row.iter().zip(weight).map(|(value, weight)| value * scale * weight).collect::<Vec<_>>()
    };
    rows.chunks_exact(weight.len()).flat_map(row).collect()
}

fn apart(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn what_a_head_captures_after_a_layer_is_what_a_target_that_ends_there_computes() {
    for name in FAMILIES {
        let family = Family::new(name);
        let (layers, hidden) = (family.layers(), family.size("hidden_size"));
        let all: Vec<usize> = (0..layers).collect();
        let (captured, _) = states(&family.source, &family.eagle3(&all), "EAGLE3");
        let norm = family.norm();
        let epsilon = family.text()["rms_norm_eps"].as_f64().expect("a number") as f32;
        for layer in 0..layers {
            let (_, last) = states(&family.first_layers(layer + 1), &family.eagle3(&[0]), "EAGLE3");
            let outputs = |layer| normed(&layer_rows(&captured, [layer, layers, hidden]), &norm, epsilon);
            let off = apart(&outputs(layer), &last);
            assert!(off < CLOSE, "{name}, layer {layer}: {off}");
            assert!(apart(&outputs((layer + 1) % layers), &last) > APART, "{name}: layer {layer} is like the next");
        }
    }
}

#[test]
fn heads_of_all_kinds_and_conventions_capture_the_same() {
    for name in FAMILIES {
        let family = Family::new(name);
        let layers = family.layers();
        let ids = [0, 1, layers - 1];
        let expected = states(&family.source, &family.eagle3(&ids), "EAGLE3");
        let dflash = states(&family.source, &family.dflash(&ids), "DFLASH");
        assert!(dflash.0 == expected.0, "{name}: DFLASH");
        // vLLM's speculators name the layers before which the stream is captured.
        let before = json!({"eagle_aux_hidden_state_layer_ids": ids.map(|id| id + 1)});
        assert!(states(&family.source, &family.head("before", 3, before), "EAGLE3") == expected, "{name}: before");
    }
    // If the last of them is the number of layers, so do those in eagle_config for gpt-oss.
    let family = Family::new("gpt_oss");
    let layers = family.layers();
    let boundaries = states(&family.source, &family.eagle3(&[1, 2, layers]), "EAGLE3");
    assert!(boundaries == states(&family.source, &family.eagle3(&[0, 1, layers - 1]), "EAGLE3"));
}

#[test]
fn heads_on_layers_of_several_kinds_lose_nothing() {
    let stop = StopConditions { max_new_tokens: Some(24), ignore_eos: true, ..StopConditions::default() };
    let requests: Vec<Request> = (0..3)
        .map(|seed| Request {
            input_ids: text()[..9 + 6 * seed].to_vec(),
            sampling: SamplingParams { temperature: seed as f32 * 0.4, seed: seed as u64, ..SamplingParams::default() },
            stop: stop.clone(),
        })
        .collect();
    for name in FAMILIES {
        let family = Family::new(name);
        let ids = [0, family.layers() - 1];
        for (head, algorithm, shapes) in
            [(family.eagle3(&ids), "EAGLE3", ["3,1,4", "3,4,8"]), (family.dflash(&ids), "DFLASH", ["3,1,4", "3,2,6"])]
        {
            let mut engine = load(&family.source, &head, algorithm);
            let mut run = |shape: &str| {
                engine.set_policy(ShapePolicy::fixed(shape.parse().expect("a shape"))).expect("the shape runs");
                let completions = engine.run(requests.clone()).expect("the requests run");
                completions.into_iter().map(|completion| completion.output_ids).collect::<Vec<_>>()
            };
            let plain = run("0,1,1");
            for shape in shapes {
                // The second run continues cached prefixes.
                for _ in 0..2 {
                    assert_eq!(run(shape), plain, "{name}, {algorithm} {shape}");
                }
            }
        }
    }
}

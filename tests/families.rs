//! Published checkpoints of other families: MTP layers in any layout, settings that are refused
//! rather than ignored, and tensors that are damaged. `broken_checkpoints.rs` has damaged
//! configurations.
//!
//! Run by the crate `engine`: `cargo test -p engine --test families`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use engine::options::DeviceChoice;
use engine::{Completion, Engine, EngineError, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions};
use safetensors::Dtype;
use serde_json::{Value, json};

use self::tensors::{Tensors, change_tensors, read, write};

#[path = "support/tensors.rs"]
mod tensors;

const WITH_MTP: [&str; 8] = [
    "glm4_moe",
    "glm4_moe_air",
    "glm4_moe_groups",
    "mimo",
    "deepseek_v3",
    "deepseek_v3_direct",
    "qwen3_5",
    "qwen3_5_moe",
];

fn family(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/families").join(name)
}

/// A copy of a family's checkpoint that a test may modify.
fn copy(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(family(name).join(file), folder.path().join(file)).expect("a file");
    }
    folder
}

fn config(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join("config.json")).expect("a config")).expect("JSON")
}

fn change_config(folder: &Path, changes: &Value) {
    let mut config = config(folder);
    let fields = config.as_object_mut().expect("an object");
    fields.extend(changes.as_object().expect("an object").clone());
    fs::write(folder.join("config.json"), config.to_string()).expect("a config");
}

fn options(target: &Path, algorithm: Option<&str>, draft: Option<&Path>) -> EngineOptions {
    EngineOptions {
        model_path: target.to_owned(),
        draft_model_path: draft.map(ToOwned::to_owned),
        algorithm: algorithm.map(ToOwned::to_owned),
        device: DeviceChoice::Cpu,
        max_running_requests: 3,
        page_size: 4,
        context_length: Some(128),
        ..EngineOptions::default()
    }
}

fn requests() -> Vec<Request> {
    let prompt = |seed: u32| (0..9 + 6 * seed).map(|at| (at * at * 31 + seed * 97) % 60 + 2).collect();
    let stop = StopConditions { max_new_tokens: Some(24), ignore_eos: true, ..StopConditions::default() };
    let request = |seed| Request { input_ids: prompt(seed), sampling: SamplingParams::default(), stop: stop.clone() };
    (0..3).map(request).collect()
}

fn run(engine: &mut Engine, shape: &str) -> Vec<Completion> {
    engine.set_policy(ShapePolicy::fixed(shape.parse().expect("a shape"))).expect("the shape runs");
    engine.run(requests()).expect("the requests run")
}

/// Outputs and number of rounds.
fn outcome(completions: &[Completion]) -> Vec<(Vec<u32>, usize)> {
    completions.iter().map(|completion| (completion.output_ids.clone(), completion.rounds)).collect()
}

fn message<T>(result: Result<T, EngineError>, expected: &[&str]) -> String {
    let Err(error) = result else { panic!("it loads, but should fail with {expected:?}") };
    error.to_string()
}

fn check_refused(options: EngineOptions, expected: &[&str]) {
    let error = message(Engine::load(options), expected);
    for part in expected {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

/// Prefix of the names of the MTP layer's tensors.
fn mtp_prefix(name: &str) -> String {
    match name {
        "mimo" => "model.mtp_layers.0.".into(),
        "qwen3_5" | "qwen3_5_moe" => "mtp.".into(),
        _ => format!("model.layers.{}.", config(&family(name))["num_hidden_layers"]),
    }
}

/// Tokens and number of rounds of each request.
type Outputs = Vec<(Vec<u32>, usize)>;

#[test]
fn targets_draft_with_their_own_mtp_layer_and_lose_nothing() {
    for name in WITH_MTP {
        let target = family(name);
        let mut plain = Engine::load(options(&target, None, None)).expect("the target loads");
        let plain = run(&mut plain, "0,1,1");
        let mut expected: Option<BTreeMap<&str, Outputs>> = None;
        for algorithm in ["NEXTN", "EAGLE", "eagle"] {
            let mut engine = Engine::load(options(&target, Some(algorithm), None)).expect("the MTP layer loads");
            let mut found = BTreeMap::new();
            for shape in ["1,1,2", "3,1,4", "3,4,8", "0,1,1"] {
                let completions = run(&mut engine, shape);
                let same = completions.iter().zip(&plain).all(|(a, b)| a.output_ids == b.output_ids);
                assert!(same, "{name} {algorithm} {shape}: output differs from plain decoding");
                found.insert(shape, outcome(&completions));
            }
            assert!(expected.as_ref().is_none_or(|expected| *expected == found), "{name} {algorithm}");
            expected = Some(found);
        }
    }
}

#[test]
fn a_prompt_that_is_in_the_cache_is_not_read_again_and_drafts_the_same() {
    for name in WITH_MTP {
        let mut engine = Engine::load(options(&family(name), Some("NEXTN"), None)).expect("the MTP layer loads");
        let first = run(&mut engine, "3,4,8");
        let second = run(&mut engine, "3,4,8");
        assert!(second.iter().any(|completion| completion.cached_tokens > 0), "{name}: nothing was in the cache");
        assert_eq!(outcome(&first), outcome(&second), "{name}");
    }
}

/// Checks that the same layer in another layout drafts the same.
fn check_layout(name: &str, what: &str, lay_out: impl Fn(&Path, &Path) -> Option<PathBuf>) {
    let target = copy(name);
    let run = |options| outcome(&run(&mut Engine::load(options).expect("it loads"), "3,4,8"));
    let expected = run(options(target.path(), Some("NEXTN"), None));
    let folder = tempfile::tempdir().expect("a folder");
    let draft = lay_out(target.path(), folder.path());
    assert_eq!(run(options(target.path(), Some("NEXTN"), draft.as_deref())), expected, "{name}: {what}");
}

#[test]
fn mtp_layers_are_found_wherever_they_are_published() {
    for name in WITH_MTP {
        let prefix = mtp_prefix(name);
        let split = |target: &Path| -> (Tensors, Tensors) {
            read(target).into_iter().partition(|(name, _)| name.starts_with(&prefix))
        };
        check_layout(name, "a draft folder that is the target", |target, _| Some(target.to_owned()));
        check_layout(name, "a draft folder of the layer alone", |target, draft| {
            fs::copy(target.join("config.json"), draft.join("config.json")).expect("a file");
            write(&draft.join("model.safetensors"), &split(target).0);
            Some(draft.to_owned())
        });
        check_layout(name, "a file beside the index", |target, _| {
            let (layer, rest) = split(target);
            fs::remove_file(target.join("model.safetensors")).expect("the file");
            write(&target.join("mtp.safetensors"), &layer);
            write(&target.join("model-1.safetensors"), &rest);
            let map: serde_json::Map<_, _> =
                rest.keys().map(|name| (name.clone(), "model-1.safetensors".into())).collect();
            let index = json!({"weight_map": map}).to_string();
            fs::write(target.join("model.safetensors.index.json"), index).expect("an index");
            None
        });
        // Only layers that are numbered after the target's are exported by themselves.
        if !prefix.starts_with("model.layers.") {
            continue;
        }
        check_layout(name, "exported by itself, as layer 0 of one", |target, draft| {
            fs::copy(target.join("config.json"), draft.join("config.json")).expect("a file");
            let class = config(target)["architectures"][0].as_str().expect("a class").to_owned();
            change_config(draft, &json!({"num_hidden_layers": 1, "architectures": [format!("{class}NextN")]}));
            let renamed =
                split(target).0.into_iter().map(|(name, tensor)| (name.replace(&prefix, "model.layers.0."), tensor));
            write(&draft.join("model.safetensors"), &renamed.collect());
            Some(draft.to_owned())
        });
        check_layout(name, "all experts in one tensor", |target, _| {
            change_tensors(target, fuse_experts);
            None
        });
    }
}

/// A tensor of an expert: number of the expert, position in the fused tensor, bytes and shape.
type Expert = (usize, usize, Vec<u8>, Vec<usize>);

/// Fuses experts as transformers 5 does in memory.
fn fuse_experts(tensors: &mut Tensors) {
    let apart: Vec<String> = tensors.keys().filter(|name| name.contains(".mlp.experts.")).cloned().collect();
    let mut fused: BTreeMap<String, Vec<Expert>> = BTreeMap::new();
    for name in apart {
        let (_, shape, data) = tensors.remove(&name).expect("a tensor");
        let (layer, rest) = name.split_once(".experts.").expect("an expert");
        let (expert, part) = rest.split_once('.').expect("a projection");
        let (kind, order) = match part {
            "gate_proj.weight" => ("gate_up_proj", 0),
            "up_proj.weight" => ("gate_up_proj", 1),
            _ => ("down_proj", 0),
        };
        let expert = expert.parse().expect("a number");
        fused.entry(format!("{layer}.experts.{kind}")).or_default().push((expert, order, data, shape));
    }
    for (name, mut parts) in fused {
        parts.sort();
        let experts = parts.last().expect("an expert").0 + 1;
        let rows = parts.len() / experts * parts[0].3[0];
        let shape = vec![experts, rows, parts[0].3[1]];
        let data = parts.into_iter().flat_map(|(_, _, data, _)| data).collect();
        tensors.insert(name, (Dtype::BF16, shape, data));
    }
}

#[test]
fn a_target_without_an_mtp_layer_says_what_to_do() {
    check_refused(options(&family("qwen3"), Some("NEXTN"), None), &["no MTP layer", "--speculative-draft-model-path"]);
    let speculating = EngineOptions {
        policy: ShapePolicy::fixed("3,1,4".parse().expect("a shape")),
        ..options(&family("qwen2"), None, None)
    };
    check_refused(speculating, &["needs a draft", "--speculative-draft-model-path"]);
    check_refused(options(&family("mimo"), Some("EAGLE3"), None), &["EAGLE3 needs a draft", "NEXTN"]);
    for name in ["glm4_moe_air", "mimo"] {
        let target = copy(name);
        let prefix = mtp_prefix(name);
        change_tensors(target.path(), |tensors| tensors.retain(|name, _| !name.starts_with(&prefix)));
        check_refused(options(target.path(), Some("NEXTN"), None), &["MTP layer are missing from", "declares 1"]);
        Engine::load(options(target.path(), None, None)).expect("the target is whole");
    }
    let several = copy("mimo");
    change_config(several.path(), &json!({"num_nextn_predict_layers": 2}));
    check_refused(options(several.path(), Some("NEXTN"), None), &["2 MTP layers", "one MTP layer"]);
    check_refused(options(&family("mimo"), Some("EAGLE3"), Some(&family("mimo"))), &["an MTP layer", "NEXTN"]);
}

#[test]
fn settings_that_change_the_meaning_are_refused() {
    let moe = ["qwen3_moe", "glm4_moe"];
    let latent = ["deepseek_v3", "deepseek_v3_direct"];
    for (names, changes, expected) in [
        (
            &["qwen2", "mimo"][..],
            json!({"use_sliding_window": true, "sliding_window": 64, "max_window_layers": 1, "layer_types": null}),
            "window 64",
        ),
        (&["qwen3"], json!({"hidden_act": "gelu"}), "gelu"),
        (&["qwen3"], json!({"quantization_config": {"quant_method": "fp8"}}), "no tensor in this folder is FP8"),
        (&["qwen3"], json!({"attn_logit_softcapping": 30.0}), "attn_logit_softcapping = 30"),
        (&["qwen3"], json!({"logits_scaling": 8}), "logits_scaling = 8"),
        (
            &["qwen3"],
            json!({"layer_types": ["full_attention", "linear_attention", "full_attention"]}),
            "linear_attention",
        ),
        (
            &["qwen3"],
            json!({"partial_rotary_factor": 0.4, "rope_parameters": {"rope_theta": 1e6}}),
            "partial_rotary_factor",
        ),
        (&["qwen3"], json!({"rope_parameters": {"rope_type": "longrope", "factor": 2}}), "longrope"),
        (&["qwen3"], json!({"rope_parameters": {"rope_theta": 1e6, "mrope_section": [1, 1, 2]}}), "mrope_section"),
        (&["qwen3"], json!({"rope_parameters": "yarn"}), "rope_parameters is \"yarn\", expected an object"),
        (&["mimo"], json!({"use_mrope": true}), "use_mrope = true"),
        (&moe, json!({"scoring_func": "sqrtsoftplus"}), "scoring_func = sqrtsoftplus"),
        (&moe, json!({"topk_method": "group_limited_greedy"}), "topk_method = group_limited_greedy"),
        (&moe, json!({"num_experts_per_tok": 99}), "num_experts_per_tok is 99"),
        (&moe, json!({"num_experts_per_tok": null}), "num_experts_per_tok is missing"),
        (&moe, json!({"moe_layer_freq": 2}), "moe_layer_freq = 2"),
        (&["qwen3_moe"], json!({"num_local_experts": null}), "num_experts is missing"),
        (&["qwen3_moe"], json!({"shared_expert_intermediate_size": 8}), "shared_expert_intermediate_size = 8"),
        (&["qwen3_moe"], json!({"decoder_sparse_step": 0}), "decoder_sparse_step is 0"),
        (&["qwen3_moe"], json!({"mlp_only_layers": "1"}), "mlp_only_layers is \"1\", expected a list of whole numbers"),
        (&["qwen3_moe"], json!({"mlp_only_layers": []}), "model.layers.1.mlp.gate.weight is missing"),
        (&["qwen3_moe"], json!({"num_local_experts": 6}), "[7, 32], expected [6, 32]"),
        (&["glm4_moe"], json!({"n_group": 4}), "of 4 (n_group) equal groups of 6 experts"),
        (&["glm4_moe"], json!({"topk_group": 2}), "2 (topk_group) of 1 (n_group)"),
        (&["glm4_moe"], json!({"use_qk_norm": false}), "no norms of queries and keys"),
        (&["glm4_moe_air"], json!({"use_qk_norm": true}), "self_attn.q_norm.weight is missing"),
        (&["glm4_moe"], json!({"n_shared_experts": 0}), "shared_experts"),
        (&["glm4_moe"], json!({"n_shared_experts": 2}), "expected [20, 32]"),
        (&["glm4_moe"], json!({"first_k_dense_replace": 4}), "the tensor layers.3.mlp"),
        (&["glm4_moe"], json!({"num_nextn_predict_layers": 0}), "one more layer"),
        (&["glm4_moe"], json!({"architectures": ["Glm4ForCausalLM"]}), "Glm4MoeForCausalLM"),
        (&["qwen3_moe"], json!({"architectures": ["Qwen3ForCausalLM"]}), "layers.0.mlp"),
        (&["mimo"], json!({"num_hidden_layers": 2}), "one more layer"),
        (&["qwen3", "glm4_moe"], json!({"kv_lora_rank": 16}), "kv_lora_rank = 16"),
        (&["qwen2"], json!({"rope_interleave": true}), "rope_interleave = true"),
        (&latent, json!({"attention_bias": true}), "attention_bias = true"),
        (&latent, json!({"index_topk": 2048}), "index_topk = 2048"),
        (&latent, json!({"scoring_func": "softmax"}), "scoring_func = softmax"),
        (&latent, json!({"num_key_value_heads": 2}), "num_key_value_heads is 2"),
        (&latent, json!({"kv_lora_rank": null}), "kv_lora_rank is missing"),
        (&latent, json!({"v_head_dim": 8}), "kv_b_proj.weight"),
        (&latent, json!({"qk_rope_head_dim": 5}), "partial_rotary_factor"),
        (&latent, json!({"first_k_dense_replace": 2}), "the tensor layers.1.mlp"),
        (&["deepseek_v3"], json!({"q_lora_rank": null}), "q_a"),
        (&["deepseek_v3_direct"], json!({"q_lora_rank": 24}), "q_proj.weight"),
        (&["deepseek_v3"], json!({"topk_group": 5}), "5 (topk_group) of 4 (n_group)"),
        (
            &latent,
            json!({"rope_parameters": {"rope_type": "linear", "factor": 4, "mscale_all_dim": 1.0}}),
            "mscale_all_dim",
        ),
        (&latent, json!({"architectures": ["DeepseekV32ForCausalLM"]}), "DeepseekV32ForCausalLM"),
        (&["gpt_oss"], json!({"layer_types": ["full_attention"]}), "layer_types names 1 layers"),
        (
            &["gpt_oss"],
            json!({"layer_types": ["full_attention", "chunked", "full_attention"]}),
            "layers of type chunked",
        ),
        (&["gpt_oss"], json!({"sliding_window": null}), "sliding_window is missing"),
        (&["gpt_oss"], json!({"swiglu_limit": -1}), "swiglu_limit is -1"),
        (&["gpt_oss"], json!({"attention_bias": false}), "attention_bias is false"),
        (&["gpt_oss"], json!({"num_local_experts": 5}), "[6, 64], expected [5, 64]"),
        (&["gpt_oss"], json!({"intermediate_size": 64}), "expected [64, 64]"),
        (
            &["gpt_oss"],
            json!({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}),
            "quant_algo = NVFP4",
        ),
        (&["qwen3_moe"], json!({"quantization_config": {"quant_method": "mxfp4"}}), "quant_method = mxfp4"),
    ] {
        for name in names {
            let target = copy(name);
            change_config(target.path(), &changes);
            check_refused(options(target.path(), None, None), &[expected]);
        }
    }
}

#[test]
fn settings_that_say_nothing_new_are_taken() {
    for (name, changes) in [
        ("qwen2", json!({"use_sliding_window": false, "sliding_window": 64, "max_window_layers": 2})),
        ("qwen3", json!({"attn_logit_softcapping": null, "logit_scale": 1.0, "rope_interleave": false})),
        ("qwen3", json!({"rope_parameters": null, "rope_theta": 1e6, "rope_scaling": null})),
        ("qwen3_moe", json!({"num_local_experts": null, "num_experts": 7, "shared_expert_intermediate_size": 0})),
        ("glm4_moe", json!({"scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1})),
        ("glm4_moe", json!({"rope_parameters": null, "rope_theta": 1e6, "partial_rotary_factor": 0.5})),
        ("glm4_moe", json!({"rope_parameters": null, "rope_theta": 1e6})),
        ("deepseek_v3", json!({"rope_interleave": null, "n_shared_experts": null, "moe_layer_freq": 1, "ep_size": 1})),
        ("mimo", json!({"use_mrope": false, "auto_map": {"AutoConfig": "a.B"}, "anything": [1, 2]})),
    ] {
        let outputs = |folder: &Path| {
            let mut engine =
                Engine::load(options(folder, None, None)).unwrap_or_else(|error| panic!("{changes}: {error}"));
            outcome(&run(&mut engine, "0,1,1"))
        };
        let changed = copy(name);
        change_config(changed.path(), &changes);
        assert_eq!(outputs(changed.path()), outputs(&family(name)), "{name} {changes}");
    }
}

#[test]
fn tensors_that_nothing_reads_are_refused() {
    for (name, tensor) in [
        ("qwen3", "model.layers.1.self_attn.sinks"),
        ("qwen3", "model.layers.0.pre_feedforward_layernorm.weight"),
        ("qwen3", "model.norm.bias"),
        ("qwen3_moe", "model.layers.0.mlp.shared_expert.gate_proj.weight"),
        ("qwen3_moe", "model.layers.0.mlp.gate.e_score_correction_bias"),
        ("glm4_moe", "model.layers.3.mlp.experts.6.up_proj.weight"),
        ("glm4_moe", "model.layers.0.self_attn.q_proj.weight_scale"),
        ("mimo", "model.layers.3.input_layernorm.weight"),
    ] {
        let target = copy(name);
        change_tensors(target.path(), |tensors| {
            tensors.insert(tensor.into(), (Dtype::F32, vec![1], vec![0; 4]));
        });
        check_refused(options(target.path(), None, None), &[tensor.trim_start_matches("model.")]);
    }
}

#[test]
fn wrong_tensors_are_named_and_never_panic() {
    for name in ["qwen2", "qwen3_moe_fused", "glm4_moe_air", "mimo", "deepseek_v3_direct"] {
        let algorithm = WITH_MTP.contains(&name).then_some("NEXTN");
        for tensor in read(&family(name)).into_keys() {
            let folder = copy(name);
            let load = || Engine::load(options(folder.path(), algorithm, None));
            let of_fused = tensor.contains(".mlp.experts.") && !tensor.ends_with(".weight");
            let reported = |error: &str| {
                let layer =
                    tensor.trim_start_matches("model.").trim_end_matches("gate_up_proj").trim_end_matches("down_proj");
                error.contains(layer) || error.contains("MTP layer are missing from")
            };
            change_tensors(folder.path(), |tensors| {
                let (_, shape, data) = tensors.get_mut(&tensor).expect("a tensor");
                let rows = shape[0];
                data.truncate(data.len() / rows * (rows - 1));
                shape[0] -= 1;
            });
            let error = message(load(), &[&tensor]);
            let shapes = error.contains("expected [") || error.contains("is missing") || error.contains("biases");
            assert!(reported(&error) && (shapes || of_fused), "{name} {tensor}, a row less: {error}");
            change_tensors(folder.path(), |tensors| drop(tensors.remove(&tensor)));
            match load() {
                // Without norms or biases a layer might be read as one of another kind, unless a
                // setting requires them.
                Ok(_) => panic!("{name} loads without {tensor}"),
                Err(error) => assert!(reported(&error.to_string()), "{name} without {tensor}: {error}"),
            }
        }
    }
}

#[test]
fn truncated_files_are_errors() {
    for name in ["qwen3_moe_fused", "glm4_moe_air", "mimo"] {
        let bytes = fs::read(family(name).join("model.safetensors")).expect("a file");
        let folder = copy(name);
        for length in (0..bytes.len()).step_by(bytes.len() / 61).chain([bytes.len() - 1]) {
            fs::write(folder.path().join("model.safetensors"), &bytes[..length]).expect("a file");
            let error = message(Engine::load(options(folder.path(), Some("NEXTN"), None)), &["model.safetensors"]);
            assert!(error.contains("model.safetensors"), "{length} bytes: {error}");
        }
    }
}

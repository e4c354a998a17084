//! Qwen3.5 in FP8 as it is published: scales of 128 × 128 blocks in bfloat16, projections to β and
//! decays, convolutions, routers, gates of shared experts, the vision tower and the vocabulary head
//! in bfloat16; experts apart or in one tensor; the MTP layer in FP8 or not. Heads have 256
//! elements, of which 64 are rotated, as in the releases.
//!
//! Run by the crate `engine`: `cargo test -p engine --test fp8_qwen3_5`.

use std::{collections::BTreeMap, fs, path::Path};

use engine::{
    Completion, Engine, EngineError, EngineOptions, Event, Request, SamplingParams, ShapePolicy, StopConditions,
    backend::ProducedToken,
    options::{DeviceChoice, Fp8Compute},
};
use half::bf16;
use kernels::reference::FP8_BLOCK;
use safetensors::Dtype;
use serde_json::{Value, json};

use self::{
    quantiser::{Scales, bytes, quantised},
    tensors::{Tensors, write},
};

#[path = "support/quantiser.rs"]
mod quantiser;
#[path = "support/tensors.rs"]
mod tensors;

const HIDDEN: usize = 128;
const VOCABULARY: usize = 64;
const LAYERS: usize = 4;
const HEADS: usize = 2;
const HEAD_DIM: usize = 256;
const INTERMEDIATE: usize = 256;
const EXPERTS: usize = 4;
const KEY_HEADS: usize = 2;
const VALUE_HEADS: usize = 4;
const VALUE_DIM: usize = 128;

/// Of log-probabilities, where activations are rounded to bfloat16.
const BF16_TOLERANCE: f32 = 0.1;
/// Where rows are rounded to E4M3 as well, with steps of an eighth to a sixteenth: a number that
/// another order of sums moves over the middle of a step moves by the whole of it.
const FP8_ROWS_TOLERANCE: f32 = 0.3;

/// How a checkpoint differs from others.
#[derive(Clone, Copy, Debug)]
struct Kind {
    has_experts: bool,
    /// Whether experts share tensors.
    fused: bool,
    /// Whether the MTP layer is in FP8.
    mtp_in_fp8: bool,
    key_dim: usize,
    /// Experts of a token.
    chosen: usize,
}

const DENSE: Kind = Kind { has_experts: false, fused: false, mtp_in_fp8: true, key_dim: 128, chosen: 2 };
const KINDS: [Kind; 4] = [
    DENSE,
    Kind { mtp_in_fp8: false, ..DENSE },
    Kind { has_experts: true, ..DENSE },
    Kind { has_experts: true, fused: true, mtp_in_fp8: false, ..DENSE },
];

/// Reproducible numbers of the usual spread; norms are stored less one.
fn values(name: &str, shape: &[usize]) -> Vec<f32> {
    let seed = name
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    let number = |at: usize| {
        let mixed = (seed ^ at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let count: usize = shape.iter().product();
    let scale = if shape.len() == 1 { 0.1 } else { (3.0 / shape[shape.len() - 1] as f32).sqrt() };
    let offset = match () {
        // Decays that leave something of a state after some tokens.
        () if name.ends_with("A_log") => -3.0,
        () if name.ends_with("linear_attn.norm.weight") => 1.0,
        () => 0.0,
    };
    (0..count).map(|at| bf16::from_f32(offset + scale * number(at)).to_f32()).collect()
}

impl Kind {
    /// Names and shapes of all matrices that are quantised, and of all other tensors.
    fn shapes(self) -> [BTreeMap<String, Vec<usize>>; 2] {
        let (mut in_fp8, mut plain) = (BTreeMap::new(), BTreeMap::new());
        for layer in 0..LAYERS {
            let prefix = format!("model.language_model.layers.{layer}");
            self.layer(&prefix, layer + 1 < LAYERS, &mut in_fp8, &mut plain);
        }
        let (mut mtp_matrices, mut mtp) = (BTreeMap::new(), BTreeMap::new());
        self.layer("mtp.layers.0", false, &mut mtp_matrices, &mut mtp);
        (if self.mtp_in_fp8 { &mut in_fp8 } else { &mut plain }).extend(mtp_matrices);
        plain.extend(mtp);
        for norm in ["model.language_model.norm", "mtp.norm", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden"] {
            plain.insert(format!("{norm}.weight"), vec![HIDDEN]);
        }
        plain.insert("mtp.fc.weight".into(), vec![HIDDEN, 2 * HIDDEN]);
        plain.insert("lm_head.weight".into(), vec![VOCABULARY, HIDDEN]);
        plain.insert("model.language_model.embed_tokens.weight".into(), vec![VOCABULARY, HIDDEN]);
        plain.insert("model.visual.blocks.0.attn.qkv.weight".into(), vec![12, 4]);
        plain.insert("model.visual.merger.linear_fc1.bias".into(), vec![4]);
        [in_fp8, plain]
    }

    fn layer(
        self,
        prefix: &str,
        is_linear: bool,
        in_fp8: &mut BTreeMap<String, Vec<usize>>,
        plain: &mut BTreeMap<String, Vec<usize>>,
    ) {
        let (channels, width) = (2 * KEY_HEADS * self.key_dim + VALUE_HEADS * VALUE_DIM, VALUE_HEADS * VALUE_DIM);
        let mut matrix = |name: &str, outputs: usize, inputs: usize| {
            in_fp8.insert(format!("{prefix}.{name}.weight"), vec![outputs, inputs]);
        };
        let mut other = |name: &str, shape: &[usize]| {
            plain.insert(format!("{prefix}.{name}"), shape.to_vec());
        };
        other("input_layernorm.weight", &[HIDDEN]);
        other("post_attention_layernorm.weight", &[HIDDEN]);
        if is_linear {
            matrix("linear_attn.in_proj_qkv", channels, HIDDEN);
            matrix("linear_attn.in_proj_z", width, HIDDEN);
            matrix("linear_attn.out_proj", HIDDEN, width);
            other("linear_attn.in_proj_a.weight", &[VALUE_HEADS, HIDDEN]);
            other("linear_attn.in_proj_b.weight", &[VALUE_HEADS, HIDDEN]);
            other("linear_attn.conv1d.weight", &[channels, 1, 4]);
            other("linear_attn.A_log", &[VALUE_HEADS]);
            other("linear_attn.dt_bias", &[VALUE_HEADS]);
            other("linear_attn.norm.weight", &[VALUE_DIM]);
        } else {
            matrix("self_attn.q_proj", 2 * HEADS * HEAD_DIM, HIDDEN);
            matrix("self_attn.k_proj", HEADS * HEAD_DIM, HIDDEN);
            matrix("self_attn.v_proj", HEADS * HEAD_DIM, HIDDEN);
            matrix("self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM);
            other("self_attn.q_norm.weight", &[HEAD_DIM]);
            other("self_attn.k_norm.weight", &[HEAD_DIM]);
        }
        let mut block = |module: &str| {
            matrix(&format!("{module}.gate_proj"), INTERMEDIATE, HIDDEN);
            matrix(&format!("{module}.up_proj"), INTERMEDIATE, HIDDEN);
            matrix(&format!("{module}.down_proj"), HIDDEN, INTERMEDIATE);
        };
        if self.has_experts {
            (0..EXPERTS).for_each(|expert| block(&format!("mlp.experts.{expert}")));
            block("mlp.shared_expert");
            other("mlp.gate.weight", &[EXPERTS, HIDDEN]);
            other("mlp.shared_expert_gate.weight", &[1, HIDDEN]);
        } else {
            block("mlp");
        }
    }

    fn config(self) -> Value {
        let (class, kind) = match self.has_experts {
            true => ("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"),
            false => ("Qwen3_5ForConditionalGeneration", "qwen3_5"),
        };
        let mut text = json!({
            "model_type": format!("{kind}_text"), "hidden_size": HIDDEN, "vocab_size": VOCABULARY,
            "num_hidden_layers": LAYERS, "full_attention_interval": LAYERS, "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS, "head_dim": HEAD_DIM, "hidden_act": "silu", "rms_norm_eps": 1e-6,
            "attn_output_gate": true, "max_position_embeddings": 512, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": self.key_dim, "linear_num_key_heads": KEY_HEADS,
            "linear_value_head_dim": VALUE_DIM, "linear_num_value_heads": VALUE_HEADS, "mamba_ssm_dtype": "float32",
            "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false, "dtype": "bfloat16",
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_interleaved": true,
                "mrope_section": [11, 11, 10]
            },
        });
        let sizes = match self.has_experts {
            true => json!({
                "num_experts": EXPERTS, "num_experts_per_tok": self.chosen, "moe_intermediate_size": INTERMEDIATE,
                "shared_expert_intermediate_size": INTERMEDIATE,
            }),
            false => json!({"intermediate_size": INTERMEDIATE}),
        };
        text.as_object_mut().expect("an object").extend(sizes.as_object().expect("an object").clone());
        json!({
            "architectures": [class], "model_type": kind, "text_config": text, "tie_word_embeddings": false,
            "vision_config": {"depth": 1, "hidden_size": 4}, "image_token_id": 62,
        })
    }

    /// The checkpoint in FP8, and one with the same values in float32.
    fn checkpoints(self) -> [tempfile::TempDir; 2] {
        let [matrices, others] = self.shapes();
        let (mut fp8, mut plain) = (Tensors::new(), Tensors::new());
        let short = |values: &[f32]| values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect();
        for (name, shape) in &others {
            let values = values(name, shape);
            plain.insert(name.clone(), (Dtype::F32, shape.clone(), bytes(&values)));
            fp8.insert(name.clone(), (Dtype::BF16, shape.clone(), short(&values)));
        }
        for (name, shape) in matrices {
            let matrix = quantised(&values(&name, &shape), [shape[0], shape[1]], Scales::ShortBlocks);
            plain.insert(name.clone(), (Dtype::F32, shape.clone(), bytes(&matrix.values())));
            let blocks = vec![shape[0].div_ceil(FP8_BLOCK), shape[1].div_ceil(FP8_BLOCK)];
            fp8.insert(format!("{name}_scale_inv"), (Dtype::BF16, blocks, short(matrix.scales())));
            fp8.insert(name, (Dtype::F8_E4M3, shape, matrix.numbers().to_vec()));
        }
        if self.fused {
            fuse(&mut fp8);
        }
        let mut config = self.config();
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        save(folders[1].path(), &plain, &config);
        let kept: Vec<&str> = others.keys().filter_map(|name| name.strip_suffix(".weight")).collect();
        config["quantization_config"] = json!({
            "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
            "modules_to_not_convert": kept,
        });
        save(folders[0].path(), &fp8, &config);
        folders
    }
}

/// Parts of a tensor: type, shape and bytes of each, by expert and by whether it is the second of
/// two.
type Parts = BTreeMap<(usize, bool), (Dtype, Vec<usize>, Vec<u8>)>;

/// Experts of a layer as transformers has them in memory: gate and up in one tensor.
fn fuse(tensors: &mut Tensors) {
    let mut fused: BTreeMap<String, Parts> = BTreeMap::new();
    let apart: Vec<String> = tensors.keys().filter(|name| name.contains(".mlp.experts.")).cloned().collect();
    for name in apart {
        let tensor = tensors.remove(&name).expect("a tensor");
        let (layer, rest) = name.split_once(".experts.").expect("an expert");
        let (expert, part) = rest.split_once('.').expect("a projection");
        let (projection, end) = part.split_once("_proj.weight").expect("a projection");
        let joined = if projection == "down" { "down_proj" } else { "gate_up_proj" };
        let expert: usize = expert.parse().expect("a number");
        let place = fused.entry(format!("{layer}.experts.{joined}{end}")).or_default();
        place.insert((expert, projection == "up"), tensor);
    }
    for (name, parts) in fused {
        let (dtype, first, _) = parts.values().next().expect("a part");
        let (dtype, [rows, columns]) = (*dtype, [first[0], first[1]]);
        let shape = vec![EXPERTS, parts.len() / EXPERTS * rows, columns];
        tensors.insert(name, (dtype, shape, parts.into_values().flat_map(|(.., data)| data).collect()));
    }
}

fn save(folder: &Path, tensors: &Tensors, config: &Value) {
    write(&folder.join("model.safetensors"), tensors);
    fs::write(folder.join("config.json"), config.to_string()).expect("a config");
}

fn options(target: &Path) -> EngineOptions {
    EngineOptions {
        model_path: target.to_owned(),
        algorithm: Some("NEXTN".into()),
        policy: ShapePolicy::fixed("2,2,4".parse().expect("a shape")),
        device: DeviceChoice::Cpu,
        batch_invariant: true,
        max_running_requests: 2,
        page_size: 4,
        context_length: Some(64),
        capture_sizes: vec![2],
        ..EngineOptions::default()
    }
}

/// With weights that are dequantised on the way to products.
fn on_device(target: &Path, ranks: usize) -> EngineOptions {
    EngineOptions {
        device: DeviceChoice::Emulator,
        dtype: "bfloat16".into(),
        tp_size: ranks,
        fp8_compute: Some(Fp8Compute::Weights),
        ..options(target)
    }
}

fn requests() -> Vec<Request> {
    let prompt = |seed: u32| (0..9 + 6 * seed).map(|at| (at * at * 31 + seed * 97) % 60 + 2).collect();
    let stop = StopConditions { max_new_tokens: Some(8), ignore_eos: true, ..StopConditions::default() };
    let sampling = SamplingParams { logprobs: Some(0), ..SamplingParams::default() };
    (0..2).map(|seed| Request { input_ids: prompt(seed), sampling: sampling.clone(), stop: stop.clone() }).collect()
}

/// Outputs and number of rounds.
fn outcome(completions: &[Completion]) -> Vec<(Vec<u32>, usize)> {
    completions.iter().map(|completion| (completion.output_ids.clone(), completion.rounds)).collect()
}

/// What rounds and plain decoding give; the texts are equal.
fn run(options: EngineOptions) -> Vec<(Vec<u32>, usize)> {
    let what = format!("{:?} {:?} on {:?}", options.fp8_compute, options.dtype, options.device);
    let mut engine = Engine::load(options).expect("it loads");
    let rounds = outcome(&engine.run(requests()).expect("it runs"));
    engine.set_policy(ShapePolicy::fixed("0,1,1".parse().expect("a shape"))).expect("no request runs");
    let plain = outcome(&engine.run(requests()).expect("it runs"));
    let texts = |outcome: &[(Vec<u32>, usize)]| outcome.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>();
    assert_eq!(texts(&rounds), texts(&plain), "{what}");
    rounds
}

/// The log-probability of the first token of each request, which follows its prompt.
fn first_tokens(options: EngineOptions) -> Vec<(u32, f32)> {
    let mut engine = Engine::load(options).expect("it loads");
    let mut found = BTreeMap::new();
    for request in requests() {
        engine.submit(request).expect("it fits");
    }
    let logprob = |token: &ProducedToken| token.logprobs.as_ref().map_or(f32::NAN, |of| of.logprob);
    while !engine.is_idle() {
        let mut take = |event| {
            if let Event::Tokens { request, tokens, .. } = event {
                found.entry(request.0).or_insert((tokens[0].id, logprob(&tokens[0])));
            }
        };
        engine.step(&mut take).expect("it runs");
    }
    found.into_values().collect()
}

fn check_near(what: &str, tolerance: f32, found: &[(u32, f32)], expected: &[(u32, f32)]) {
    let near = |((_, found), (_, expected)): (&(u32, f32), &(u32, f32))| (found - expected).abs() < tolerance;
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(near),
        "{what}: {found:?}, expected {expected:?}"
    );
}

#[test]
fn published_layouts_have_the_values_that_they_stand_for() {
    for kind in KINDS {
        let [fp8, plain] = kind.checkpoints();
        assert_eq!(run(options(fp8.path())), run(options(plain.path())), "{kind:?}");
        let engine = Engine::load(options(fp8.path())).expect("it loads");
        assert_eq!(engine.identity().quantised.as_deref(), Some("fp8 weights (e4m3)"), "{kind:?}");
        let products = EngineOptions { fp8_compute: Some(Fp8Compute::Products), ..options(fp8.path()) };
        run(products);
    }
}

/// Needs a C++ compiler for the emulator.
#[test]
fn a_gpu_reads_published_layouts_too() {
    for kind in [KINDS[0], KINDS[3]] {
        let [fp8, plain] = kind.checkpoints();
        let weights = on_device(fp8.path(), 1);
        let default_mode = |options: &EngineOptions| EngineOptions { batch_invariant: false, ..options.clone() };
        run(weights.clone());
        let expected = first_tokens(options(plain.path()));
        check_near(&format!("{kind:?}"), BF16_TOLERANCE, &first_tokens(weights.clone()), &expected);
        check_near(
            &format!("default mode, {kind:?}"),
            BF16_TOLERANCE,
            &first_tokens(default_mode(&weights)),
            &expected,
        );
        let products = EngineOptions { fp8_compute: Some(Fp8Compute::Products), ..weights };
        run(products.clone());
        // Rounding rows to FP8 enlarges the difference between bfloat16 and float32, so the two
        // modes of the device are compared, which have kernels of their own; with all experts for
        // each token, since one that rounding replaces by another changes everything after it.
        let [all_experts, _] = Kind { chosen: EXPERTS, ..kind }.checkpoints();
        let products = EngineOptions { model_path: all_experts.path().to_owned(), ..products };
        let default = first_tokens(default_mode(&products));
        check_near(&format!("products, {kind:?}"), FP8_ROWS_TOLERANCE, &default, &first_tokens(products));
    }
}

/// Needs a C++ compiler for the emulator.
#[test]
fn two_ranks_have_their_parts_of_published_layouts() {
    let kind = KINDS[2];
    let [fp8, plain] = kind.checkpoints();
    run(on_device(fp8.path(), 2));
    check_near(
        "two ranks",
        BF16_TOLERANCE,
        &first_tokens(on_device(fp8.path(), 2)),
        &first_tokens(options(plain.path())),
    );
    // A rank would have half of a block of queries.
    let [narrow, _] = Kind { key_dim: 64, ..DENSE }.checkpoints();
    let Err(error) = Engine::load(on_device(narrow.path(), 2)) else { panic!("blocks cannot be cut") };
    let error: EngineError = error;
    for part in ["--tp-size 2", "in_proj_qkv", "one scale per block of 128"] {
        assert!(error.to_string().contains(part), "{part:?} is not in: {error}");
    }
}

//! Models for the tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Tensor};
use engine::{
    DeviceChoice, EngineOptions, ModelFiles, ShapePolicy,
    spec::{DraftSpec, TensorSpec},
};
use schemas::tree::TreeShape;
use tempfile::TempDir;
use training::{
    TrainingError,
    folder::safetensors,
    head::{Head, SharedWeights, for_tree},
    statistics::Random,
    teacher::Teacher,
};

/// A folder of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A target with its head: `tiny/eagle3`, `tiny/eagle2` or `mimo`.
pub fn options(pair: &str) -> EngineOptions {
    let (model_path, draft_model_path) = match pair {
        "mimo" => (repository("tests/data/families/mimo"), None),
        head => (repository("models/tiny/target"), Some(repository("models").join(head))),
    };
    EngineOptions {
        model_path,
        draft_model_path,
        policy: ShapePolicy::fixed(TreeShape::chain(3)),
        context_length: Some(64),
        max_running_requests: 4,
        device: DeviceChoice::Cpu,
        ..EngineOptions::default()
    }
}

/// A head and its teacher, computing in one type.
pub struct Loaded {
    pub spec: DraftSpec,
    pub head: Head,
    pub teacher: Teacher,
}

/// Loads both; `change` may change values.
pub fn load(options: &EngineOptions, dtype: DType, change: impl Fn(&str, &mut Vec<f32>)) -> Loaded {
    let models = ModelFiles::open(options).expect("the files are there");
    let spec = for_tree(models.draft.clone().expect("a draft"), options.policy.shape(1));
    let tensors = models.target.tensors();
    let matrix = |tensor: &TensorSpec| {
        let values = models.target_values(tensor).expect("values");
        let tensor = Tensor::from_vec(values, tensor.shape.as_slice(), &Device::Cpu);
        tensor.and_then(|tensor| tensor.to_dtype(dtype)).expect("a tensor")
    };
    let embedding = matrix(&tensors.embedding);
    let vocabulary = tensors.head.as_ref().map_or_else(|| embedding.clone(), matrix);
    let shared = SharedWeights { embedding, head: vocabulary };
    let values = |tensor: &TensorSpec| {
        let mut values = models.draft_values(tensor)?;
        change(&tensor.name, &mut values);
        Ok::<_, TrainingError>(values)
    };
    Loaded {
        head: Head::new(&spec, &values, &shared, (dtype, &Device::Cpu)).expect("a head"),
        teacher: Teacher::new(&shared.head, spec.tokens(), true).expect("a teacher"),
        spec,
    }
}

/// Tokens that look random but are always the same.
pub fn tokens(count: usize, vocabulary: usize) -> Vec<u32> {
    let mut state = 9_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize % (vocabulary - 3) + 2) as u32
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// A kind of random block head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Dflash,
    /// DSPARK with this kind of Markov head, with or without a confidence head.
    Dspark(&'static str, bool),
}

/// A head of two layers with random values for the demo's tiny target. The first layer has a window
/// and is causal within the block, the second has neither.
pub fn block_head(kind: BlockKind) -> TempDir {
    const RANK: usize = 8;
    const VOCABULARY: usize = 2048;
    const HIDDEN: usize = 128;
    const HEAD: usize = 16;
    const INTERMEDIATE: usize = 48;
    let mut own = serde_json::json!({
        "mask_token_id": 3, "target_layer_ids": [1, 5], "attention_value_scale": 0.5,
    });
    if let BlockKind::Dspark(markov, confidence) = kind {
        let markov = serde_json::json!({
            "projector_type": "dspark", "markov_rank": RANK, "markov_head_type": markov,
            "enable_confidence_head": confidence, "confidence_head_with_markov": true,
        });
        own.as_object_mut().expect("an object").extend(markov.as_object().expect("an object").clone());
    }
    let architecture = if kind == BlockKind::Dflash { "DFlashDraftModel" } else { "DSparkDraftModel" };
    let config = serde_json::json!({
        "architectures": [architecture], "model_type": "qwen3", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": HEAD,
        "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6, "vocab_size": VOCABULARY, "block_size": 4, "torch_dtype": "float32",
        "max_position_embeddings": 2048,
        "dflash_config": own,
    });
    let mut shapes: Vec<(String, Vec<usize>)> = vec![
        ("fc.weight".into(), vec![HIDDEN, 2 * HIDDEN]),
        ("hidden_norm.weight".into(), vec![HIDDEN]),
        ("norm.weight".into(), vec![HIDDEN]),
    ];
    for layer in 0..2 {
        let mut add =
            |name: &str, shape: &[usize]| shapes.push((format!("layers.{layer}.{name}.weight"), shape.to_vec()));
        add("input_layernorm", &[HIDDEN]);
        add("post_attention_layernorm", &[HIDDEN]);
        add("self_attn.q_proj", &[2 * HEAD, HIDDEN]);
        add("self_attn.k_proj", &[HEAD, HIDDEN]);
        add("self_attn.v_proj", &[HEAD, HIDDEN]);
        add("self_attn.o_proj", &[HIDDEN, 2 * HEAD]);
        add("self_attn.q_norm", &[HEAD]);
        add("self_attn.k_norm", &[HEAD]);
        add("mlp.gate_proj", &[INTERMEDIATE, HIDDEN]);
        add("mlp.up_proj", &[INTERMEDIATE, HIDDEN]);
        add("mlp.down_proj", &[HIDDEN, INTERMEDIATE]);
    }
    if let BlockKind::Dspark(markov, confidence) = kind {
        shapes.push(("markov_head.markov_w1.weight".into(), vec![VOCABULARY, RANK]));
        shapes.push(("markov_head.markov_w2.weight".into(), vec![VOCABULARY, RANK]));
        let cell = match markov {
            "gated" => Some(("gate", RANK, HIDDEN + RANK)),
            "rnn" => Some(("joint", 3 * RANK, 2 * RANK + HIDDEN)),
            _ => None,
        };
        let markov = cell.map(|(name, outputs, inputs)| (format!("markov_head.{name}_proj"), outputs, inputs));
        let confidence = confidence.then(|| ("confidence_head.proj".to_owned(), 1, HIDDEN + RANK));
        for (name, outputs, inputs) in markov.into_iter().chain(confidence) {
            shapes.push((format!("{name}.weight"), vec![outputs, inputs]));
            shapes.push((format!("{name}.bias"), vec![outputs]));
        }
    }
    let mut random = Random::new(5);
    let mut values = |shape: &[usize]| -> Vec<u8> {
        let (base, noise) = if shape.len() > 1 { (0.0, 0.08) } else { (1.0, 0.2) };
        let count = shape.iter().product();
        (0..count).flat_map(|_| ((base + noise * random.normal()) as f32).to_le_bytes()).collect()
    };
    let tensors: Vec<_> = shapes.iter().map(|(name, shape)| (name.as_str(), shape, values(shape))).collect();
    let views: Vec<_> = tensors.iter().map(|(name, shape, bytes)| (*name, "F32", &shape[..], &bytes[..])).collect();
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
    fs::write(folder.path().join("model.safetensors"), safetensors(&views)).expect("written");
    folder
}

/// The tiny target with a block head, which drafts a tree of its whole block.
pub fn block_options(head: &TempDir) -> EngineOptions {
    EngineOptions {
        draft_model_path: Some(head.path().to_owned()),
        policy: ShapePolicy::fixed(BLOCK_TREE),
        ..options("tiny/eagle3")
    }
}

/// A tree of a block of four rows.
pub const BLOCK_TREE: TreeShape = TreeShape::whole_tree(3, 4, 24);

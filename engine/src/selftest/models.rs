//! A small random target with its drafts, in the published format, in a temporary folder.

mod blocks;
mod gpt_oss;
mod standalone;

use std::{
    collections::BTreeMap,
    fmt,
    fs::{create_dir_all, remove_dir_all, write},
    path::{Path, PathBuf},
};

use kernels::reference::{DeltaSizes, GateActivation, RopeScaling};
use serde_json::{Map, Value, json};

use crate::{
    error::EngineError,
    random::uniform,
    spec::{
        AttentionSpec, CacheFormat, CaptureNorms, CapturedFeatures, DeltaNet, DenseSpec, DraftSource, EmbeddingSource,
        ExpertsLayout, ExpertsSpec, Features, Feedback, FfnSpec, GroupedQuery, Join, LayerFormats, LayerSpec,
        LinearSpec, MultiHeadLatent, NormWeights, Pairing, RecurrentSpec, RecurrentTensorLayout, RopeSpec,
        RouterPrecision, RouterScore, RouterSpec, TargetSpec, TensorSpec, VocabularySource,
    },
};

/// Size of the target's vocabulary: small, so that a random draft is sometimes right.
pub const VOCABULARY: usize = 24;
/// A target with its draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    /// A dense target with an EAGLE-3 head.
    Eagle3,
    /// The same with an EAGLE-1/2 head.
    Eagle,
    /// Qwen3-MoE's layers, one of them dense, with an EAGLE-3 head.
    Qwen3Moe,
    /// GLM-4.5's layers with their MTP layer.
    Glm,
    /// MiMo's layers with their MTP layer.
    Mimo,
    /// DeepSeek-V3's layers with their MTP layer.
    DeepSeek,
    /// Qwen3.5's layers, with gated delta nets, and their MTP layer.
    Qwen35,
    /// The same with experts.
    Qwen35Moe,
    /// The same target, dense, with an EAGLE-3 head.
    Qwen35Eagle3,
    /// With a DSPARK head.
    Qwen35Dspark,
    /// With experts and a DFLASH head.
    Qwen35MoeDflash,
    /// gpt-oss's layers with an EAGLE-3 head.
    GptOss,
    /// A dense target with a DFLASH head.
    Dflash,
    /// The same with a DSPARK head.
    Dspark,
    /// The same with a whole model that drafts.
    Standalone,
}

/// All pairs.
pub const PAIRS: [Pair; 15] = [
    Pair::Eagle3,
    Pair::Eagle,
    Pair::Qwen3Moe,
    Pair::Glm,
    Pair::Mimo,
    Pair::DeepSeek,
    Pair::Qwen35,
    Pair::Qwen35Moe,
    Pair::Qwen35Eagle3,
    Pair::Qwen35Dspark,
    Pair::Qwen35MoeDflash,
    Pair::GptOss,
    Pair::Dflash,
    Pair::Dspark,
    Pair::Standalone,
];

const HIDDEN: usize = 48;
const INTERMEDIATE: usize = 80;
const LAYERS: usize = 6;
/// A size for which the GPU has kernels.
const HEAD_DIM: usize = 64;
pub const QUERY_HEADS: usize = 2;
const KEY_VALUE_HEADS: usize = 1;
const DRAFT_VOCABULARY: usize = 16;
const EPSILON: f32 = 1e-5;
const EXPERTS: usize = 6;
const EXPERTS_PER_TOKEN: usize = 2;
/// So large that half of it, the part of one of two ranks, is read in whole accesses; layers in FP8
/// have at least sixteen inputs.
const EXPERT_INTERMEDIATE: usize = 32;
const QUERY_RANK: usize = 40;
const LATENT_RANK: usize = 64;
const NOPE_DIM: usize = 32;
const ROTATED: usize = 16;
const VALUE_DIM: usize = 64;
/// Of the layers of Qwen3.5, every third has full attention.
const INTERVAL: usize = 3;
/// The smallest heads for which the GPU has kernels, as many as two ranks can split.
const DELTA: DeltaSizes = DeltaSizes { key_heads: 2, value_heads: 4, key_dim: 32, value_dim: 32, taps: 4 };

impl Pair {
    /// Whether layers of the target have a state in place of a cache.
    pub fn has_states(self) -> bool {
        matches!(self, Self::Qwen35 | Self::Qwen35Eagle3 | Self::Qwen35Dspark | Self::Qwen35Moe | Self::Qwen35MoeDflash)
    }

    /// Whether the target has layers with experts.
    pub fn has_experts(self) -> bool {
        matches!(self, Self::Qwen3Moe | Self::Glm | Self::DeepSeek | Self::GptOss) || self.target() == "qwen3_5_moe"
    }

    /// Whether the target's sequences have a state beside their pages.
    pub fn keeps_states(self) -> bool {
        matches!(self.target(), "qwen3_5" | "qwen3_5_moe")
    }

    /// SGLang's name of the draft's algorithm.
    pub fn algorithm(self) -> &'static str {
        match self {
            Self::Eagle3 | Self::Qwen3Moe | Self::Qwen35Eagle3 | Self::GptOss => "EAGLE3",
            Self::Eagle => "EAGLE",
            Self::Glm | Self::Mimo | Self::DeepSeek | Self::Qwen35 | Self::Qwen35Moe => "NEXTN",
            Self::Dflash | Self::Qwen35MoeDflash => "DFLASH",
            Self::Dspark | Self::Qwen35Dspark => "DSPARK",
            Self::Standalone => "STANDALONE",
        }
    }

    fn target(self) -> &'static str {
        match self {
            Self::Eagle3 | Self::Eagle | Self::Dflash | Self::Dspark | Self::Standalone => "llama",
            Self::Qwen3Moe => "qwen3_moe",
            Self::Glm => "glm4_moe",
            Self::Mimo => "mimo",
            Self::DeepSeek => "deepseek_v3",
            Self::Qwen35 | Self::Qwen35Eagle3 | Self::Qwen35Dspark => "qwen3_5",
            Self::Qwen35Moe | Self::Qwen35MoeDflash => "qwen3_5_moe",
            Self::GptOss => "gpt_oss",
        }
    }

    /// Width of the stream.
    fn hidden(self) -> usize {
        if self == Self::GptOss { gpt_oss::HIDDEN } else { HIDDEN }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eagle3 | Self::Eagle | Self::Dflash | Self::Dspark | Self::Standalone => {
                formatter.write_str(self.algorithm())
            }
            _ => write!(formatter, "{} of {}", self.algorithm(), self.target()),
        }
    }
}

/// The folders of the models.
pub struct RandomModels {
    folder: PathBuf,
}

impl RandomModels {
    /// Writes the models.
    ///
    /// # Errors
    /// When the folder for temporary files cannot be written.
    pub fn write() -> Result<Self, EngineError> {
        Self::write_seeded(0)
    }

    /// The same with weights from a seed.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_seeded(seed: u64) -> Result<Self, EngineError> {
        let name = format!("spectune-selftest-{}-{:?}-{seed}", std::process::id(), std::thread::current().id());
        let models = Self { folder: std::env::temp_dir().join(name.replace(['(', ')'], "")) };
        let base = json!({
            "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
            "num_attention_heads": QUERY_HEADS, "num_key_value_heads": KEY_VALUE_HEADS, "head_dim": HEAD_DIM,
            "vocab_size": VOCABULARY, "rms_norm_eps": EPSILON, "max_position_embeddings": 128, "torch_dtype": "float32",
        });
        let with_targets = [
            Pair::Eagle3,
            Pair::Qwen3Moe,
            Pair::Glm,
            Pair::Mimo,
            Pair::DeepSeek,
            Pair::Qwen35,
            Pair::Qwen35Moe,
            Pair::GptOss,
        ];
        for pair in with_targets {
            let mut tensors = shapes(target(pair).tensors().all());
            if pair == Pair::GptOss {
                tensors = gpt_oss::packed(tensors);
            }
            if let Some(mtp) = mtp(pair) {
                tensors.extend(shapes(mtp.tensors(VOCABULARY).all()));
            }
            let common = json!({"num_hidden_layers": LAYERS, "tie_word_embeddings": false});
            save(&models.target(pair), with(&with(&base, common), config(pair)), tensors, seed)?;
        }
        for pair in [Pair::Eagle3, Pair::Qwen3Moe, Pair::GptOss] {
            let head = json!({
                "num_hidden_layers": 1, "draft_vocab_size": DRAFT_VOCABULARY, "hidden_size": pair.hidden(),
            });
            let own = match pair {
                Pair::Qwen3Moe => with(&config(pair), json!({"architectures": ["Qwen3MoeForCausalLMEagle3"]})),
                _ => json!({"architectures": ["LlamaForCausalLMEagle3"]}),
            };
            let tensors = hot(shapes(eagle3(pair).tensors(VOCABULARY).all()));
            save(&models.head(pair), with(&with(&base, own), head), tensors, seed)?;
        }
        save(
            &models.folder.join("EAGLE"),
            with(&base, json!({"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1, "bias": false})),
            shapes(eagle().tensors(VOCABULARY).all()),
            seed,
        )?;
        for pair in [Pair::Dflash, Pair::Dspark] {
            let tensors = shapes(blocks::spec(pair).tensors(VOCABULARY).all());
            save(&models.folder.join(pair.algorithm()), with(&base, blocks::config(pair)), tensors, seed)?;
        }
        save(
            &models.folder.join(Pair::Standalone.algorithm()),
            standalone::config(),
            shapes(standalone::spec().tensors().all()),
            seed,
        )?;
        Ok(models)
    }

    /// The target's folder.
    pub fn target(&self, pair: Pair) -> PathBuf {
        self.folder.join(pair.target())
    }

    /// The draft's folder, if it has one.
    pub fn draft(&self, pair: Pair) -> Option<PathBuf> {
        mtp(pair).is_none().then(|| self.head(pair))
    }

    fn head(&self, pair: Pair) -> PathBuf {
        match pair {
            Pair::GptOss => self.folder.join("EAGLE3-gpt_oss"),
            Pair::Qwen3Moe => self.folder.join("EAGLE3-qwen3_moe"),
            _ => self.folder.join(pair.algorithm()),
        }
    }
}

impl Drop for RandomModels {
    fn drop(&mut self) {
        // Leftovers in the temporary folder are harmless.
        let _ = remove_dir_all(&self.folder);
    }
}

/// The part of a target's config.json that depends on its family.
fn config(pair: Pair) -> Value {
    match pair {
        Pair::Eagle3 | Pair::Eagle | Pair::Dflash | Pair::Dspark | Pair::Standalone => {
            json!({"architectures": ["LlamaForCausalLM"]})
        }
        Pair::Qwen3Moe => json!({
            "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": EXPERTS,
            "num_experts_per_tok": EXPERTS_PER_TOKEN, "moe_intermediate_size": EXPERT_INTERMEDIATE,
            "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [1],
        }),
        Pair::Glm => json!({
            "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "n_routed_experts": EXPERTS,
            "num_experts_per_tok": EXPERTS_PER_TOKEN, "moe_intermediate_size": EXPERT_INTERMEDIATE,
            "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "norm_topk_prob": true,
            "routed_scaling_factor": 2.5, "use_qk_norm": true, "attention_bias": true, "partial_rotary_factor": 0.5,
            "num_nextn_predict_layers": 1,
        }),
        Pair::Mimo => json!({
            "architectures": ["MiMoForCausalLM"], "model_type": "mimo", "attention_bias": true,
            "num_nextn_predict_layers": 1,
        }),
        Pair::DeepSeek => json!({
            "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "n_routed_experts": EXPERTS,
            "num_experts_per_tok": EXPERTS_PER_TOKEN, "moe_intermediate_size": EXPERT_INTERMEDIATE,
            "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "norm_topk_prob": true,
            "routed_scaling_factor": 2.5, "num_key_value_heads": QUERY_HEADS, "q_lora_rank": QUERY_RANK,
            "kv_lora_rank": LATENT_RANK, "qk_nope_head_dim": NOPE_DIM, "qk_rope_head_dim": ROTATED,
            "v_head_dim": VALUE_DIM, "num_nextn_predict_layers": 1,
        }),
        Pair::Qwen35 | Pair::Qwen35Eagle3 | Pair::Qwen35Dspark | Pair::Qwen35Moe | Pair::Qwen35MoeDflash => {
            qwen35_config(pair)
        }
        Pair::GptOss => gpt_oss::config(),
    }
}

fn qwen35_config(pair: Pair) -> Value {
    let config = json!({
        "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "full_attention_interval": INTERVAL,
        "attn_output_gate": true, "linear_num_key_heads": DELTA.key_heads, "linear_num_value_heads": DELTA.value_heads,
        "linear_key_head_dim": DELTA.key_dim, "linear_value_head_dim": DELTA.value_dim,
        "linear_conv_kernel_dim": DELTA.taps, "partial_rotary_factor": 0.25, "mtp_num_hidden_layers": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    });
    match pair.has_experts() {
        false => config,
        true => with(
            &config,
            json!({
                "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", "num_experts": EXPERTS,
                "num_experts_per_tok": EXPERTS_PER_TOKEN, "moe_intermediate_size": EXPERT_INTERMEDIATE,
                "shared_expert_intermediate_size": EXPERT_INTERMEDIATE,
            }),
        ),
    }
}

/// The target's spec.
fn target(pair: Pair) -> TargetSpec {
    let layers = (0..LAYERS).map(|at| target_layer(pair, at)).collect();
    let (hidden, vocabulary) = (pair.hidden(), VOCABULARY);
    TargetSpec { hidden, vocabulary, head_rows: vocabulary, tied: false, epsilon: EPSILON, layers }
}

/// A layer of a target; the one after the last is the MTP layer's.
fn target_layer(pair: Pair, at: usize) -> LayerSpec {
    let mut layer = LayerSpec { input_norm: true, ..layer(HIDDEN) };
    if let AttentionSpec::Grouped(attention) = &mut layer.attention {
        attention.head_norms = matches!(pair, Pair::Qwen3Moe | Pair::Glm);
        attention.qkv_bias = matches!(pair, Pair::Glm | Pair::Mimo);
        if pair == Pair::Glm {
            attention.rope.dims = HEAD_DIM / 2;
        }
    }
    if pair.keeps_states() {
        layer.norms = NormWeights::LessOne;
        // The MTP layer has full attention.
        if at < LAYERS && !(at + 1).is_multiple_of(INTERVAL) {
            layer.attention = AttentionSpec::Delta(DeltaNet { input: HIDDEN, output: HIDDEN, sizes: DELTA });
        }
        if let AttentionSpec::Grouped(attention) = &mut layer.attention {
            (attention.head_norms, attention.output_gate, attention.rope.dims) = (true, true, HEAD_DIM / 4);
        }
    }
    if pair == Pair::GptOss {
        return gpt_oss::layer(layer, at);
    }
    if pair == Pair::DeepSeek {
        layer.attention = AttentionSpec::Latent(latent());
    }
    let router = RouterSpec {
        score: RouterScore::Softmax,
        logits: RouterPrecision::Model,
        renormalise: Some(0.0),
        correction_bias: false,
        groups: 1,
        groups_kept: 1,
        scaling: 1.0,
        uniform: false,
    };
    let (router, shared) = match pair {
        Pair::Qwen3Moe if at != 1 => (router, None),
        Pair::Qwen35Moe => (router, Some(EXPERT_INTERMEDIATE)),
        Pair::Glm | Pair::DeepSeek if at >= 1 => {
            let router = RouterSpec {
                score: RouterScore::Sigmoid,
                logits: RouterPrecision::Float32,
                renormalise: Some(1e-20),
                correction_bias: true,
                groups: 2,
                groups_kept: 1,
                scaling: 2.5,
                uniform: false,
            };
            (router, Some(EXPERT_INTERMEDIATE))
        }
        _ => return layer,
    };
    let (experts, per_token, intermediate) = (EXPERTS, EXPERTS_PER_TOKEN, EXPERT_INTERMEDIATE);
    layer.ffn = FfnSpec::Experts(ExpertsSpec {
        router,
        experts,
        per_token,
        intermediate,
        shared,
        shared_gate: pair == Pair::Qwen35Moe,
        activation: GateActivation::Silu,
        bias: false,
        layout: ExpertsLayout::Separate,
    });
    layer
}

/// DeepSeek's attention, in the smallest sizes for which the GPU has kernels, including those for
/// expanded prompts.
fn latent() -> MultiHeadLatent {
    let pairing = Pairing::Interleaved;
    MultiHeadLatent {
        input: HIDDEN,
        output: HIDDEN,
        heads: QUERY_HEADS,
        query_rank: Some(QUERY_RANK),
        latent_rank: LATENT_RANK,
        nope_dim: NOPE_DIM,
        value_dim: VALUE_DIM,
        score_scale: 1.0 / ((NOPE_DIM + ROTATED) as f32).sqrt(),
        rope: RopeSpec { dims: ROTATED, pairing, theta: 10_000.0, scaling: RopeScaling::None },
    }
}

/// The MTP layer of a target's own checkpoint.
fn mtp(pair: Pair) -> Option<RecurrentSpec> {
    let (tensors, hidden_first) = match pair {
        Pair::Glm | Pair::DeepSeek => {
            (RecurrentTensorLayout::NextN { prefix: TargetSpec::layer_prefix(LAYERS) }, false)
        }
        Pair::Qwen35 | Pair::Qwen35Moe => (RecurrentTensorLayout::QwenMtp, false),
        Pair::Mimo => (RecurrentTensorLayout::Mimo { prefix: "model.mtp_layers.0".into() }, true),
        _ => return None,
    };
    Some(RecurrentSpec {
        source: DraftSource::Target,
        tensors,
        join: Join::NormedLinear { hidden_first, zero_first_embedding: hidden_first },
        layer: target_layer(pair, LAYERS),
        feedback: Feedback::Normed,
        ..eagle()
    })
}

/// An EAGLE-1/2 head.
fn eagle() -> RecurrentSpec {
    RecurrentSpec {
        source: DraftSource::Folder,
        tensors: RecurrentTensorLayout::Eagle { layer: "layers.0".into() },
        features: Features::Final,
        join: Join::Linear { bias: false },
        layer: layer(HIDDEN),
        feedback: Feedback::Output,
        embedding: EmbeddingSource::Target,
        head: VocabularySource::Target,
        vocabulary: VOCABULARY,
        head_rows: VOCABULARY,
        tokens: None,
    }
}

/// An EAGLE-3 head that captures three layers; that of Qwen3-MoE has experts itself.
fn eagle3(pair: Pair) -> RecurrentSpec {
    let hidden = pair.hidden();
    let captured = CapturedFeatures {
        at: vec![2, LAYERS / 2, LAYERS - 3],
        width: hidden,
        norms: CaptureNorms::default(),
        fc: Some(LinearSpec { bias: false }),
    };
    RecurrentSpec {
        tensors: RecurrentTensorLayout::Eagle3 { layer: "midlayer".into() },
        features: Features::Captured(captured),
        join: Join::NormedIntoAttention { residual_is_normed: false },
        layer: match pair {
            Pair::Qwen3Moe => LayerSpec { ffn: target_layer(pair, 0).ffn, ..layer_of(hidden, 2 * hidden) },
            _ => layer_of(hidden, 2 * hidden),
        },
        feedback: Feedback::NormedForTokens,
        head: VocabularySource::Own,
        vocabulary: DRAFT_VOCABULARY,
        head_rows: DRAFT_VOCABULARY,
        ..eagle()
    }
}

/// A layer without an input norm whose attention reads this many values.
fn layer(input: usize) -> LayerSpec {
    layer_of(HIDDEN, input)
}

/// The same with another width of the stream.
fn layer_of(hidden: usize, input: usize) -> LayerSpec {
    let rope = RopeSpec { dims: HEAD_DIM, pairing: Pairing::Halves, theta: 10_000.0, scaling: RopeScaling::None };
    LayerSpec {
        hidden,
        epsilon: EPSILON,
        input_norm: false,
        norms: NormWeights::Whole,
        attention: AttentionSpec::Grouped(GroupedQuery {
            input,
            output: hidden,
            heads: QUERY_HEADS,
            key_value_heads: KEY_VALUE_HEADS,
            head_dim: HEAD_DIM,
            qkv_bias: false,
            output_bias: false,
            head_norms: false,
            output_gate: false,
            rope,
            sinks: false,
            window: None,
            cache: CacheFormat::Plain,
        }),
        ffn: FfnSpec::Dense(DenseSpec { intermediate: INTERMEDIATE, bias: false }),
        formats: LayerFormats::default(),
    }
}

/// Names and shapes, sorted by name.
fn shapes(tensors: Vec<&TensorSpec>) -> BTreeMap<String, Vec<usize>> {
    tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect()
}

/// Adds the map of the draft's tokens, which is not a weight.
fn hot(mut shapes: BTreeMap<String, Vec<usize>>) -> BTreeMap<String, Vec<usize>> {
    shapes.insert("d2t".into(), vec![DRAFT_VOCABULARY]);
    shapes
}

fn with(base: &Value, more: Value) -> Value {
    let mut config = base.clone();
    if let (Some(config), Value::Object(more)) = (config.as_object_mut(), more) {
        config.extend(more);
    }
    config
}

fn save(folder: &Path, config: Value, shapes: BTreeMap<String, Vec<usize>>, seed: u64) -> Result<(), EngineError> {
    let failed = |source| EngineError::Read { path: folder.to_owned(), source };
    create_dir_all(folder).map_err(failed)?;
    write(folder.join("config.json"), config.to_string()).map_err(failed)?;
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (number, (name, shape)) in shapes.into_iter().enumerate() {
        let begin = data.len();
        let random = |at: usize| uniform(seed << 32 | number as u64, at);
        let packed = gpt_oss::bytes(&name, shape.iter().product(), random);
        let dtype = if let Some(bytes) = packed {
            data.extend(bytes);
            "U8"
        } else if name == "d2t" {
            // Every second token, then consecutive ones up to the end of the target's vocabulary.
            let offsets = (0..shape[0] as i64).map(|at| at.min((VOCABULARY - DRAFT_VOCABULARY) as i64));
            data.extend(offsets.flat_map(i64::to_le_bytes));
            "I64"
        } else {
            let mut values = values(seed << 32 | number as u64, &shape);
            if name.ends_with("A_log") {
                // Decays that leave something of a state after some tokens.
                values.iter_mut().for_each(|value| *value -= 4.0);
            }
            data.extend(values.into_iter().flat_map(f32::to_le_bytes));
            "F32"
        };
        header.insert(name, json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()]}));
    }
    // The format of safetensors: the header's length, the header, the data.
    let header = Value::from(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    write(folder.join("model.safetensors"), file).map_err(failed)
}

/// Uniform weights with the usual spread; norm weights around one.
fn values(seed: u64, shape: &[usize]) -> Vec<f32> {
    let count = shape.iter().product();
    let number = |at| uniform(seed, at) as f32 * 2.0 - 1.0;
    match shape {
        [_] => (0..count).map(|at| 1.0 + 0.1 * number(at)).collect(),
        _ => (0..count).map(|at| number(at) * (3.0 / shape[shape.len() - 1] as f32).sqrt()).collect(),
    }
}

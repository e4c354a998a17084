//! A random EAGLE-3 head with a layer like the target's, in the published format.

use std::{fs, path::Path};

use engine::{
    EngineOptions, ModelFiles, ReplayText,
    spec::{
        AttentionSpec, CacheFormat, CaptureNorms, CapturedFeatures, DenseSpec, DraftSource, EmbeddingSource, Features,
        Feedback, FfnSpec, GroupedQuery, Join, LayerFormats, LayerSpec, LinearSpec, NormWeights, RecurrentSpec,
        RecurrentTensorLayout, Role, TargetSpec, TensorSpec, VocabularySource,
    },
};
use half::bf16;
use schemas::train::TrainFile;
use serde_json::{Map, Value, json};

use crate::{
    error::TrainingError,
    folder::{make_whole, safetensors, write_whole},
    statistics::Random,
};

/// Standard deviation of random matrices, as in Llama's `initializer_range`.
const DEVIATION: f64 = 0.02;

/// Writes the head. Its vocabulary consists of the most frequent tokens of the texts.
///
/// # Errors
/// When heads do not support the kind of the target's layers, or a file cannot be written.
pub fn write(
    models: &ModelFiles,
    options: &EngineOptions,
    file: &TrainFile,
    texts: &[&ReplayText],
    to: &Path,
) -> Result<(), TrainingError> {
    let target = &models.target;
    let hot = hot_tokens(target.vocabulary, file.models.draft_vocabulary, texts)?;
    let (spec, heads) = describe(target, &hot)?;
    let mut random = Random::new(file.training.seed ^ 0xface);
    let mut tensors: Vec<(String, &str, Vec<usize>, Vec<u8>)> = Vec::new();
    for tensor in spec.tensors(target.vocabulary).all() {
        tensors.push((tensor.name.clone(), "BF16", tensor.shape.clone(), values(tensor, &mut random)));
    }
    let offsets = hot.iter().enumerate().flat_map(|(at, token)| (i64::from(*token) - at as i64).to_le_bytes());
    tensors.push(("d2t".into(), "I64", vec![hot.len()], offsets.collect()));
    let mut is_hot = vec![0_u8; target.vocabulary];
    hot.iter().for_each(|token| is_hot[*token as usize] = 1);
    tensors.push(("t2d".into(), "BOOL", vec![target.vocabulary], is_hot));
    let config = config(&options.model_path.join("config.json"), target, heads, &spec, hot.len())?;
    let views: Vec<_> = (tensors.iter())
        .map(|(name, dtype, shape, bytes)| (name.as_str(), *dtype, shape.as_slice(), bytes.as_slice()))
        .collect();
    make_whole(to, |part| {
        write_whole(&part.join("config.json"), serde_json::to_string_pretty(&config).unwrap_or_default().as_bytes())?;
        write_whole(&part.join("model.safetensors"), &safetensors(&views))
    })
}

/// The most frequent tokens of texts, ascending; if there are too few, the lowest unused tokens are
/// added.
fn hot_tokens(vocabulary: usize, wanted: Option<usize>, texts: &[&ReplayText]) -> Result<Vec<u32>, TrainingError> {
    let wanted = wanted.unwrap_or(vocabulary);
    if wanted > vocabulary {
        return Err(TrainingError::Configuration(format!(
            "models.draft_vocabulary is {wanted}, but the target has only {vocabulary} tokens"
        )));
    }
    let mut counts = vec![0_u64; vocabulary];
    for token in texts.iter().flat_map(|text| &text.tokens) {
        if let Some(count) = counts.get_mut(*token as usize) {
            *count += 1;
        }
    }
    let mut tokens: Vec<u32> = (0..vocabulary as u32).collect();
    // A stable sort: tokens that never occur fill the rest in the order of their ids.
    tokens.sort_by_key(|token| std::cmp::Reverse(counts[*token as usize]));
    tokens.truncate(wanted);
    // In the order of ids, as published heads store them.
    tokens.sort_unstable();
    Ok(tokens)
}

/// The head's spec.
fn describe(target: &TargetSpec, hot: &[u32]) -> Result<(RecurrentSpec, GroupedQuery), TrainingError> {
    let layers = target.layers.len();
    let first = target.layers.first().filter(|_| layers >= 4).ok_or_else(|| {
        TrainingError::Configuration(format!(
            "a target of {layers} layers has no default layers to capture, expected 4"
        ))
    })?;
    let Some(heads) = first.attention.grouped() else {
        return Err(TrainingError::Configuration(
            "random heads for targets with latent attention are not supported yet".into(),
        ));
    };
    let hidden = target.hidden;
    let intermediate = match &first.ffn {
        FfnSpec::Dense(dense) => dense.intermediate,
        // As wide as the experts that a row passes through.
        FfnSpec::Experts(experts) => experts.per_token * experts.intermediate + experts.shared.unwrap_or_default(),
    };
    let attention = GroupedQuery {
        input: 2 * hidden,
        output: hidden,
        qkv_bias: false,
        output_bias: false,
        head_norms: false,
        sinks: false,
        window: None,
        cache: CacheFormat::Plain,
        output_gate: false,
        ..*heads
    };
    let spec = RecurrentSpec {
        source: DraftSource::Folder,
        tensors: RecurrentTensorLayout::Eagle3 { layer: "midlayer".into() },
        features: Features::Captured(CapturedFeatures {
            // The layers that SGLang captures if a head's configuration names none.
            at: vec![2, layers / 2, layers - 3],
            width: hidden,
            norms: CaptureNorms::default(),
            fc: Some(LinearSpec { bias: false }),
        }),
        join: Join::NormedIntoAttention { residual_is_normed: false },
        layer: LayerSpec {
            hidden,
            epsilon: target.epsilon,
            input_norm: false,
            norms: NormWeights::Whole,
            attention: AttentionSpec::Grouped(attention),
            ffn: FfnSpec::Dense(DenseSpec { intermediate, bias: false }),
            formats: LayerFormats::default(),
        },
        feedback: Feedback::NormedForTokens,
        embedding: EmbeddingSource::Target,
        head: VocabularySource::Own,
        vocabulary: hot.len(),
        head_rows: hot.len(),
        tokens: Some(hot.to_vec()),
    };
    Ok((spec, attention))
}

fn values(tensor: &TensorSpec, random: &mut Random) -> Vec<u8> {
    let value = |random: &mut Random| match tensor.role {
        Role::Norm => 1.0,
        _ => random.normal() * DEVIATION,
    };
    (0..tensor.values()).flat_map(|_| bf16::from_f64(value(random)).to_le_bytes()).collect()
}

/// The head's config.json: fields that it shares with the target, and its own.
fn config(
    target_config: &Path,
    target: &TargetSpec,
    heads: GroupedQuery,
    spec: &RecurrentSpec,
    vocabulary: usize,
) -> Result<Value, TrainingError> {
    const SHARED: [&str; 6] =
        ["bos_token_id", "eos_token_id", "max_position_embeddings", "rope_theta", "rope_scaling", "rope_parameters"];
    let text = fs::read_to_string(target_config).map_err(TrainingError::read(target_config))?;
    let of_target: Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| TrainingError::malformed(target_config, error.to_string()))?;
    let mut config = Map::new();
    config.insert("architectures".into(), json!(["LlamaForCausalLMEagle3"]));
    config.insert("model_type".into(), json!("llama"));
    for key in SHARED {
        config.extend(of_target.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    let own = json!({
        "hidden_act": "silu",
        "hidden_size": target.hidden,
        "intermediate_size": spec.layer.ffn.widest(),
        "num_attention_heads": heads.heads,
        "num_key_value_heads": heads.key_value_heads,
        "head_dim": heads.head_dim,
        "rms_norm_eps": target.epsilon,
        "num_hidden_layers": 1,
        "vocab_size": target.vocabulary,
        "draft_vocab_size": vocabulary,
        "tie_word_embeddings": false,
        "attention_bias": false,
        "torch_dtype": "bfloat16",
    });
    config.extend(own.as_object().cloned().unwrap_or_default());
    Ok(Value::Object(config))
}

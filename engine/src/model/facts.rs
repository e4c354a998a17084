//! What a checkpoint holds, before a tensor is loaded: sizes, settings and which parts are there. Every backend loads by
//! these facts.

use schemas::model::ModelConfig;

use super::{draft::HeadKind, names::Names, rope::rope};
use crate::{
    checkpoint::{Folder, Weights},
    error::EngineError,
    spec::{
        AttentionSpec, CaptureNorms, CapturedFeatures, DenseSpec, DraftSource, DraftSpec, DraftTensorLayout,
        EmbeddingSource, Features, Feedback, FfnSpec, GroupedQuery, Join, LayerSpec, LinearSpec, TargetSpec,
        VocabularySource,
    },
};

/// Architectures whose tensors the Llama family's code understands.
const SUPPORTED: [&str; 4] = ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"];

/// Reads and checks what a target is.
///
/// # Errors
/// When the architecture or a setting is not supported, or the tensors contradict the configuration.
pub fn read_target(folder: &Folder, weights: &Weights) -> Result<TargetSpec, EngineError> {
    let config = &folder.config;
    check_supported(folder)?;
    let hidden = required(folder, config.hidden_size, "hidden_size")?;
    let layers = required(folder, config.num_hidden_layers, "num_hidden_layers")?;
    let names = Names::new(weights);
    check_layer_count(folder, &names, layers)?;
    let layer = |at| {
        let prefix = TargetSpec::layer_prefix(at);
        check_parts(folder, &names, &prefix)?;
        Ok(LayerSpec { input_norm: true, ..read_layer(folder, &names, &prefix, hidden, hidden)? })
    };
    Ok(TargetSpec {
        hidden,
        vocabulary: required(folder, config.vocab_size, "vocab_size")?,
        tied: match config.tie_word_embeddings {
            Some(tied) => tied,
            // Some exporters leave the flag out and the tensor too.
            None => weights.shape("lm_head.weight").is_none(),
        },
        epsilon: epsilon(config),
        layers: (0..layers).map(layer).collect::<Result<_, EngineError>>()?,
    })
}

/// A layer of a width, whose attention reads `input` values; biases and norms of heads are there where their tensors are.
fn read_layer(
    folder: &Folder,
    names: &Names<'_>,
    prefix: &str,
    hidden: usize,
    input: usize,
) -> Result<LayerSpec, EngineError> {
    let config = &folder.config;
    let all = |parts: &[&str]| parts.iter().all(|part| names.find(&format!("{prefix}.{part}")).is_some());
    let attention = GroupedQuery {
        qkv_bias: all(&["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"]),
        output_bias: all(&["self_attn.o_proj.bias"]),
        head_norms: all(&["self_attn.q_norm.weight", "self_attn.k_norm.weight"]),
        ..attention_shape(folder, input, hidden)?
    };
    Ok(LayerSpec {
        hidden,
        epsilon: epsilon(config),
        input_norm: false,
        attention: AttentionSpec::Grouped(attention),
        ffn: FfnSpec::Dense(DenseSpec {
            intermediate: required(folder, config.intermediate_size, "intermediate_size")?,
            bias: all(&["mlp.gate_proj.bias", "mlp.up_proj.bias", "mlp.down_proj.bias"]),
        }),
    })
}

fn epsilon(config: &ModelConfig) -> f32 {
    config.rms_norm_eps.unwrap_or(1e-6) as f32
}

/// Reads and checks what a head is.
///
/// # Errors
/// When the head is none that this engine knows, does not fit the target, or asks for a variant that is not
/// implemented.
pub fn read_head(folder: &Folder, weights: &Weights, target: &TargetSpec) -> Result<DraftSpec, EngineError> {
    check_activation(folder, &folder.config)?;
    let names = Names::new(weights);
    match super::draft::kind(folder, weights)? {
        HeadKind::Eagle => eagle(folder, &names, target),
        HeadKind::Eagle3 => eagle3(folder, &names, target),
    }
}

/// EAGLE-1/2: embedding and head are the target's, as in SGLang, whatever copies the head ships.
fn eagle(folder: &Folder, names: &Names<'_>, target: &TargetSpec) -> Result<DraftSpec, EngineError> {
    let hidden = required(folder, folder.config.hidden_size, "hidden_size")?;
    if hidden != target.hidden {
        let target = target.hidden;
        return Err(malformed(folder, format!("hidden_size is {hidden}, the target's is {target}: they must agree")));
    }
    let layer = "layers.0".to_owned();
    Ok(DraftSpec {
        source: DraftSource::Folder,
        features: Features::Final,
        // The key `bias` defaults to true; a checkpoint that has the tensor has a bias.
        join: Join::Linear { bias: names.find("fc.bias").is_some() || folder.config.bias.unwrap_or(true) },
        layer: read_layer(folder, names, &layer, hidden, hidden)?,
        tensors: DraftTensorLayout::Eagle { layer },
        feedback: Feedback::Output,
        embedding: EmbeddingSource::Target,
        head: VocabularySource::Target,
        vocabulary: target.vocabulary,
        tokens: None,
    })
}

fn eagle3(folder: &Folder, names: &Names<'_>, target: &TargetSpec) -> Result<DraftSpec, EngineError> {
    let config = &folder.config;
    check_variant(folder)?;
    let hidden = required(folder, config.hidden_size, "hidden_size")?;
    let target_hidden = config.target_hidden_size.unwrap_or(hidden);
    if target_hidden != target.hidden {
        let found = target.hidden;
        return Err(malformed(
            folder,
            format!("the head expects a target of hidden size {target_hidden}, this target has {found}"),
        ));
    }
    let own_embedding = names.find("embed_tokens.weight").is_some();
    if !own_embedding && hidden != target.hidden {
        return Err(EngineError::MissingTensor {
            path: folder.path().to_owned(),
            tensor: "embed_tokens.weight".into(),
            expected: vec![target.vocabulary, hidden],
        });
    }
    let vocabulary = config.draft_vocab_size.unwrap_or(target.vocabulary);
    if vocabulary == 0 || vocabulary > target.vocabulary {
        let tokens = target.vocabulary;
        return Err(malformed(folder, format!("draft_vocab_size is {vocabulary}, the target has {tokens} tokens")));
    }
    let whole = vocabulary == target.vocabulary;
    let absent = names.find("lm_head.weight").is_none() && whole;
    let layer = if names.find("midlayer.self_attn.q_proj.weight").is_some() { "midlayer" } else { "layers.0" };
    Ok(DraftSpec {
        source: DraftSource::Folder,
        tensors: DraftTensorLayout::Eagle3 { layer: layer.into() },
        features: Features::Captured(CapturedFeatures {
            at: capture(folder, target.layers.len())?,
            width: target.hidden,
            norms: CaptureNorms { joined: false, each: config.fc_norm == Some(true) },
            // The other way round than in EAGLE-1/2: the key `bias` defaults to false.
            fc: Some(LinearSpec { bias: names.find("fc.bias").is_some() || config.bias.unwrap_or(false) }),
        }),
        join: Join::NormedIntoAttention { residual_is_normed: config.norm_before_residual.unwrap_or(false) },
        layer: read_layer(folder, names, layer, hidden, 2 * hidden)?,
        feedback: if config.norm_output == Some(true) { Feedback::Normed } else { Feedback::NormedForTokens },
        embedding: if own_embedding { EmbeddingSource::Own } else { EmbeddingSource::Target },
        head: match (absent, config.tie_word_embeddings) {
            (true, Some(true)) => VocabularySource::Embedding,
            (true, _) if hidden == target.hidden => VocabularySource::Target,
            _ => VocabularySource::Own,
        },
        vocabulary,
        tokens: if whole { None } else { Some(hot_tokens(folder, names, vocabulary, target.vocabulary)?) },
    })
}

/// The target tokens of the draft's: d2t holds offsets, the target's token is the draft's plus its entry.
fn hot_tokens(folder: &Folder, names: &Names<'_>, rows: usize, vocabulary: usize) -> Result<Vec<u32>, EngineError> {
    let name = names.find("d2t").unwrap_or_else(|| "d2t".into());
    let offsets = names.weights().integers(&name, rows)?;
    let tokens = offsets.iter().enumerate().map(|(draft, offset)| {
        let token = (draft as i64).checked_add(*offset).filter(|token| (0..vocabulary as i64).contains(token));
        token.map(|token| token as u32).ok_or_else(|| EngineError::Malformed {
            path: folder.path().to_owned(),
            reason: format!("d2t[{draft}] = {offset} leads outside the target's {vocabulary} tokens"),
        })
    });
    tokens.collect()
}

/// A size that a config.json must give.
pub(super) fn required(folder: &Folder, value: Option<usize>, name: &str) -> Result<usize, EngineError> {
    // A bound that no published model comes near keeps products of sizes from overflowing.
    const LARGEST: usize = 1 << 24;
    match value {
        Some(value) if (1..=LARGEST).contains(&value) => Ok(value),
        Some(value) => Err(malformed(folder, format!("{name} is {value}, expected 1 to {LARGEST}"))),
        None => Err(malformed(folder, format!("{name} is missing"))),
    }
}

/// Heads of a config.json, for an attention layer from `input` to `output`.
fn attention_shape(folder: &Folder, input: usize, output: usize) -> Result<GroupedQuery, EngineError> {
    let config = &folder.config;
    let heads = required(folder, config.num_attention_heads, "num_attention_heads")?;
    let key_value_heads = config.num_key_value_heads.unwrap_or(heads);
    if key_value_heads == 0 || !heads.is_multiple_of(key_value_heads) {
        return Err(malformed(
            folder,
            format!("{heads} query heads are no multiple of {key_value_heads} key/value heads"),
        ));
    }
    let head_dim = match config.head_dim {
        Some(_) => required(folder, config.head_dim, "head_dim")?,
        None => required(folder, config.hidden_size, "hidden_size")? / heads,
    };
    if head_dim == 0 || !head_dim.is_multiple_of(2) {
        return Err(malformed(folder, format!("head_dim is {head_dim}, expected an even number")));
    }
    Ok(GroupedQuery {
        input,
        output,
        heads,
        key_value_heads,
        head_dim,
        qkv_bias: false,
        output_bias: false,
        head_norms: false,
        rope: rope(config, head_dim, folder.path())?,
    })
}

/// A config.json that contradicts itself.
pub(super) fn malformed(folder: &Folder, reason: String) -> EngineError {
    EngineError::Malformed { path: folder.path().join("config.json"), reason }
}

/// Settings that would change what the tensors mean.
fn check_activation(folder: &Folder, config: &ModelConfig) -> Result<(), EngineError> {
    match config.hidden_act.as_deref() {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => Err(EngineError::Unsupported {
            path: folder.path().to_owned(),
            feature: format!("the activation {other}"),
            hint: "supported is silu".into(),
        }),
    }
}

/// A checkpoint of more layers than its config.json says would run, and talk nonsense.
fn check_layer_count(folder: &Folder, names: &Names<'_>, count: usize) -> Result<(), EngineError> {
    match names.find(&format!("{}.self_attn.q_proj.weight", TargetSpec::layer_prefix(count))) {
        None => Ok(()),
        Some(found) => Err(malformed(
            folder,
            format!("num_hidden_layers is {count}, but the checkpoint has a further layer: {found}"),
        )),
    }
}

/// Biases and per-head norms are read where they are there; where configuration or family demand them they must be.
fn check_parts(folder: &Folder, names: &Names<'_>, layer: &str) -> Result<(), EngineError> {
    let config = &folder.config;
    let architecture = config.architecture();
    let mut demanded = Vec::new();
    if config.attention_bias == Some(true) || architecture == Some("Qwen2ForCausalLM") {
        demanded.extend(["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"]);
    }
    if config.mlp_bias == Some(true) {
        demanded.extend(["mlp.gate_proj.bias", "mlp.up_proj.bias", "mlp.down_proj.bias"]);
    }
    if architecture == Some("Qwen3ForCausalLM") {
        demanded.extend(["self_attn.q_norm.weight", "self_attn.k_norm.weight"]);
    }
    match demanded.into_iter().find(|name| names.find(&format!("{layer}.{name}")).is_none()) {
        None => Ok(()),
        Some(name) => Err(malformed(
            folder,
            format!("asks for {layer}.{name}, which the checkpoint lacks (architecture, attention_bias or mlp_bias)"),
        )),
    }
}

fn check_supported(folder: &Folder) -> Result<(), EngineError> {
    let config = &folder.config;
    let architecture = config.architecture().unwrap_or("none");
    let unsupported =
        |feature: String, hint: String| Err(EngineError::Unsupported { path: folder.path().to_owned(), feature, hint });
    if !SUPPORTED.contains(&architecture) {
        return unsupported(
            format!("the architecture {architecture}"),
            format!("supported are {}", SUPPORTED.join(", ")),
        );
    }
    // Qwen2 gives a window that it does not use unless a switch says so; Mistral has no switch. One that holds the longest
    // sequence leaves nothing out.
    let windowed = config.use_sliding_window.unwrap_or(architecture == "MistralForCausalLM");
    let cuts = |window: &usize| *window < config.derived_context_length();
    if let (true, Some(window)) = (windowed, config.sliding_window.filter(cuts)) {
        return unsupported(
            format!("sliding-window attention (window {window})"),
            "use a model without a window, such as Mistral 7B v0.2 or later".into(),
        );
    }
    if config.quantization_config.as_ref().is_some_and(|value| !value.is_null()) {
        return unsupported("a quantised checkpoint".into(), "use the float16, bfloat16 or float32 release".into());
    }
    check_activation(folder, config)
}

/// Variants whose tensors this file would read wrongly are refused rather than guessed.
fn check_variant(folder: &Folder) -> Result<(), EngineError> {
    let config = &folder.config;
    let eagle = config.eagle_config.clone().unwrap_or_default();
    let feature = if config.norm_before_fc == Some(true) {
        "norm_before_fc (EAGLE-3.1)"
    } else if eagle.use_aux_hidden_state == Some(false) {
        "eagle_config.use_aux_hidden_state = false"
    } else {
        return Ok(());
    };
    Err(EngineError::Unsupported {
        path: folder.path().to_owned(),
        feature: feature.into(),
        hint: "supported are EAGLE-3 heads on several captured layers, with fc_norm, norm_output and \
               norm_before_residual"
            .into(),
    })
}

/// The captured layers, as places where the residual stream enters. `eagle_config` names layers by their output, so its
/// ids move by one (SGLang `spec_aux_hidden_state.py`); beside it vLLM's speculators name them by their entry; the default
/// is {2, L/2, L − 3} on entry.
fn capture(folder: &Folder, layers: usize) -> Result<Vec<usize>, EngineError> {
    const NAME: &str = "eagle_aux_hidden_state_layer_ids";
    let config = &folder.config;
    // What decides which layers the head gets is not left out like other odd fields.
    if let Some(name) = config.unread.iter().find(|name| name.starts_with("eagle_")) {
        return Err(malformed(folder, format!("{name} cannot be read (layer ids are a list of numbers from 0 on)")));
    }
    let by_output = config.eagle_config.as_ref().and_then(|eagle| eagle.eagle_aux_hidden_state_layer_ids.as_ref());
    let by_entry = config.eagle_aux_hidden_state_layer_ids.as_ref();
    let places: Vec<usize> = match (by_output, by_entry) {
        (Some(ids), _) => ids.iter().map(|id| id.saturating_add(1)).collect(),
        (None, Some(ids)) => ids.clone(),
        (None, None) if layers >= 4 => vec![2, layers / 2, layers - 3],
        (None, None) => {
            return Err(malformed(
                folder,
                format!("a target of {layers} layers has no default layers to capture: set eagle_config.{NAME}"),
            ));
        }
    };
    if places.is_empty() {
        return Err(malformed(folder, format!("{NAME} is empty, expected a layer or more")));
    }
    if places.iter().any(|place| *place > layers) {
        let ids = by_output.or(by_entry).into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(malformed(folder, format!("{NAME} [{ids}] names layers that a target of {layers} layers lacks")));
    }
    Ok(places)
}

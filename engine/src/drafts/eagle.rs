//! EAGLE-1/2 and EAGLE-3 heads.

use super::{
    DraftTarget,
    captured::{captured, check_features},
    vocabulary::hot_tokens,
};
use crate::{
    checkpoint::Weights,
    error::EngineError,
    families::{self, Config, FamilyAttention},
    spec::{
        AttentionSpec, CaptureNorms, CapturedFeatures, DraftSource, EmbeddingSource, Features, Feedback, GroupedQuery,
        Join, LayerFormats, LayerSpec, LinearSpec, NormWeights, RecurrentSpec, RecurrentTensorLayout, VocabularySource,
    },
};

/// EAGLE-1/2: embedding and head are the target's, as in SGLang, even if the checkpoint contains
/// copies.
pub fn eagle(config: &Config<'_>, layer: &str, target: DraftTarget<'_>) -> Result<RecurrentSpec, EngineError> {
    families::check_head(config)?;
    check_one_layer(config)?;
    let hidden = config.hidden()?;
    if hidden != target.spec.hidden {
        let expected = target.spec.hidden;
        return Err(
            config.malformed(format!("hidden_size is {hidden}, but the target's is {expected}: they must be equal"))
        );
    }
    Ok(RecurrentSpec {
        source: DraftSource::Folder,
        tensors: RecurrentTensorLayout::Eagle { layer: layer.to_owned() },
        features: Features::Final,
        // Some heads have neither the tensor nor the key `bias`, which SGLang takes for true.
        join: Join::Linear { bias: config.tensors.has("fc.bias") || config.fields().bias == Some(true) },
        layer: decoder_layer(config, layer, hidden)?,
        feedback: Feedback::Output,
        embedding: EmbeddingSource::Target,
        head: VocabularySource::Target,
        vocabulary: target.spec.vocabulary,
        head_rows: target.spec.vocabulary,
        tokens: None,
    })
}

/// EAGLE-3, with the additions of EAGLE-3.1 and vLLM's speculators.
pub fn eagle3(
    config: &Config<'_>,
    layer: &str,
    weights: &Weights,
    target: DraftTarget<'_>,
) -> Result<RecurrentSpec, EngineError> {
    families::check_head(config)?;
    check_one_layer(config)?;
    let fields = config.fields();
    let hidden = config.hidden()?;
    let target_hidden = fields.target_hidden_size.unwrap_or(hidden);
    if target_hidden != target.spec.hidden {
        let found = target.spec.hidden;
        return Err(config.malformed(format!(
            "the head expects a target of hidden size {target_hidden} ({}), but this target has {found}",
            if fields.target_hidden_size.is_some() { "target_hidden_size" } else { "hidden_size" }
        )));
    }
    let own_embedding = config.tensors.has("embed_tokens.weight");
    if !own_embedding && hidden != target_hidden {
        return Err(EngineError::MissingTensor {
            path: config.folder().path().to_owned(),
            tensor: "embed_tokens.weight".into(),
            expected: vec![target.spec.vocabulary, hidden],
        });
    }
    let tokens = target.spec.vocabulary;
    let vocabulary = fields.draft_vocab_size.unwrap_or(tokens);
    if vocabulary == 0 || vocabulary > tokens {
        return Err(config.malformed(format!("draft_vocab_size is {vocabulary}, but the target has {tokens} tokens")));
    }
    let absent = !config.tensors.has("lm_head.weight") && vocabulary == tokens;
    let head = match (absent, fields.tie_word_embeddings) {
        (true, Some(true)) => VocabularySource::Embedding,
        (true, _) if hidden == target_hidden => VocabularySource::Target,
        _ => VocabularySource::Own,
    };
    let nested = fields.eagle_config.as_ref();
    let norm_output = fields.norm_output.or(nested.and_then(|eagle| eagle.norm_output)).unwrap_or(false);
    Ok(RecurrentSpec {
        source: DraftSource::Folder,
        tensors: RecurrentTensorLayout::Eagle3 { layer: layer.to_owned() },
        features: features(config, hidden, target)?,
        join: Join::NormedIntoAttention { residual_is_normed: fields.norm_before_residual.unwrap_or(false) },
        layer: decoder_layer(config, layer, 2 * hidden)?,
        feedback: if norm_output { Feedback::Normed } else { Feedback::NormedForTokens },
        embedding: if own_embedding { EmbeddingSource::Own } else { EmbeddingSource::Target },
        head,
        vocabulary,
        head_rows: vocabulary,
        tokens: match head {
            VocabularySource::Own => hot_tokens(config, weights, vocabulary, tokens)?,
            VocabularySource::Target | VocabularySource::Embedding => None,
        },
    })
}

/// The head's one layer, whose attention reads `input` values. It is a Llama layer for any target,
/// or has Qwen3-MoE's experts in it (`Qwen3MoeForCausalLMEagle3`); the tensors decide about that,
/// and about biases, since classes and settings are often copied from the target.
fn decoder_layer(config: &Config<'_>, prefix: &str, input: usize) -> Result<LayerSpec, EngineError> {
    let shared = format!("{prefix}.mlp.shared_expert");
    if let Some(name) = config.tensors.all().find(|name| name.starts_with(&shared)) {
        return Err(config.unsupported(
            format!("a head with a shared expert ({name})"),
            "a head's layer is dense, or has routed experts alone",
        ));
    }
    Ok(LayerSpec {
        hidden: config.hidden()?,
        epsilon: config.epsilon()?,
        input_norm: false,
        norms: NormWeights::Whole,
        attention: AttentionSpec::Grouped(GroupedQuery {
            window: window(config)?,
            ..config.attention(prefix, FamilyAttention::BY_TENSORS, input)?
        }),
        ffn: match config.tensors.has(&format!("{prefix}.mlp.gate.weight")) {
            true => config.experts(prefix, &families::qwen3_moe_experts(config)?)?,
            false => config.dense(prefix)?,
        },
        formats: LayerFormats::default(),
    })
}

/// The window of its layer, if `layer_types` describes this layer: a list for more layers is one of
/// the target's settings.
fn window(config: &Config<'_>) -> Result<Option<usize>, EngineError> {
    let fields = config.fields();
    match fields.layer_types.as_deref() {
        None | Some([]) => {
            if let (Some(true), Some(window)) = (fields.use_sliding_window, fields.sliding_window) {
                tracing::warn!(
                    "{}: sliding_window is {window} without layer_types: it is ignored, and the layer sees all tokens, as in \
                     other engines",
                    config.folder().path().display()
                );
            }
            Ok(None)
        }
        Some([kind]) => match kind.as_str() {
            "full_attention" => Ok(None),
            "sliding_attention" if fields.use_sliding_window == Some(false) => Ok(None),
            "sliding_attention" => config.size(fields.sliding_window, "sliding_window").map(Some),
            other => Err(config
                .unsupported(format!("a layer of type {other}"), "supported are full_attention and sliding_attention")),
        },
        Some(types) => {
            if fields.sliding_window.is_some() && types.iter().any(|kind| kind == "sliding_attention") {
                tracing::warn!(
                    "{}: layer_types lists {} layers and the head has one: it is ignored, and the layer sees all tokens",
                    config.folder().path().display(),
                    types.len()
                );
            }
            Ok(None)
        }
    }
}

fn check_one_layer(config: &Config<'_>) -> Result<(), EngineError> {
    let stated = config.fields().num_hidden_layers.filter(|layers| *layers > 1);
    let found = match stated {
        Some(layers) => format!("num_hidden_layers = {layers} in config.json"),
        None if config.tensors.all().any(|name| name.starts_with("layers.1.")) => "tensors of layers.1".into(),
        None => return Ok(()),
    };
    let feature = format!("a draft head with several decoder layers ({found})");
    Err(config.unsupported(feature, "only heads with one layer are supported"))
}

/// The features that an EAGLE-3 head reads of the target.
fn features(config: &Config<'_>, hidden: usize, target: DraftTarget<'_>) -> Result<Features, EngineError> {
    let fields = config.fields();
    let nested = fields.eagle_config.clone().unwrap_or_default();
    let width = target.spec.hidden;
    if nested.use_aux_hidden_state == Some(false) {
        // The final state replaces the reduced features, so there is no `fc`.
        return if width == hidden {
            Ok(Features::Final)
        } else {
            Err(config.unsupported(
                format!("a head of width {hidden} on the final state of a target of width {width}"),
                "with eagle_config.use_aux_hidden_state = false both must have the same width",
            ))
        };
    }
    let at = places(config, target)?;
    check_features(config, "fc", width, at.len())?;
    let joined = fields.norm_before_fc.or(nested.norm_before_fc).unwrap_or(false);
    let each = fields.fc_norm.or(nested.fc_norm).or(fields.use_aux_norm).unwrap_or(false);
    let norms = CaptureNorms {
        joined: joined || config.tensors.has("input_norm.weight"),
        each: each || config.tensors.has("fc_norm.0.weight"),
    };
    // Unlike in EAGLE-1/2, the key `bias` defaults to false.
    let bias = config.tensors.has("fc.bias") || fields.bias.unwrap_or(false);
    // A single feature of the head's width is used without a projection (SGLang's llama_eagle3.py).
    let alone = at.len() == 1 && width == hidden && !config.tensors.has("fc.weight");
    Ok(Features::Captured(CapturedFeatures { at, width, norms, fc: (!alone).then_some(LinearSpec { bias }) }))
}

/// The layers before which the residual stream is captured; by default {2, L/2, L − 3}.
fn places(config: &Config<'_>, target: DraftTarget<'_>) -> Result<Vec<usize>, EngineError> {
    let layers = target.spec.layers.len();
    let places = match captured(config, target)? {
        Some(places) => places,
        None if layers >= 4 => vec![2, layers / 2, layers - 3],
        None => {
            return Err(config.malformed(format!(
                "a target of {layers} layers has no default capture layers: set \
                 eagle_config.eagle_aux_hidden_state_layer_ids"
            )));
        }
    };
    match config.fields().num_aux_hidden_states.filter(|states| *states != places.len()) {
        Some(states) => {
            let names = places.len();
            Err(config.malformed(format!(
                "num_aux_hidden_states is {states}, but {names} layers are captured (by eagle_config, or by default): list \
                 those that the head was trained with in eagle_config.eagle_aux_hidden_state_layer_ids"
            )))
        }
        None => Ok(places),
    }
}

//! The Llama family: pre-norm, grouped-query attention, rotary embedding, gated feed-forward. Llama 2 to 3.3, and the
//! models that differ only in biases (Qwen2) and per-head norms (Qwen3), which are read off the tensors.

use std::sync::Arc;

use kernels::reference::{KeyValues, Matrix, Rope, linear, rms_norm};
use schemas::model::ModelConfig;

use super::{
    attention::{Attention, AttentionShape, Rows},
    feed_forward::FeedForward,
    names::Names,
    rope::rope,
};
use crate::{checkpoint::Folder, error::EngineError};

/// Architectures whose tensors this file understands.
const SUPPORTED: [&str; 4] = ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"];

/// A loaded target.
#[derive(Debug)]
pub struct Llama {
    /// Rows are tokens.
    pub embedding: Arc<Matrix>,
    /// Rows are tokens; the embedding itself where the two are tied.
    pub head: Arc<Matrix>,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    rope: Rope,
    epsilon: f32,
}

#[derive(Debug)]
struct Layer {
    input_norm: Vec<f32>,
    attention: Attention,
    post_attention_norm: Vec<f32>,
    feed_forward: FeedForward,
}

/// What a pass over some rows yields.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// After the final norm, `[rows, hidden]`: what the head and EAGLE-1/2 see.
    pub hidden: Vec<f32>,
    /// The residual stream on entry to each captured layer, side by side: `[rows, captured × hidden]`.
    pub captured: Vec<f32>,
}

impl Llama {
    /// Loads a target from its folder.
    ///
    /// # Errors
    /// When the architecture or a setting is not supported, or a tensor is missing or misshapen.
    pub fn load(folder: &Folder) -> Result<Self, EngineError> {
        let config = &folder.config;
        check_supported(folder)?;
        let hidden = required(folder, config.hidden_size, "hidden_size")?;
        let intermediate = required(folder, config.intermediate_size, "intermediate_size")?;
        let vocabulary = required(folder, config.vocab_size, "vocab_size")?;
        let count = required(folder, config.num_hidden_layers, "num_hidden_layers")?;
        let shape = attention_shape(folder, hidden, hidden)?;
        let epsilon = config.rms_norm_eps.unwrap_or(1e-6) as f32;
        let weights = folder.weights()?;
        let names = Names::new(&weights, &["model.", ""]);
        check_layer_count(folder, &names, count)?;
        let embedding = Arc::new(names.matrix("embed_tokens.weight", vocabulary, hidden)?);
        let head = match config.tie_word_embeddings {
            Some(true) => embedding.clone(),
            // Some exporters leave the flag out and the tensor too.
            None if weights.shape("lm_head.weight").is_none() => embedding.clone(),
            _ => Arc::new(weights.matrix("lm_head.weight", vocabulary, hidden)?),
        };
        let layers = (0..count)
            .map(|at| {
                let prefix = format!("layers.{at}");
                check_parts(folder, &names, &prefix)?;
                Ok(Layer {
                    input_norm: names.vector(&format!("{prefix}.input_layernorm.weight"), hidden)?,
                    attention: Attention::load(&names, &format!("{prefix}.self_attn"), shape, epsilon)?,
                    post_attention_norm: names.vector(&format!("{prefix}.post_attention_layernorm.weight"), hidden)?,
                    feed_forward: FeedForward::load(&names, &format!("{prefix}.mlp"), hidden, intermediate)?,
                })
            })
            .collect::<Result<_, EngineError>>()?;
        Ok(Self {
            norm: names.vector("norm.weight", hidden)?,
            rope: rope(config, shape.head_dim, folder.path())?,
            embedding,
            head,
            layers,
            epsilon,
        })
    }

    /// Width of the residual stream.
    pub fn hidden_size(&self) -> usize {
        self.norm.len()
    }

    /// Tokens.
    pub fn vocab_size(&self) -> usize {
        self.embedding.outputs()
    }

    /// Decoder layers.
    pub fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// Empty caches, one a layer.
    pub fn caches(&self, rows: usize) -> Vec<KeyValues> {
        self.layers.iter().map(|layer| layer.attention.cache(rows)).collect()
    }

    /// Runs some rows through all layers. `capture` lists the layers on whose entry the residual stream is kept,
    /// ascending; an entry equal to the number of layers means the stream that leaves the last one.
    pub fn forward(&self, tokens: &[u32], rows: Rows<'_>, caches: &mut [KeyValues], capture: &[usize]) -> Pass {
        let mut x = embed(&self.embedding, tokens);
        let width = self.hidden_size();
        let mut captured = vec![0.0; tokens.len() * width * capture.len()];
        let mut keep = |layer: usize, x: &[f32]| {
            for place in capture.iter().enumerate().filter(|(_, at)| **at == layer).map(|(place, _)| place) {
                for (row, x) in x.chunks_exact(width).enumerate() {
                    let start = (row * capture.len() + place) * width;
                    captured[start..start + width].copy_from_slice(x);
                }
            }
        };
        for (at, (layer, cache)) in self.layers.iter().zip(caches).enumerate() {
            keep(at, &x);
            let normed = rms_norm(&x, &layer.input_norm, self.epsilon);
            add(&mut x, &layer.attention.forward(&normed, rows, &self.rope, cache));
            let normed = rms_norm(&x, &layer.post_attention_norm, self.epsilon);
            add(&mut x, &layer.feed_forward.forward(&normed));
        }
        keep(self.layers.len(), &x);
        Pass { hidden: rms_norm(&x, &self.norm, self.epsilon), captured }
    }

    /// Logits of rows of [`Pass::hidden`]: `[rows, vocab_size]`.
    pub fn logits(&self, hidden: &[f32]) -> Vec<f32> {
        linear(hidden, &self.head, None)
    }
}

/// Rows of an embedding.
pub(super) fn embed(embedding: &Matrix, tokens: &[u32]) -> Vec<f32> {
    tokens.iter().flat_map(|token| embedding.row(*token as usize)).copied().collect()
}

/// `x += y`.
pub(super) fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
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
pub(super) fn attention_shape(folder: &Folder, input: usize, output: usize) -> Result<AttentionShape, EngineError> {
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
    Ok(AttentionShape { input, output, heads, key_value_heads, head_dim })
}

/// A config.json that contradicts itself.
pub(super) fn malformed(folder: &Folder, reason: String) -> EngineError {
    EngineError::Malformed { path: folder.path().join("config.json"), reason }
}

/// Settings that would change what the tensors mean.
pub(super) fn check_activation(folder: &Folder, config: &ModelConfig) -> Result<(), EngineError> {
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
    match names.find(&format!("layers.{count}.self_attn.q_proj.weight")) {
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
    // Qwen2 gives a window that it does not use unless a switch says so; Mistral has no switch.
    let windowed = config.use_sliding_window.unwrap_or(architecture == "MistralForCausalLM");
    if let (true, Some(window)) = (windowed, config.sliding_window) {
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

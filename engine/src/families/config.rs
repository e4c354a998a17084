//! Reads a config.json for families: validated sizes, attention from settings and tensors, and
//! errors that name the file.

use schemas::model::ModelConfig;

use super::rope;
use crate::{
    checkpoint::{Folder, Tensors, Weights},
    error::EngineError,
    spec::{
        AttentionSpec, CacheFormat, DenseSpec, ExpertsSpec, FfnSpec, GroupedQuery, LayerFormats, LayerSpec,
        NormWeights, RouterSpec, TargetSpec,
    },
};

/// A checkpoint whose configuration is being read.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    folder: &'a Folder,
    /// Its tensors.
    pub tensors: Tensors<'a>,
}

/// A family's properties that do not depend on the file.
#[derive(Clone, Copy, Debug)]
pub struct FamilyAttention {
    /// Whether query, key and value projections always have biases.
    pub qkv_bias: bool,
    /// Whether `attention_bias` in the file is trusted; if not, the tensors decide about biases.
    pub bias_setting: bool,
    /// Whether query and key heads are normed; `None` if the tensors decide.
    pub head_norms: Option<bool>,
    /// The rotated share of a head if the file does not give one.
    pub rotated: f64,
}

impl FamilyAttention {
    /// Llama's properties: biases and norms if the checkpoint has them, and whole heads rotated.
    pub const PLAIN: Self = Self { qkv_bias: false, bias_setting: true, head_norms: None, rotated: 1.0 };

    /// Decided by the tensors, regardless of the file.
    pub const BY_TENSORS: Self = Self { bias_setting: false, ..Self::PLAIN };
}

impl<'a> Config<'a> {
    /// An upper bound of sizes, far above any published model, that keeps products of sizes from
    /// overflowing.
    pub const LARGEST: usize = 1 << 24;

    /// The configuration of a folder with these tensors.
    pub fn new(folder: &'a Folder, weights: &'a Weights) -> Self {
        Self { folder, tensors: Tensors::new(weights) }
    }

    /// The fields of its config.json.
    pub fn fields(&self) -> &'a ModelConfig {
        &self.folder.config
    }

    /// The folder.
    pub fn folder(&self) -> &'a Folder {
        self.folder
    }

    /// A size that the file must contain.
    pub fn size(&self, value: Option<usize>, name: &str) -> Result<usize, EngineError> {
        match value {
            Some(value) if (1..=Self::LARGEST).contains(&value) => Ok(value),
            Some(value) => Err(self.malformed(format!("{name} is {value}, expected 1 to {}", Self::LARGEST))),
            None => Err(self.malformed(format!("{name} is missing"))),
        }
    }

    /// The number of routed experts; `name` is the family's own key for it.
    pub fn routed_experts(&self, name: &str) -> Result<usize, EngineError> {
        match self.fields().stated_routed_experts() {
            Some((key, experts)) => self.size(Some(experts), key),
            None => self.size(None, name),
        }
    }

    /// Width of the stream.
    pub fn hidden(&self) -> Result<usize, EngineError> {
        self.size(self.fields().hidden_size, "hidden_size")
    }

    /// Added to mean squares in norms.
    pub fn epsilon(&self) -> Result<f32, EngineError> {
        match self.fields().norm_epsilon() {
            epsilon if (0.0..=1.0).contains(&epsilon) => Ok(epsilon as f32),
            epsilon => Err(self.malformed(format!("rms_norm_eps is {epsilon}, expected a number from 0 to 1"))),
        }
    }

    /// A target whose layers a family reads one by one, each under its prefix.
    pub fn target(
        &self,
        layer: impl Fn(usize, &str) -> Result<LayerSpec, EngineError>,
    ) -> Result<TargetSpec, EngineError> {
        let layers = self.size(self.fields().num_hidden_layers, "num_hidden_layers")?;
        let hidden = self.hidden()?;
        let layer = |at| {
            let prefix = TargetSpec::layer_prefix(at);
            // Check that a layer's tensors exist before describing it: the number of layers in the
            // file is not trusted.
            self.tensors.expect(&format!("{prefix}.input_layernorm.weight"), &[hidden])?;
            layer(at, &prefix)
        };
        let vocabulary = self.size(self.fields().vocab_size, "vocab_size")?;
        Ok(TargetSpec {
            hidden,
            vocabulary,
            head_rows: vocabulary,
            tied: match self.fields().tie_word_embeddings {
                Some(tied) => tied,
                // Some exporters omit both the flag and the tensor.
                None => !self.tensors.has("lm_head.weight"),
            },
            epsilon: self.epsilon()?,
            layers: (0..layers).map(layer).collect::<Result<_, _>>()?,
        })
    }

    /// Whether the head is the embedding according to config.json, although the checkpoint has a
    /// head that is not a copy of it.
    pub fn has_another_head(&self) -> bool {
        const EMBEDDING: &str = "model.embed_tokens.weight";
        const HEAD: &str = "lm_head.weight";
        let tied = self.fields().tie_word_embeddings == Some(true);
        tied && self.tensors.has(HEAD) && !self.tensors.is_copy(HEAD, EMBEDDING)
    }

    /// Experts of a layer. The number in the file is trusted only if the router has this number of
    /// rows.
    pub fn experts(&self, prefix: &str, spec: &ExpertsSpec) -> Result<FfnSpec, EngineError> {
        let (router, hidden) = (format!("{prefix}.mlp.gate.weight"), self.hidden()?);
        self.tensors.expect(&router, &[spec.experts, hidden])?;
        Ok(FfnSpec::Experts(spec.clone()))
    }

    /// Checks that the router can choose the number of experts per token.
    pub fn check_router(&self, spec: &ExpertsSpec) -> Result<(), EngineError> {
        if spec.router().fits(spec.experts) {
            return Ok(());
        }
        let RouterSpec { groups, groups_kept, .. } = spec.router;
        let key = self.fields().stated_routed_experts().map_or("experts", |(key, _)| key);
        let (experts, per_token) = (spec.experts, spec.per_token);
        Err(self.malformed(format!(
            "num_experts_per_tok is {per_token}, and this many experts cannot be chosen from {groups_kept} (topk_group) of \
             {groups} (n_group) equal groups of {experts} experts ({key})"
        )))
    }

    /// Rejects a setting whose value does not match a family's tensors.
    pub fn expect_setting(&self, name: &str, found: Option<&str>, expected: &str) -> Result<(), EngineError> {
        match found {
            Some(found) if found != expected => {
                Err(self.unsupported(format!("{name} = {found}"), format!("only {expected} is supported")))
            }
            _ => Ok(()),
        }
    }

    /// A layer in Llama's layout, with a family's attention and this feed-forward block.
    pub fn layer(&self, prefix: &str, attention: FamilyAttention, ffn: FfnSpec) -> Result<LayerSpec, EngineError> {
        let hidden = self.hidden()?;
        Ok(LayerSpec {
            hidden,
            epsilon: self.epsilon()?,
            input_norm: true,
            norms: NormWeights::Whole,
            attention: AttentionSpec::Grouped(self.attention(prefix, attention, hidden)?),
            ffn,
            formats: LayerFormats::default(),
        })
    }

    /// Attention of a layer that reads `input` values.
    pub fn attention(&self, prefix: &str, family: FamilyAttention, input: usize) -> Result<GroupedQuery, EngineError> {
        let fields = self.fields();
        self.expect_no_latent()?;
        let (heads, key_value_heads, head_dim) = self.heads()?;
        let has = |name: &str| self.tensors.has(&format!("{prefix}.self_attn.{name}"));
        let any = |names: &[&str]| names.iter().any(|name| has(name));
        // If one of several tensors exists, all must: reading the tensors reports the missing one.
        let qkv_bias = any(&["q_proj.bias", "k_proj.bias", "v_proj.bias"]);
        let head_norms = any(&["q_norm.weight", "k_norm.weight"]);
        let setting = fields.attention_bias.filter(|_| family.bias_setting);
        if setting == Some(false) && qkv_bias && !family.qkv_bias {
            return Err(self.malformed(format!("attention_bias is false, but {prefix}.self_attn has biases")));
        }
        if family.head_norms == Some(false) && head_norms {
            return Err(self
                .malformed(format!("use_qk_norm sets no norms of queries and keys, but {prefix}.self_attn has them")));
        }
        Ok(GroupedQuery {
            input,
            output: self.hidden()?,
            heads,
            key_value_heads,
            head_dim,
            qkv_bias: qkv_bias || family.qkv_bias || setting == Some(true),
            output_bias: has("o_proj.bias"),
            head_norms: head_norms || family.head_norms == Some(true),
            output_gate: false,
            rope: rope::read(self, head_dim, family.rotated)?,
            sinks: false,
            window: None,
            cache: CacheFormat::Plain,
        })
    }

    /// Refuses settings of latent attention for families that do not have it.
    fn expect_no_latent(&self) -> Result<(), EngineError> {
        let fields = self.fields();
        let refuse = |name: &str, value: String| {
            let architecture = fields.architecture().unwrap_or("this architecture");
            Err(self.unsupported(
                format!("{name} = {value} in config.json"),
                format!("this setting changes what the model computes, and is not implemented for {architecture}"),
            ))
        };
        match (fields.kv_lora_rank.filter(|rank| *rank > 0), fields.rope_interleave) {
            (Some(rank), _) => refuse("kv_lora_rank", rank.to_string()),
            (None, Some(true)) => refuse("rope_interleave", "true".into()),
            _ => Ok(()),
        }
    }

    /// A dense feed-forward block under a prefix, with biases if the tensors or the configuration
    /// have them.
    pub fn dense(&self, prefix: &str) -> Result<FfnSpec, EngineError> {
        let intermediate = self.size(self.fields().intermediate_size, "intermediate_size")?;
        let names = ["gate_proj", "up_proj", "down_proj"];
        let bias = names.iter().any(|name| self.tensors.has(&format!("{prefix}.mlp.{name}.bias")));
        Ok(FfnSpec::Dense(DenseSpec { intermediate, bias: bias || self.fields().mlp_bias == Some(true) }))
    }

    /// The numbers of query heads and key/value heads, and the dimensions of a head.
    fn heads(&self) -> Result<(usize, usize, usize), EngineError> {
        let fields = self.fields();
        let heads = self.size(fields.num_attention_heads, "num_attention_heads")?;
        let key_value_heads = fields.num_key_value_heads.unwrap_or(heads);
        if key_value_heads == 0 || !heads.is_multiple_of(key_value_heads) {
            return Err(self.malformed(format!(
                "num_key_value_heads is {key_value_heads}, expected a divisor of num_attention_heads, which is {heads}"
            )));
        }
        let head_dim = match fields.head_dim {
            Some(_) => self.size(fields.head_dim, "head_dim")?,
            None => self.hidden()? / heads,
        };
        if head_dim == 0 || !head_dim.is_multiple_of(2) {
            let derived = match fields.head_dim {
                Some(_) => "",
                None => " (hidden_size / num_attention_heads)",
            };
            return Err(self.malformed(format!("head_dim is {head_dim}{derived}, expected an even number above 0")));
        }
        Ok((heads, key_value_heads, head_dim))
    }

    /// The error for a config.json that contradicts itself or the tensors.
    pub fn malformed(&self, reason: String) -> EngineError {
        malformed_config(self.folder, reason)
    }

    /// The error for a feature that this engine does not support.
    pub fn unsupported(&self, feature: impl Into<String>, hint: impl Into<String>) -> EngineError {
        EngineError::Unsupported { path: self.folder.path().to_owned(), feature: feature.into(), hint: hint.into() }
    }
}

/// The error for a folder's config.json that contradicts itself or the tensors.
pub fn malformed_config(folder: &Folder, reason: String) -> EngineError {
    EngineError::Malformed { path: folder.path().join("config.json"), reason }
}

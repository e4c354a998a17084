//! A Hugging Face `config.json`, read leniently: what is absent stays absent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::lenient::{self, JsonFileError, UnreadField, json_object};

/// The fields of a config.json that speculation depends on. Unknown fields are ignored; a nested
/// `text_config` of a multimodal wrapper, or `transformer_layer_config` of a head that the
/// speculators library wrote, is merged over the outer fields (see [`ModelConfig::parse`]).
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ModelConfig {
    /// Class names; the first decides.
    pub architectures: Vec<String>,
    /// Family, such as `llama`.
    pub model_type: Option<String>,
    /// Width of the residual stream.
    pub hidden_size: Option<usize>,
    /// Width of the feed-forward layer.
    pub intermediate_size: Option<usize>,
    /// Decoder layers.
    pub num_hidden_layers: Option<usize>,
    /// Query heads.
    pub num_attention_heads: Option<usize>,
    /// Key/value heads; absent means as many as query heads.
    pub num_key_value_heads: Option<usize>,
    /// Size of a head; absent means hidden_size / num_attention_heads.
    pub head_dim: Option<usize>,
    /// Rows of the embedding.
    pub vocab_size: Option<usize>,
    /// EAGLE-3: rows of the draft's own head.
    pub draft_vocab_size: Option<usize>,
    /// EAGLE-3: hidden size of the target, if it differs from the draft's.
    pub target_hidden_size: Option<usize>,
    /// EAGLE-3: number of the target's hidden states that the draft reads.
    pub num_aux_hidden_states: Option<usize>,
    /// Longest sequence.
    pub max_position_embeddings: Option<usize>,
    /// Older name of the longest sequence. SGLang uses the first one present of this and the next
    /// three fields, and only then `max_position_embeddings` (hf_transformers/common.py).
    pub max_sequence_length: Option<usize>,
    /// See [`max_sequence_length`](Self::max_sequence_length).
    pub seq_length: Option<usize>,
    /// See [`max_sequence_length`](Self::max_sequence_length).
    pub max_seq_len: Option<usize>,
    /// See [`max_sequence_length`](Self::max_sequence_length).
    pub model_max_length: Option<usize>,
    /// Weight dtype, older name.
    pub torch_dtype: Option<String>,
    /// Weight dtype, newer name.
    pub dtype: Option<String>,
    /// Whether the LM head shares the weights of the embedding. Of a wrapper's two settings the
    /// outer one counts, as in transformers.
    pub tie_word_embeddings: Option<bool>,
    /// Epsilon of RMSNorm.
    pub rms_norm_eps: Option<f64>,
    /// Activation of the feed-forward layer.
    pub hidden_act: Option<String>,
    /// Base of the rotary embedding; see [`rope_base`](Self::rope_base).
    pub rope_theta: Option<f64>,
    /// Scaling of the rotary embedding, older name. Read it with [`rope`](Self::rope).
    pub rope_scaling: Option<RopeParameters>,
    /// Theta and scaling together, newer name (transformers 5). Read it with [`rope`](Self::rope).
    pub rope_parameters: Option<RopeParameters>,
    /// Bias on q, k, v (and o).
    pub attention_bias: Option<bool>,
    /// Bias on the feed-forward layers.
    pub mlp_bias: Option<bool>,
    /// EAGLE-1/2: bias on fc; absent means that the tensors decide.
    pub bias: Option<bool>,
    /// Window of sliding attention.
    pub sliding_window: Option<usize>,
    /// Whether the window is used, in families that have a switch for it (Qwen2).
    pub use_sliding_window: Option<bool>,
    /// MLA: rank of the compressed keys and values; present means MLA.
    pub kv_lora_rank: Option<usize>,
    /// MLA: rank of the compressed queries; absent means that queries are not compressed.
    pub q_lora_rank: Option<usize>,
    /// MLA: size of the part of a query or key that is not rotated.
    pub qk_nope_head_dim: Option<usize>,
    /// MLA: size of the rotated part of a key.
    pub qk_rope_head_dim: Option<usize>,
    /// MLA: size of a value.
    pub v_head_dim: Option<usize>,
    /// MLA: whether neighbouring dimensions are rotated as a pair; absent means that they are.
    pub rope_interleave: Option<bool>,
    /// MTP layers in the checkpoint.
    pub num_nextn_predict_layers: Option<usize>,
    /// MTP layers, Qwen's name.
    pub mtp_num_hidden_layers: Option<usize>,
    /// MTP layers, the name of transformers 5.
    pub num_mtp_layers: Option<usize>,
    /// Number of routed experts; present means mixture of experts.
    pub num_experts: Option<usize>,
    /// Routed experts, the name of transformers 5 for Qwen3-MoE.
    pub num_local_experts: Option<usize>,
    /// Routed experts, the name of DeepSeek and GLM.
    pub n_routed_experts: Option<usize>,
    /// Shared experts, which process every token.
    pub n_shared_experts: Option<usize>,
    /// Routed experts per token.
    pub num_experts_per_tok: Option<usize>,
    /// Width of an expert's feed-forward layer.
    pub moe_intermediate_size: Option<usize>,
    /// Whether the weights of a token's experts are divided by their sum.
    pub norm_topk_prob: Option<bool>,
    /// Factor on the weights of a token's experts.
    pub routed_scaling_factor: Option<f64>,
    /// How the router turns logits into scores (`softmax`, `sigmoid`).
    pub scoring_func: Option<String>,
    /// How the router chooses experts (`noaux_tc`).
    pub topk_method: Option<String>,
    /// Number of expert groups.
    pub n_group: Option<usize>,
    /// Number of expert groups from which a token's experts are chosen.
    pub topk_group: Option<usize>,
    /// Number of leading layers without experts.
    pub first_k_dense_replace: Option<usize>,
    /// Qwen3-MoE: every Nth layer has experts.
    pub decoder_sparse_step: Option<usize>,
    /// Qwen3-MoE: layers without experts.
    pub mlp_only_layers: Option<Vec<usize>>,
    /// Share of a head's dimensions that is rotated.
    pub partial_rotary_factor: Option<f64>,
    /// GLM: whether queries and keys are normed.
    pub use_qk_norm: Option<bool>,
    /// Quantisation of the weights; its method is in `quant_method`.
    pub quantization_config: Option<serde_json::Value>,
    /// EAGLE-3 settings.
    pub eagle_config: Option<EagleConfig>,
    /// EAGLE-3: layers on whose **entry** the stream is captured. vLLM speculators write this field
    /// next to `eagle_config`, not in it.
    pub eagle_aux_hidden_state_layer_ids: Option<Vec<usize>>,
    /// EAGLE-3 of vLLM speculators: whether the residual is the normed hidden state.
    pub norm_before_residual: Option<bool>,
    /// EAGLE-3.1: whether each captured hidden state has a separate norm before `fc`.
    pub fc_norm: Option<bool>,
    /// EAGLE-3.1: an older name of `fc_norm`.
    pub use_aux_norm: Option<bool>,
    /// EAGLE-3.1: whether one norm is applied to the concatenated hidden states before `fc`.
    pub norm_before_fc: Option<bool>,
    /// EAGLE-3.1: whether the next draft step reads the normed output.
    pub norm_output: Option<bool>,
    /// Block drafts (DFLASH, DSPARK): tokens per block.
    pub block_size: Option<usize>,
    /// Block drafts in the target's own checkpoint (DSPARK): tokens per block.
    pub dspark_block_size: Option<usize>,
    /// Block drafts: number of layers of the target that the draft was trained with.
    pub num_target_layers: Option<usize>,
    /// Settings of DFLASH drafts, which may be nested here instead of at the top level.
    pub dflash_config: Option<DflashConfig>,
    /// Kind of attention of each layer, such as `sliding_attention`.
    pub layer_types: Option<Vec<String>>,
    /// Whether attention is causal, if a draft's config says so.
    pub is_causal: Option<bool>,
    /// The algorithm of a draft written by the speculators library, which uses a separate layout.
    pub speculators_model_type: Option<String>,
    /// Speculators: layers on whose **entry** the stream is captured for a block draft, one more
    /// than `target_layer_ids`.
    pub aux_hidden_state_layer_ids: Option<Vec<usize>>,
    /// Speculators: names of the fields outside `transformer_layer_config`.
    #[serde(skip)]
    pub speculators_fields: Vec<String>,
    /// Beginning-of-text token.
    #[serde(deserialize_with = "lenient::one_or_several")]
    pub bos_token_id: Vec<u32>,
    /// End-of-text tokens: one or several.
    #[serde(deserialize_with = "lenient::one_or_several")]
    pub eos_token_id: Vec<u32>,
    /// Other fields, unchanged.
    #[serde(flatten)]
    pub other: BTreeMap<String, Json>,
    /// Fields that are present but could not be read, such as `eagle_config.use_aux_hidden_state`.
    /// They count as absent.
    #[serde(skip)]
    pub unread: Vec<UnreadField>,
}

/// `rope_scaling` or `rope_parameters`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct RopeParameters {
    /// `default`, `linear`, `dynamic`, `yarn`, `llama3`, …
    pub rope_type: Option<String>,
    /// Older name of `rope_type`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// In `rope_parameters`: the base.
    pub rope_theta: Option<f64>,
    /// Factor by which the scaling extends the context.
    pub factor: Option<f64>,
    /// llama3.
    pub low_freq_factor: Option<f64>,
    /// llama3.
    pub high_freq_factor: Option<f64>,
    /// llama3, yarn.
    pub original_max_position_embeddings: Option<usize>,
    /// yarn.
    pub beta_fast: Option<f64>,
    /// yarn.
    pub beta_slow: Option<f64>,
    /// yarn: the scale of queries and keys, instead of the one that follows from `factor`.
    pub attention_factor: Option<f64>,
    /// yarn: multiplies the scale that follows from `factor` (vLLM, SGLang).
    pub attn_factor: Option<f64>,
    /// yarn.
    pub mscale: Option<f64>,
    /// yarn.
    pub mscale_all_dim: Option<f64>,
    /// In `rope_parameters`: share of a head's dimensions that is rotated.
    pub partial_rotary_factor: Option<f64>,
    /// Other fields, unchanged.
    #[serde(flatten)]
    pub other: BTreeMap<String, Json>,
}

/// `eagle_config` of an EAGLE-3 head.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct EagleConfig {
    /// Layers whose **outputs** are captured (SGLang captures on entry to id + 1).
    pub eagle_aux_hidden_state_layer_ids: Option<Vec<usize>>,
    /// False: the draft reads only the final hidden state.
    pub use_aux_hidden_state: Option<bool>,
    /// As [`ModelConfig::norm_before_fc`], if nested here.
    pub norm_before_fc: Option<bool>,
    /// As [`ModelConfig::fc_norm`], if nested here.
    pub fc_norm: Option<bool>,
    /// As [`ModelConfig::norm_output`], if nested here.
    pub norm_output: Option<bool>,
    /// Other fields, unchanged.
    #[serde(flatten)]
    pub other: BTreeMap<String, Json>,
}

/// `dflash_config` of a DFLASH draft.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct DflashConfig {
    /// Number of layers of the target that the draft was trained with.
    pub num_target_layers: Option<usize>,
    /// Other fields, unchanged.
    #[serde(flatten)]
    pub other: BTreeMap<String, Json>,
}

/// The text is not a usable config.json.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not a JSON object.
    #[error("not a valid config.json: {0}")]
    Json(#[from] JsonFileError),
    /// Longer than the limit; the value is its length in bytes.
    #[error("not a valid config.json: {0} bytes, the limit is {LONGEST_CONFIG}")]
    TooLarge(usize),
}

/// Maximum length of a config.json that is read, in bytes.
const LONGEST_CONFIG: usize = 16 << 20;

impl ModelConfig {
    /// Reads the text of a config.json. A field of the wrong type counts as absent (a number in
    /// quotes counts as the number), so that one odd field does not hide the others.
    ///
    /// # Errors
    /// When the text is not a JSON object.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if text.len() > LONGEST_CONFIG {
            return Err(ConfigError::TooLarge(text.len()));
        }
        let mut object = json_object(text)?;
        let mut unread = Vec::new();
        let nested = ["text_config", "transformer_layer_config"];
        let speculators = object.contains_key("speculators_model_type");
        let fields = object.keys().filter(|key| speculators && !nested.contains(&key.as_str()));
        let speculators_fields = fields.cloned().collect();
        // Multimodal wrappers nest the language model, and speculators the layer of a head. Nested
        // fields override the outer ones, but the outer class is the one that runs, and it decides
        // whether its head is tied.
        for name in nested {
            let ties = object.get("tie_word_embeddings").is_some_and(|ties| !ties.is_null());
            let of_outer = |key: &str| key == "architectures" || (ties && key == "tie_word_embeddings");
            match object.remove(name) {
                Some(Json::Object(inner)) => {
                    object.extend(inner.into_iter().filter(|(key, _)| !of_outer(key)));
                }
                None | Some(Json::Null) => {}
                Some(other) => unread.push(UnreadField::new(name.into(), &other, "an object")),
            }
        }
        lenient::nested::<RopeParameters>(&mut object, "rope_scaling", &mut unread);
        if let Some(Json::Object(parameters)) = object.get_mut("rope_parameters")
            && let Some(full) = parameters.remove("full_attention")
        {
            // One set of parameters per layer type: the full-attention layers limit the length of a
            // sequence. Sets that differ stay under their names, so that a reader can refuse them.
            let mut read = full.clone();
            if let Some(fields) = read.as_object_mut() {
                fields.extend(std::mem::take(parameters).into_iter().filter(|(_, set)| *set != full));
            }
            object.insert("rope_parameters".into(), read);
        }
        lenient::nested::<RopeParameters>(&mut object, "rope_parameters", &mut unread);
        lenient::nested::<EagleConfig>(&mut object, "eagle_config", &mut unread);
        lenient::nested::<DflashConfig>(&mut object, "dflash_config", &mut unread);
        let readable = lenient::readable::<Self>(object, "", &mut unread);
        let read = serde_json::from_value(Json::Object(readable)).map_err(JsonFileError::from)?;
        Ok(Self { unread, speculators_fields, ..read })
    }

    /// A field by its name, with a dot before a field of an object in it; `None` if it is absent or
    /// null.
    pub fn field(&self, path: &str) -> Option<Json> {
        let whole = serde_json::to_value(self).ok()?;
        let found = path.split('.').try_fold(&whole, |object, name| object.get(name))?;
        (!found.is_null()).then(|| found.clone())
    }

    /// The first architecture, which is the one that engines use.
    pub fn architecture(&self) -> Option<&str> {
        self.architectures.first().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let config = ModelConfig::parse(
            r#"{"architectures": ["A"], "hidden_size": 8, "own": {"x": 1}, "dflash_config": {"mask_token_id": -1}}"#,
        )
        .expect("an object");
        for (path, expected) in [
            ("hidden_size", Some(8)),
            ("own.x", Some(1)),
            ("dflash_config.mask_token_id", Some(-1)),
            ("vocab_size", None),
            ("dflash_config.other", None),
        ] {
            assert_eq!(config.field(path).and_then(|value| value.as_i64()), expected, "{path}");
        }
    }

    #[test]
    fn one_odd_field_does_not_hide_the_others() {
        let config = ModelConfig::parse(
            r#"{"architectures": ["A"], "hidden_size": "4096", "vocab_size": [1], "head_dim": null, "rope_theta": 1e6,
                "num_hidden_layers": 32.0, "eos_token_id": [1, 2], "bos_token_id": null,
                "rope_scaling": {"factor": "8", "rope_type": 3, "low_freq_factor": 1}}"#,
        )
        .expect("an object");
        assert_eq!(config.architecture(), Some("A"));
        assert_eq!((config.hidden_size, config.vocab_size, config.head_dim), (Some(4096), None, None));
        assert_eq!((config.num_hidden_layers, config.rope_theta), (Some(32), Some(1e6)));
        assert_eq!((config.eos_token_id, config.bos_token_id), (vec![1, 2], vec![]));
        let rope = config.rope_scaling.expect("kept");
        assert_eq!((rope.factor, rope.rope_type, rope.low_freq_factor), (Some(8.0), None, Some(1.0)));
        let unread: Vec<String> = config.unread.iter().map(ToString::to_string).collect();
        assert_eq!(
            unread,
            [
                "rope_scaling.rope_type is 3, expected a string",
                "vocab_size is [1], expected a whole number of at least 0"
            ]
        );
    }

    #[test]
    fn what_a_field_would_have_to_be_is_stated() {
        let unread = |text: &str| {
            let config = ModelConfig::parse(text).expect("an object");
            config.unread.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        for (text, expected) in [
            (
                r#"{"architectures": "LlamaForCausalLM"}"#,
                r#"architectures is "LlamaForCausalLM", expected a list of strings"#,
            ),
            (r#"{"hidden_size": -1}"#, "hidden_size is -1, expected a whole number of at least 0"),
            (r#"{"hidden_size": 1e30}"#, "hidden_size is 1e+30, expected a whole number of at least 0"),
            (r#"{"rms_norm_eps": true}"#, "rms_norm_eps is true, expected a number"),
            (r#"{"attention_bias": 2}"#, "attention_bias is 2, expected true or false"),
            (
                r#"{"mlp_only_layers": ["x"]}"#,
                r#"mlp_only_layers is ["x"], expected a list of whole numbers of at least 0"#,
            ),
            (r#"{"rope_scaling": 3}"#, "rope_scaling is 3, expected an object"),
            (r#"{"text_config": []}"#, "text_config is [], expected an object"),
            (r#"{"text_config": null, "hidden_size": null}"#, ""),
        ] {
            assert_eq!(unread(text), expected, "{text}");
        }
    }

    #[test]
    fn of_a_key_that_occurs_twice_the_last_value_counts() {
        let config = ModelConfig::parse(r#"{"hidden_size": 1, "hidden_size": 2}"#).expect("an object");
        assert_eq!(config.hidden_size, Some(2));
    }

    #[test]
    fn the_layer_of_a_speculator_is_read() {
        let config = ModelConfig::parse(
            r#"{"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 8,
                "transformer_layer_config": {"architectures": ["Inner"], "hidden_size": 4, "num_hidden_layers": 1}}"#,
        )
        .expect("an object");
        assert_eq!((config.architecture(), config.draft_vocab_size), (Some("Eagle3Speculator"), Some(8)));
        assert_eq!((config.hidden_size, config.num_hidden_layers), (Some(4), Some(1)));
        assert_eq!(config.speculators_fields, ["architectures", "speculators_model_type", "draft_vocab_size"]);
    }

    #[test]
    fn the_language_model_of_a_wrapper_wins_but_for_its_class() {
        let config = ModelConfig::parse(
            r#"{"architectures": ["Wrapper"], "vocab_size": 1, "text_config": {"architectures": ["Inner"], "vocab_size": 2}}"#,
        )
        .expect("an object");
        assert_eq!((config.architecture(), config.vocab_size), (Some("Wrapper"), Some(2)));
    }

    #[test]
    fn the_wrapper_says_whether_its_head_is_tied() {
        for (outer, inner, expected) in [
            (r#""tie_word_embeddings": false,"#, r#""tie_word_embeddings": true"#, Some(false)),
            (r#""tie_word_embeddings": true,"#, r#""tie_word_embeddings": false"#, Some(true)),
            (r#""tie_word_embeddings": null,"#, r#""tie_word_embeddings": true"#, Some(true)),
            ("", r#""tie_word_embeddings": true"#, Some(true)),
            (r#""tie_word_embeddings": true,"#, "", Some(true)),
        ] {
            let config = ModelConfig::parse(&format!(r#"{{{outer} "text_config": {{{inner}}}}}"#)).expect("an object");
            assert_eq!(config.tie_word_embeddings, expected, "{outer} {inner}");
        }
    }

    #[test]
    fn parameters_of_the_rotation_by_type_of_layer_are_those_of_full_attention() {
        let other = |sets: &str| {
            let config = ModelConfig::parse(&format!(r#"{{"rope_parameters": {{{sets}}}}}"#)).expect("an object");
            let rope = config.rope_parameters.expect("kept");
            (rope.rope_theta, rope.other.into_keys().collect::<Vec<_>>())
        };
        let (full, same) = (r#""full_attention": {"rope_theta": 5.0}"#, r#""sliding_attention": {"rope_theta": 5.0}"#);
        let differs = r#""sliding_attention": {"rope_theta": 6.0}"#;
        assert_eq!(other(full), (Some(5.0), vec![]));
        assert_eq!(other(&format!("{full}, {same}")), (Some(5.0), vec![]));
        assert_eq!(other(&format!("{full}, {differs}")), (Some(5.0), vec!["sliding_attention".to_owned()]));
        assert_eq!(other(differs), (None, vec!["sliding_attention".to_owned()]));
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        for text in ["", "[1]", "null", "3", "{", "\"x\"", &"[".repeat(100_000)] {
            assert!(ModelConfig::parse(text).is_err());
        }
        assert!(ModelConfig::parse("{}").is_ok());
    }
}

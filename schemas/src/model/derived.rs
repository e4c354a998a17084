//! Values that engines derive from a config.json, derived in the same way.

use super::{ModelConfig, RopeParameters};

/// The context length that SGLang assumes if no key gives one (`hf_transformers/common.py`,
/// `get_context_length`).
const FALLBACK_CONTEXT_LENGTH: usize = 2048;

/// Beginnings of the names of classes whose default base of the rotary embedding is not 10000.
const BASES: [(&str, f64); 3] = [("GptOss", 150_000.0), ("MiMoFor", 640_000.0), ("MiMoMTP", 640_000.0)];

/// Beginnings of the names of classes whose default epsilon is 1e-5 instead of 1e-6.
const LARGER_EPSILONS: [&str; 2] = ["GptOss", "Glm4Moe"];

impl ModelConfig {
    /// Quantisation method of the weights, as the checkpoint names it.
    pub fn quantization_method(&self) -> Option<&str> {
        self.quantization_config.as_ref()?.get("quant_method")?.as_str()
    }

    /// The longest sequence, derived as SGLang derives it: the first key present, in the order of
    /// `CONTEXT_LENGTH_KEYS`, times the factor of the rotary scaling. The factor counts as one for
    /// `llama3` scaling and if `original_max_position_embeddings` is given, since the key is then
    /// already the scaled length.
    pub fn derived_context_length(&self) -> usize {
        let Some((_, length)) = self.stated_context_length() else { return FALLBACK_CONTEXT_LENGTH };
        let rope = self.rope();
        let scaled_already = rope.original_max_position_embeddings.is_some() || rope.name() == Some("llama3");
        let factor = rope.factor.filter(|_| !scaled_already).unwrap_or(1.0);
        // The engine truncates too. If the product is not a valid length, the key is returned
        // unscaled.
        let scaled = length as f64 * factor;
        if scaled.is_finite() && (1.0..9e15).contains(&scaled) { scaled as usize } else { length }
    }

    /// The longest sequence over which plain attention is what the model computes: that of
    /// [`derived_context_length`](Self::derived_context_length), or the length from which on dual
    /// chunk attention gives tokens other positions than their own.
    pub fn plain_context_length(&self) -> usize {
        let derived = self.derived_context_length();
        self.dual_chunks().map_or(derived, |length| derived.min(length))
    }

    /// The number of tokens up to which dual chunk attention (Qwen2.5-1M) is plain attention;
    /// `None` without it.
    pub fn dual_chunks(&self) -> Option<usize> {
        let settings = self.other.get("dual_chunk_attention_config")?;
        let length = |name: &str| settings.get(name).and_then(serde_json::Value::as_u64);
        let length = [length("chunk_size"), length("original_max_position_embeddings")].into_iter().flatten().min()?;
        usize::try_from(length).ok().filter(|length| *length > 0)
    }

    /// Whether any key gives a context length, so that
    /// [`derived_context_length`](Self::derived_context_length) is not the engine's fallback.
    pub fn states_context_length(&self) -> bool {
        self.stated_context_length().is_some()
    }

    /// The key that gives the context length, and its value; `None` if
    /// [`derived_context_length`](Self::derived_context_length) is the engine's fallback.
    pub fn stated_context_length(&self) -> Option<(&'static str, usize)> {
        let keys = [
            ("max_sequence_length", self.max_sequence_length),
            ("seq_length", self.seq_length),
            ("max_seq_len", self.max_seq_len),
            ("model_max_length", self.model_max_length),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        keys.into_iter().find_map(|(key, length)| Some((key, length?)))
    }

    /// Dtype of the weights according to the config, under its usual name; `None` if it is missing
    /// or unknown. The newer key comes first, as in SGLang (`configs/model_config.py`,
    /// `_get_and_verify_dtype`).
    pub fn weights_dtype(&self) -> Option<&'static str> {
        self.dtype.as_deref().or(self.torch_dtype.as_deref()).and_then(normal_dtype)
    }

    /// Size of a head; derived from the hidden size if the config does not give it.
    pub fn head_dim(&self) -> Option<usize> {
        self.head_dim.or_else(|| {
            let (hidden, heads) = (self.hidden_size?, self.num_attention_heads.filter(|heads| *heads > 0)?);
            Some(hidden / heads)
        })
    }

    /// Number of key/value heads; that of query heads if the config does not give it.
    pub fn key_value_heads(&self) -> Option<usize> {
        self.num_key_value_heads.or(self.num_attention_heads)
    }

    /// Whether attention is multi-head latent attention.
    pub fn is_mla(&self) -> bool {
        self.kv_lora_rank.is_some()
    }

    /// Number of MTP layers in the checkpoint; `None` if the config does not say.
    pub fn mtp_layers(&self) -> Option<usize> {
        self.stated_mtp_layers().map(|(_, layers)| layers)
    }

    /// The key that gives the number of MTP layers, and its value.
    pub fn stated_mtp_layers(&self) -> Option<(&'static str, usize)> {
        let keys = [
            ("num_nextn_predict_layers", self.num_nextn_predict_layers),
            ("mtp_num_hidden_layers", self.mtp_num_hidden_layers),
            ("num_mtp_layers", self.num_mtp_layers),
        ];
        keys.into_iter().find_map(|(key, layers)| Some((key, layers?)))
    }

    /// Number of routed experts, under any of its published names; `None` for a dense model.
    pub fn routed_experts(&self) -> Option<usize> {
        self.stated_routed_experts().map(|(_, experts)| experts)
    }

    /// The key that gives the number of routed experts, and its value.
    pub fn stated_routed_experts(&self) -> Option<(&'static str, usize)> {
        let keys = [
            ("num_experts", self.num_experts),
            ("n_routed_experts", self.n_routed_experts),
            ("num_local_experts", self.num_local_experts),
        ];
        keys.into_iter().find_map(|(key, experts)| Some((key, experts?)))
    }

    /// The settings of the rotary embedding, wherever the config gives them. `rope_scaling` takes
    /// the place of `rope_parameters`, as in transformers 5, but for the base, the rotated share
    /// and settings without a field. Base and share may also be outside of both.
    pub fn rope(&self) -> RopeParameters {
        let newer = self.rope_parameters.clone().unwrap_or_default();
        let rope = match self.rope_scaling.clone().filter(|scaling| *scaling != RopeParameters::default()) {
            None => newer,
            Some(scaling) => RopeParameters {
                rope_theta: scaling.rope_theta.or(newer.rope_theta),
                partial_rotary_factor: scaling.partial_rotary_factor.or(newer.partial_rotary_factor),
                other: newer.other.into_iter().chain(scaling.other).collect(),
                ..scaling
            },
        };
        RopeParameters {
            rope_theta: rope.rope_theta.or(self.rope_theta),
            partial_rotary_factor: rope.partial_rotary_factor.or(self.partial_rotary_factor),
            ..rope
        }
    }

    /// The base of the rotary embedding, or the default of the model's class.
    pub fn rope_base(&self) -> f64 {
        let class = self.architecture().unwrap_or_default();
        let default = BASES.into_iter().find(|(beginning, _)| class.starts_with(beginning));
        self.rope().rope_theta.unwrap_or(default.map_or(10_000.0, |(_, base)| base))
    }

    /// The epsilon of norms, or the default of the model's class.
    pub fn norm_epsilon(&self) -> f64 {
        let class = self.architecture().unwrap_or_default();
        let is_larger = LARGER_EPSILONS.iter().any(|beginning| class.starts_with(beginning));
        self.rms_norm_eps.unwrap_or(if is_larger { 1e-5 } else { 1e-6 })
    }
}

impl RopeParameters {
    /// The kind of scaling, from either of its two keys.
    pub fn name(&self) -> Option<&str> {
        self.rope_type.as_deref().or(self.kind.as_deref())
    }

    /// The kind of scaling; `None` without any.
    pub fn scaling(&self) -> Option<&str> {
        self.name().filter(|name| *name != "default")
    }
}

/// The usual name of a dtype, from any of its spellings in configs and on command lines.
pub fn normal_dtype(name: &str) -> Option<&'static str> {
    let name = name.trim().to_ascii_lowercase();
    match name.strip_prefix("torch.").unwrap_or(&name) {
        "float16" | "half" | "fp16" => Some("float16"),
        "bfloat16" | "bf16" => Some("bfloat16"),
        "float32" | "float" | "fp32" => Some("float32"),
        "float64" | "double" => Some("float64"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> ModelConfig {
        ModelConfig::parse(text).expect("a config")
    }

    #[test]
    fn the_context_length_follows_the_engines_order_and_factor() {
        for (text, expected) in [
            (r#"{"max_position_embeddings": 4096}"#, 4096),
            (r#"{"max_position_embeddings": 4096, "seq_length": 8192}"#, 8192),
            (r#"{"max_position_embeddings": 4096, "model_max_length": 100}"#, 100),
            (r#"{"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 2.5}}"#, 10240),
            (r#"{"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8}}"#, 131072),
            (
                r#"{"max_position_embeddings": 163840,
                    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}}"#,
                163840,
            ),
            (r#"{"max_position_embeddings": 32768, "rope_parameters": {"rope_type": "yarn", "factor": 4}}"#, 131072),
            (r#"{"max_position_embeddings": 5, "rope_scaling": {"factor": -1}}"#, 5),
            ("{}", 2048),
        ] {
            assert_eq!(config(text).derived_context_length(), expected, "{text}");
        }
    }

    #[test]
    fn dual_chunks_limit_plain_attention() {
        let of = |chunks: &str| {
            let model =
                config(&format!(r#"{{"max_position_embeddings": 1010000, "dual_chunk_attention_config": {chunks}}}"#));
            (model.derived_context_length(), model.plain_context_length())
        };
        let published = r#"{"chunk_size": 262144, "local_size": 8192, "original_max_position_embeddings": 262144}"#;
        assert_eq!(of(published), (1_010_000, 262_144));
        assert_eq!(of(r#"{"chunk_size": 4000000}"#), (1_010_000, 1_010_000));
        assert_eq!((of("null"), of("{}")), ((1_010_000, 1_010_000), (1_010_000, 1_010_000)));
    }

    #[test]
    fn heads_and_dtypes_fall_back_as_engines_do() {
        let model = config(r#"{"hidden_size": 4096, "num_attention_heads": 32, "torch_dtype": "torch.bfloat16"}"#);
        assert_eq!((model.head_dim(), model.key_value_heads()), (Some(128), Some(32)));
        assert_eq!(model.weights_dtype(), Some("bfloat16"));
        assert_eq!(config(r#"{"dtype": "half", "torch_dtype": "float32"}"#).weights_dtype(), Some("float16"));
        assert_eq!(config(r#"{"hidden_size": 4096, "num_attention_heads": 0}"#).head_dim(), None);
    }

    #[test]
    fn the_rope_is_read_in_both_forms() {
        let old = config(r#"{"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8}}"#);
        assert_eq!(old.rope_base(), 5e5);
        assert_eq!(old.rope().scaling(), Some("llama3"));
        let new = config(r#"{"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "rope_theta": 5}"#);
        assert_eq!((new.rope_base(), new.rope().scaling()), (1e6, None));
    }

    #[test]
    fn a_scaling_in_the_older_form_wins_over_the_newer_one_and_keeps_its_base() {
        let newer = r#""rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}"#;
        let yarn = r#""rope_scaling": {"rope_type": "yarn", "factor": 4}, "max_position_embeddings": 32768"#;
        let both = config(&format!("{{{newer}, {yarn}}}"));
        let rope = both.rope();
        assert_eq!((rope.scaling(), rope.factor, both.derived_context_length()), (Some("yarn"), Some(4.0), 131_072));
        assert_eq!((both.rope_base(), rope.partial_rotary_factor), (1e6, Some(0.5)));
        let none = config(&format!(r#"{{{newer}, "rope_scaling": {{}}, "partial_rotary_factor": 0.25}}"#));
        assert_eq!((none.rope().scaling(), none.rope().partial_rotary_factor), (None, Some(0.5)));
        let linear = r#"{"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1},
                         "rope_scaling": {"type": "linear", "factor": 2}}"#;
        let rope = config(linear).rope();
        assert_eq!((rope.scaling(), rope.factor, rope.low_freq_factor), (Some("linear"), Some(2.0), None));
    }

    #[test]
    fn defaults_are_those_of_the_class() {
        for (class, base, epsilon) in [
            ("LlamaForCausalLM", 1e4, 1e-6),
            ("GptOssForCausalLM", 1.5e5, 1e-5),
            ("MiMoForCausalLM", 6.4e5, 1e-6),
            ("Glm4MoeForCausalLM", 1e4, 1e-5),
        ] {
            let config = config(&format!(r#"{{"architectures": ["{class}"]}}"#));
            assert_eq!((config.rope_base(), config.norm_epsilon()), (base, epsilon), "{class}");
        }
        let stated = config(r#"{"architectures": ["GptOssForCausalLM"], "rope_theta": 5, "rms_norm_eps": 0.5}"#);
        assert_eq!((stated.rope_base(), stated.norm_epsilon()), (5.0, 0.5));
    }
}

//! Memory of a checkpoint's weights and of its KV cache, in bytes.

use super::{DraftKind, ModelConfig, ModelFacts, TensorHeader, TokenBytes};

/// Prefixes of classes whose KV cache is not one full-length cache per layer.
const MIXED_CACHES: &[&str] = &[
    "DeepseekV32",
    "DeepseekV4",
    "FalconH1",
    "Gemma",
    "GlmMoeDsa",
    "Glm5Next",
    "GptOss",
    "GraniteMoeHybrid",
    "Inkling",
    "Kimi",
    "Lfm2",
    "Llama4",
    "LongcatFlash",
    "MiMoV2",
    "MiniMax",
    "NemotronH",
    "Qwen3Next",
    "Qwen3_5",
    "Qwen4Exp",
    "Step3",
];

impl ModelFacts {
    /// Bytes of all weights when loaded as `dtype` (`float16`, `bfloat16`, `float32`), over all
    /// GPUs; `None` if neither the tensors nor the sizes of a known family are known.
    ///
    /// An EAGLE head with the target's hidden size shares the target's embedding, which is not
    /// counted.
    pub fn loaded_bytes(&self, dtype: &str) -> Option<u64> {
        let shares_embedding = self.shares_embedding();
        let quantized = self.config.quantization_config.is_some();
        if let Some(tensors) = &self.tensors {
            let counted =
                tensors.0.iter().filter(|(name, _)| !(shares_embedding && name.ends_with("embed_tokens.weight")));
            return counted
                // A quantised checkpoint is loaded as it is stored.
                .map(|(_, tensor)| tensor_bytes(tensor, (!quantized).then_some(dtype)))
                .try_fold(0u64, |sum, bytes| sum.checked_add(bytes?));
        }
        if let Some(size) = self.index.as_ref().and_then(|index| index.total_size) {
            return Some(size);
        }
        self.config.bytes_of(self.config.parameters()?, dtype)
    }

    /// Of the `tables` of an EAGLE head, embedding and head, the number that it has in addition to
    /// [`loaded_bytes`](Self::loaded_bytes) until it gets the target's.
    pub fn shared_tables(&self, tables: u64) -> u64 {
        let counted = self.tensors.is_none() && self.index.as_ref().is_some_and(|index| index.total_size.is_some());
        if counted || !self.shares_embedding() {
            return 0;
        }
        let has_head =
            || self.tensors.as_ref().is_some_and(|all| all.0.keys().any(|name| name.ends_with("lm_head.weight")));
        match self.draft_kind() {
            Some(DraftKind::Eagle) if !has_head() => tables,
            _ => 1,
        }
    }

    fn shares_embedding(&self) -> bool {
        matches!(self.draft_kind(), Some(DraftKind::Eagle | DraftKind::Eagle3))
            && self.config.target_hidden_size.is_none_or(|target| Some(target) == self.config.hidden_size)
    }

    /// Bytes of the checkpoint's own MTP layers when loaded as `dtype`, in addition to
    /// [`loaded_bytes`](Self::loaded_bytes); 0 if that already counts all tensors of the
    /// checkpoint, `None` if not known.
    pub fn mtp_bytes(&self, dtype: &str) -> Option<u64> {
        let counted = self.tensors.is_some() || self.index.as_ref().is_some_and(|index| index.total_size.is_some());
        if counted { Some(0) } else { self.config.bytes_of(self.config.mtp_parameters()?, dtype) }
    }
}

/// Bytes of one tensor; floating-point weights count as `dtype` if it is given.
fn tensor_bytes(tensor: &TensorHeader, dtype: Option<&str>) -> Option<u64> {
    let elements =
        tensor.shape.iter().try_fold(1u64, |product, size| product.checked_mul(u64::try_from(*size).ok()?))?;
    let stored = match tensor.dtype.as_str() {
        "F64" | "I64" | "U64" => 8,
        "F32" | "I32" | "U32" => 4,
        "F16" | "BF16" | "I16" | "U16" => 2,
        // FP8, int8 and booleans.
        _ => 1,
    };
    let floating = matches!(tensor.dtype.as_str(), "F64" | "F32" | "F16" | "BF16");
    let size = dtype.filter(|_| floating).map_or(Some(stored), element_bytes)?;
    elements.checked_mul(size)
}

/// Bytes of one weight of this dtype; `None` for an unknown dtype.
pub fn element_bytes(dtype: &str) -> Option<u64> {
    match dtype {
        "float16" | "bfloat16" => Some(2),
        "float32" => Some(4),
        "float64" => Some(8),
        _ => None,
    }
}

impl ModelConfig {
    /// Bytes of this many weights, quantised if the config says so, else as `dtype`.
    fn bytes_of(&self, weights: u64, dtype: &str) -> Option<u64> {
        let quantized = self.quantization_config.is_some();
        let bits = if quantized { self.quantized_bits()? } else { element_bytes(dtype)?.checked_mul(8)? };
        Some(weights.checked_mul(bits)? / 8)
    }

    /// Bits per weight of the quantised layers, from `quantization_config`; `None` if its method is
    /// not known.
    fn quantized_bits(&self) -> Option<u64> {
        let settings = self.quantization_config.as_ref()?;
        let number = |name: &str| settings.get(name).and_then(serde_json::Value::as_u64).filter(|bits| *bits <= 16);
        number("bits").or_else(|| number("w_bit")).or_else(|| {
            let method = settings.get("quant_method").and_then(serde_json::Value::as_str)?;
            matches!(method, "fp8" | "modelopt" | "w8a8_fp8" | "w8a8_int8").then_some(8)
        })
    }

    /// Bytes per token in the KV cache of one GPU, over all layers, if every layer keeps all
    /// tokens. `element` is the size of one number, `tensor_parallel` the number of GPUs that share
    /// the heads.
    pub fn kv_bytes_per_token(&self, element: u64, tensor_parallel: usize) -> Option<u64> {
        let token = self.token_bytes(element, tensor_parallel)?;
        (token.windowed == 0).then_some(token.full)
    }

    /// The same, with layers that keep a window apart.
    ///
    /// SGLang `model_executor/pool_configurator.py`: a GPU keeps at least one head, and latent
    /// attention is not shared.
    pub fn token_bytes(&self, element: u64, tensor_parallel: usize) -> Option<TokenBytes> {
        let class = self.architecture()?;
        let windows = self.layer_windows();
        let window = self.sliding_window.is_some() && self.use_sliding_window != Some(false);
        // There may be windows, but it is not known which layers have one.
        if windows.is_none() && (window || MIXED_CACHES.iter().any(|known| class.starts_with(known))) {
            return None;
        }
        let numbers = match self.kv_lora_rank {
            Some(rank) => wide(Some(rank))?.checked_add(wide(self.qk_rope_head_dim)?)?,
            None => {
                let heads = (self.key_value_heads()? / tensor_parallel.max(1)).max(1);
                wide(Some(heads))?.checked_mul(wide(self.head_dim())?)?.checked_mul(2)?
            }
        };
        let layer = numbers.checked_mul(element)?;
        let with_window: Vec<usize> = windows.into_iter().flatten().flatten().collect();
        let (layers, windowed) = (wide(self.num_hidden_layers)?, wide(Some(with_window.len()))?);
        Some(TokenBytes {
            full: layer.checked_mul(layers.checked_sub(windowed)?)?,
            windowed: layer.checked_mul(windowed)?,
            window: wide(Some(with_window.into_iter().max().unwrap_or_default()))?,
        })
    }
}

pub(super) fn wide(size: Option<usize>) -> Option<u64> {
    u64::try_from(size?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(json: &str) -> ModelFacts {
        ModelFacts { config: ModelConfig::parse(json).expect("a config"), ..ModelFacts::default() }
    }

    const LLAMA_8B: &str = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}"#;

    #[test]
    fn dense_models_and_heads_have_their_published_sizes() {
        // Llama-3.1-8B has 8,030,261,248 weights, 266,240 of them in norms, which do not count
        // here.
        let llama = facts(LLAMA_8B).config.parameters().expect("dense");
        assert_eq!(llama, 8_029_995_008);
        // Its EAGLE-3 head without embedding: fc 3·4096², a layer with inputs of twice the width,
        // an LM head of 32000 rows.
        let head = facts(
            r#"{"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096, "intermediate_size": 14336,
                "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
                "draft_vocab_size": 32000}"#,
        );
        assert_eq!(head.config.parameters(), Some(424_673_280));
        assert_eq!(facts(LLAMA_8B).loaded_bytes("bfloat16"), Some(llama * 2));
        let experts = facts(r#"{"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 128}"#);
        assert_eq!(experts.loaded_bytes("bfloat16"), None);
    }

    #[test]
    fn tensors_count_as_they_are_loaded() {
        let tensor = |dtype: &str| TensorHeader { dtype: dtype.into(), shape: vec![10, 10] };
        let mut model = facts(r#"{"architectures": ["LlamaForCausalLMEagle"]}"#);
        let names = [("fc.weight", "F32"), ("embed_tokens.weight", "F16"), ("d2t", "I64")];
        let tensors = names.into_iter().map(|(name, dtype)| (name.to_owned(), tensor(dtype))).collect();
        model.tensors = Some(crate::model::TensorHeaders(tensors));
        assert_eq!(model.loaded_bytes("float16"), Some(200 + 800), "the embedding is the target's");
    }

    #[test]
    fn a_token_of_kv_has_its_known_size() {
        let llama = facts(LLAMA_8B).config;
        assert_eq!(llama.kv_bytes_per_token(2, 1), Some(131_072));
        assert_eq!(llama.kv_bytes_per_token(2, 16), Some(2 * 128 * 32 * 2));
        let latent = facts(
            r#"{"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512, "qk_rope_head_dim": 64,
                "num_hidden_layers": 61}"#,
        );
        assert_eq!(latent.config.kv_bytes_per_token(2, 8), Some(576 * 61 * 2));
        let window = facts(r#"{"architectures": ["GptOssForCausalLM"], "sliding_window": 128}"#);
        assert_eq!(window.config.kv_bytes_per_token(2, 1), None);
    }
}

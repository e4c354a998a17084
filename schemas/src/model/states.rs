//! Sizes of the states of linear attention (Gated DeltaNet), which a request keeps instead of
//! tokens.

use super::{ModelConfig, size::wide};

/// Families whose linear layers are Gated DeltaNets.
const FAMILIES: [&str; 2] = ["Qwen3Next", "Qwen3_5"];

/// Every fourth layer keeps all tokens if the config does not say otherwise.
const INTERVAL: usize = 4;

/// The state of one request on one GPU, in numbers, and the layers that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearState {
    /// Layers with a state.
    pub layers: u64,
    /// Layers that keep all tokens.
    pub full_layers: u64,
    /// Numbers of a layer's convolution: its last rows.
    pub convolution: u64,
    /// Numbers of a layer's recurrent state.
    pub recurrent: u64,
}

impl ModelConfig {
    /// The state of a request on one of `tensor_parallel` GPUs. `None` for other families, if a
    /// size is not known, and if the heads cannot be divided evenly.
    pub fn linear_state(&self, tensor_parallel: usize) -> Option<LinearState> {
        let class = self.architecture()?;
        if !FAMILIES.iter().any(|family| class.starts_with(family)) {
            return None;
        }
        let gpus = wide(Some(tensor_parallel)).filter(|gpus| *gpus > 0)?;
        let size = |name: &str| self.other.get(name)?.as_u64();
        let per_gpu = |name: &str| size(name).filter(|heads| heads.is_multiple_of(gpus))?.checked_div(gpus);
        let (keys, values) = (per_gpu("linear_num_key_heads")?, per_gpu("linear_num_value_heads")?);
        let (key, value) = (size("linear_key_head_dim")?, size("linear_value_head_dim")?);
        let rows = size("linear_conv_kernel_dim")?.checked_sub(1)?;
        let width = values.checked_mul(value)?.checked_add(keys.checked_mul(key)?.checked_mul(2)?)?;
        let (layers, full_layers) = (wide(self.num_hidden_layers)?, self.full_attention_layers()?);
        Some(LinearState {
            layers: layers.checked_sub(full_layers)?,
            full_layers,
            convolution: width.checked_mul(rows)?,
            recurrent: values.checked_mul(value)?.checked_mul(key)?,
        })
    }

    fn full_attention_layers(&self) -> Option<u64> {
        let layers = self.num_hidden_layers?;
        if let Some(types) = &self.layer_types {
            let full = types.iter().filter(|kind| *kind == "full_attention").count();
            let linear = types.iter().filter(|kind| *kind == "linear_attention").count();
            return wide(Some(full)).filter(|_| full + linear == layers && types.len() == layers);
        }
        wide(Some(layers))?.checked_div(wide(self.full_attention_interval())?)
    }

    /// Every how many layers one keeps all tokens, in families with linear layers: 4 if the config
    /// does not say, `None` if what it says is not a number.
    pub fn full_attention_interval(&self) -> Option<usize> {
        let stated = self.other.get("full_attention_interval").filter(|interval| !interval.is_null());
        stated.map_or(Some(INTERVAL), |interval| usize::try_from(interval.as_u64()?).ok())
    }

    /// Bytes of one token on one GPU in the layers that keep all tokens.
    pub fn full_attention_token_bytes(&self, element: u64, tensor_parallel: usize) -> Option<u64> {
        let state = self.linear_state(tensor_parallel)?;
        let heads = (self.key_value_heads()? / tensor_parallel.max(1)).max(1);
        let layer = wide(Some(heads))?.checked_mul(wide(self.head_dim())?)?.checked_mul(2)?.checked_mul(element)?;
        layer.checked_mul(state.full_layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> ModelConfig {
        let text = format!(
            r#"{{"architectures": ["Qwen3_5MoeForConditionalGeneration"], "text_config": {{"num_hidden_layers": 40,
                "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16,
                "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                "linear_conv_kernel_dim": 4{more}}}}}"#
        );
        ModelConfig::parse(&text).expect("a config")
    }

    #[test]
    fn a_request_has_one_state_in_each_linear_layer() {
        let config = config(r#", "full_attention_interval": 4"#);
        let state = config.linear_state(1).expect("known");
        // 32 x 128 values and twice 16 x 128 keys, of which the convolution keeps three rows.
        assert_eq!((state.layers, state.full_layers), (30, 10));
        assert_eq!((state.convolution, state.recurrent), (8192 * 3, 32 * 128 * 128));
        assert_eq!(config.full_attention_token_bytes(2, 1), Some(10 * 2 * 256 * 2 * 2));
        let half = config.linear_state(2).expect("known");
        assert_eq!((half.convolution, half.recurrent), (state.convolution / 2, state.recurrent / 2));
        assert_eq!(config.linear_state(3), None, "heads are not divided evenly");
        assert_eq!(config.linear_state(0), None);
    }

    #[test]
    fn types_of_layers_decide() {
        let types = |full: usize, linear: usize| {
            let kinds = std::iter::repeat_n("\"full_attention\"", full);
            let all: Vec<_> = kinds.chain(std::iter::repeat_n("\"linear_attention\"", linear)).collect();
            config(&format!(r#", "layer_types": [{}]"#, all.join(","))).linear_state(1)
        };
        assert_eq!(types(8, 32).map(|state| (state.layers, state.full_layers)), Some((32, 8)));
        assert_eq!(types(8, 30), None, "layers are missing");
        let llama = r#"{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2}"#;
        assert_eq!(ModelConfig::parse(llama).expect("a config").linear_state(1), None);
    }
}

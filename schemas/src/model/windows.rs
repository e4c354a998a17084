//! Layers whose attention sees only a window of tokens, and so keep no more than that of a
//! sequence: one description for the engine's caches and for estimates.

use super::ModelConfig;

/// Bytes of one token in the KV cache of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBytes {
    /// In layers that keep all tokens.
    pub full: u64,
    /// In layers that keep a window.
    pub windowed: u64,
    /// Tokens of the window; 0 without such layers.
    pub window: u64,
}

impl TokenBytes {
    /// Bytes of a sequence of this many tokens, at the least: an engine may keep more than the
    /// window.
    pub fn sequence_bytes(self, tokens: u64) -> u64 {
        let windowed = self.windowed.saturating_mul(tokens.min(self.window));
        self.full.saturating_mul(tokens).saturating_add(windowed)
    }
}

impl ModelConfig {
    /// The window of each layer of gpt-oss: by `layer_types`, or else of every second layer,
    /// starting with the first. `None` for other families, whose settings mean other things, and if
    /// a size or a type of layer is not known.
    pub fn layer_windows(&self) -> Option<Vec<Option<usize>>> {
        if !self.architecture()?.starts_with("GptOss") {
            return None;
        }
        let layers = self.num_hidden_layers?;
        let Some(types) = &self.layer_types else {
            let window = self.sliding_window?;
            return Some((0..layers).map(|at| at.is_multiple_of(2).then_some(window)).collect());
        };
        let of = |kind: &String| match kind.as_str() {
            "full_attention" => Some(None),
            "sliding_attention" => self.sliding_window.map(Some),
            _ => None,
        };
        types.iter().map(of).collect::<Option<Vec<_>>>().filter(|windows| windows.len() == layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> ModelConfig {
        let text = format!(
            r#"{{"architectures": ["GptOssForCausalLM"], "num_hidden_layers": 3, "num_attention_heads": 64,
                "num_key_value_heads": 8, "head_dim": 64, "hidden_size": 2880, {more}}}"#
        );
        ModelConfig::parse(&text).expect("a config")
    }

    #[test]
    fn layers_with_a_window_keep_that_much_of_a_sequence() {
        let config = config(r#""sliding_window": 128"#);
        assert_eq!(config.layer_windows(), Some(vec![Some(128), None, Some(128)]));
        let layer = 8 * 64 * 2 * 2;
        let token = config.token_bytes(2, 1).expect("known");
        assert_eq!(token, TokenBytes { full: layer, windowed: 2 * layer, window: 128 });
        assert_eq!(token.sequence_bytes(100), 300 * layer);
        assert_eq!(token.sequence_bytes(1000), 1000 * layer + 128 * 2 * layer);
        assert_eq!(config.kv_bytes_per_token(2, 1), None, "there is no one size of a token");
        assert_eq!(config.token_bytes(2, 16).map(|token| token.full), Some(layer / 8), "a GPU keeps at least one head");
    }

    #[test]
    fn types_of_layers_decide() {
        let types =
            |types: &str| config(&format!(r#""sliding_window": 128, "layer_types": [{types}]"#)).layer_windows();
        let (full, sliding) = ("\"full_attention\"", "\"sliding_attention\"");
        assert_eq!(types(&format!("{full}, {full}, {sliding}")), Some(vec![None, None, Some(128)]));
        assert_eq!(types(&format!("{full}, {sliding}")), None, "a layer is missing");
        assert_eq!(types(&format!("{full}, {full}, \"chunked_attention\"")), None);
        assert_eq!(
            config(r#""layer_types": ["full_attention", "full_attention", "sliding_attention"]"#).layer_windows(),
            None
        );
        let llama = r#"{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "sliding_window": 128}"#;
        assert_eq!(ModelConfig::parse(llama).expect("a config").layer_windows(), None);
    }
}

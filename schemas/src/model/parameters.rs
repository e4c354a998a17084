//! Number of weights of a model, from the sizes in its config.json. The engine counts them from the
//! tensors; its tests compare both counts.

use super::{DraftKind, ModelConfig, size::wide};

/// Classes with dense layers like Llama's.
const DENSE: &[&str] =
    &["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MiMoForCausalLM"];
/// Classes with layers of experts, and the same attention or latent attention.
const EXPERTS: &[&str] = &["Qwen3MoeForCausalLM", "Glm4MoeForCausalLM", "DeepseekV3ForCausalLM"];

impl ModelConfig {
    /// Number of weights in the matrices of a model of a known family without its MTP layers, or of
    /// an EAGLE head without the embedding that it shares. `None` for other classes, or if a size
    /// is not known.
    pub fn parameters(&self) -> Option<u64> {
        let hidden = wide(self.hidden_size)?;
        match self.draft_kind() {
            Some(DraftKind::Eagle3) => {
                let states = wide(self.num_aux_hidden_states).unwrap_or(3);
                let states = states.checked_mul(wide(self.target_hidden_size).unwrap_or(hidden))?;
                let vocabulary = wide(self.draft_vocab_size.or(self.vocab_size))?;
                let around = hidden.checked_mul(states.checked_add(vocabulary)?)?;
                around.checked_add(self.attention(hidden.checked_mul(2)?)?)?.checked_add(self.dense()?)
            }
            Some(DraftKind::Eagle) => {
                let join = hidden.checked_mul(hidden)?.checked_mul(2)?;
                join.checked_add(self.attention(hidden)?)?.checked_add(self.dense()?)
            }
            _ if self.is_of(DENSE) && self.routed_experts().is_none() || self.is_of(EXPERTS) => {
                let heads = if self.tie_word_embeddings == Some(true) { 1 } else { 2 };
                let tables = wide(self.vocab_size)?.checked_mul(hidden)?.checked_mul(heads)?;
                let layers = self.num_hidden_layers?;
                let sparse = self.sparse_layers(layers)?;
                // If all layers are of one kind, the width of the other kind need not be known.
                let several = |count: usize, of: Option<u64>| match count {
                    0 => Some(0),
                    _ => wide(Some(count))?.checked_mul(of?),
                };
                let attention = several(layers, self.attention(hidden))?;
                let feed_forward =
                    several(layers - sparse, self.dense())?.checked_add(several(sparse, self.experts())?)?;
                tables.checked_add(attention)?.checked_add(feed_forward)
            }
            _ => None,
        }
    }

    /// Number of those of [`parameters`](Self::parameters) that a pass over one token reads: of the
    /// routed experts, the ones of a token. `None` if it is not known how many these are.
    pub fn active_parameters(&self) -> Option<u64> {
        let mut read = self.clone();
        if self.routed_experts().is_some() {
            let chosen = Some(self.num_experts_per_tok?);
            (read.num_experts, read.n_routed_experts, read.num_local_experts) = (chosen, None, None);
        }
        read.parameters()
    }

    /// Number of weights in the matrices of the checkpoint's MTP layers, without the embedding and
    /// LM head that they share. 0 without MTP layers, `None` if a size is not known.
    pub fn mtp_parameters(&self) -> Option<u64> {
        let count = wide(Some(self.mtp_layers().unwrap_or(0)))?;
        if count == 0 {
            return Some(0);
        }
        if !self.is_of(DENSE) && !self.is_of(EXPERTS) {
            return None;
        }
        let hidden = wide(self.hidden_size)?;
        // The MTP layer of a mixture-of-experts model always has experts.
        let feed_forward = if self.is_of(EXPERTS) { self.experts()? } else { self.dense()? };
        let join = hidden.checked_mul(hidden)?.checked_mul(2)?;
        join.checked_add(self.attention(hidden)?)?.checked_add(feed_forward)?.checked_mul(count)
    }

    fn is_of(&self, classes: &[&str]) -> bool {
        self.architecture().is_some_and(|class| classes.contains(&class))
    }

    /// Number of layers that have experts.
    fn sparse_layers(&self, layers: usize) -> Option<usize> {
        if !self.is_of(EXPERTS) {
            return Some(0);
        }
        let dense = match self.architecture() {
            Some("Glm4MoeForCausalLM") => Some(self.first_k_dense_replace.unwrap_or(1)),
            Some("DeepseekV3ForCausalLM") => Some(self.first_k_dense_replace.unwrap_or(3)),
            _ => None,
        };
        if let Some(dense) = dense {
            return Some(layers.saturating_sub(dense));
        }
        let step = self.decoder_sparse_step.unwrap_or(1);
        let dense = self.mlp_only_layers.as_deref().unwrap_or_default();
        // More layers are certainly a mistake, and would take long to count.
        (step > 0 && layers <= 1 << 16)
            .then(|| (0..layers).filter(|at| (at + 1).is_multiple_of(step) && !dense.contains(at)).count())
    }

    /// Weights of the query, key, value and output projections of attention with this input width.
    fn attention(&self, inputs: u64) -> Option<u64> {
        if self.is_of(&["DeepseekV3ForCausalLM"]) {
            return self.latent_attention(inputs);
        }
        let head = wide(self.head_dim())?;
        let queries = wide(self.num_attention_heads)?.checked_mul(head)?;
        let keys = wide(self.key_value_heads())?.checked_mul(head)?;
        let out = queries.checked_mul(wide(self.hidden_size)?)?;
        inputs.checked_mul(queries.checked_add(keys.checked_mul(2)?)?)?.checked_add(out)
    }

    /// Weights of the projections of latent attention: to queries (with or without compression), to
    /// the latent vector and the rotated key that all heads share, from there to keys and values,
    /// and the output.
    fn latent_attention(&self, inputs: u64) -> Option<u64> {
        let (heads, rank) = (wide(self.num_attention_heads)?, wide(self.kv_lora_rank)?);
        let (plain, rotated) = (wide(self.qk_nope_head_dim)?, wide(self.qk_rope_head_dim)?);
        let value = wide(self.v_head_dim)?;
        let queries = heads.checked_mul(plain.checked_add(rotated)?)?;
        let to_queries = match wide(self.q_lora_rank) {
            Some(rank) => rank.checked_mul(inputs.checked_add(queries)?)?,
            None => inputs.checked_mul(queries)?,
        };
        let to_latent = inputs.checked_mul(rank.checked_add(rotated)?)?;
        let from_latent = heads.checked_mul(plain.checked_add(value)?)?.checked_mul(rank)?;
        let out = heads.checked_mul(value)?.checked_mul(wide(self.hidden_size)?)?;
        to_queries.checked_add(to_latent)?.checked_add(from_latent)?.checked_add(out)
    }

    /// Weights of the gate, up and down projections of a dense layer.
    fn dense(&self) -> Option<u64> {
        wide(self.hidden_size)?.checked_mul(wide(self.intermediate_size)?)?.checked_mul(3)
    }

    /// Weights of the router, the routed experts and the shared experts of a layer.
    fn experts(&self) -> Option<u64> {
        let experts = wide(self.routed_experts())?;
        let blocks = experts.checked_add(wide(self.n_shared_experts).unwrap_or(0))?;
        let hidden = wide(self.hidden_size)?;
        let one = hidden.checked_mul(wide(self.moe_intermediate_size)?)?.checked_mul(3)?;
        one.checked_mul(blocks)?.checked_add(experts.checked_mul(hidden)?)
    }
}

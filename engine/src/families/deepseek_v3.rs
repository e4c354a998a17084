//! DeepSeek-V3 and R1, and models with the same architecture (Kimi-K2, Moonlight): latent
//! attention, dense first layers, a sigmoid router with a correction bias that chooses from groups,
//! a shared expert, and an MTP layer after the last layer, which always has experts.

use super::{
    CapturedIds, Config, Family, MtpFamily,
    corrected::{self, Defaults},
    rope,
};
use crate::{
    error::EngineError,
    spec::{
        AttentionSpec, ExpertsSpec, FfnSpec, Join, LayerFormats, LayerSpec, MultiHeadLatent, NormWeights, Pairing,
        RecurrentTensorLayout, RopeSpec, TargetSpec,
    },
};

/// The family of `DeepseekV3ForCausalLM`.
pub static FAMILY: Family = Family {
    architectures: &["DeepseekV3ForCausalLM"],
    reads: &[],
    target: read,
    mtp: Some(MtpFamily {
        // In a folder with only the MTP layer, it is layer 0.
        layout: |layer| RecurrentTensorLayout::NextN { prefix: TargetSpec::layer_prefix(layer) },
        layer: |config, prefix| layer(config, config.experts(prefix, &experts(config)?)?),
        join: Join::NormedLinear { hidden_first: false, zero_first_embedding: false },
    }),
    captured_ids: CapturedIds::DeepSeek,
};

fn read(config: &Config<'_>) -> Result<TargetSpec, EngineError> {
    let experts = experts(config)?;
    let dense = config.fields().first_k_dense_replace.unwrap_or(3);
    config.target(|at, prefix| {
        let ffn = if at < dense { config.dense(prefix)? } else { config.experts(prefix, &experts)? };
        layer(config, ffn)
    })
}

fn layer(config: &Config<'_>, ffn: FfnSpec) -> Result<LayerSpec, EngineError> {
    Ok(LayerSpec {
        hidden: config.hidden()?,
        epsilon: config.epsilon()?,
        input_norm: true,
        norms: NormWeights::Whole,
        attention: AttentionSpec::Latent(attention(config)?),
        ffn,
        formats: LayerFormats::default(),
    })
}

fn experts(config: &Config<'_>) -> Result<ExpertsSpec, EngineError> {
    corrected::experts(config, Defaults { groups: 8, groups_kept: 4, scaling: 2.5 })
}

fn attention(config: &Config<'_>) -> Result<MultiHeadLatent, EngineError> {
    let fields = config.fields();
    let heads = config.size(fields.num_attention_heads, "num_attention_heads")?;
    if let Some(key_value_heads) = fields.num_key_value_heads.filter(|count| *count != heads) {
        return Err(config.malformed(format!(
            "num_key_value_heads is {key_value_heads}, expected {heads}, as num_attention_heads is: latent attention has \
             keys for each head"
        )));
    }
    if fields.attention_bias == Some(true) {
        return Err(config.unsupported("biases in latent attention (attention_bias = true)", "only false is supported"));
    }
    let (nope_dim, rotated) = (
        config.size(fields.qk_nope_head_dim, "qk_nope_head_dim")?,
        config.size(fields.qk_rope_head_dim, "qk_rope_head_dim")?,
    );
    let pairing = if fields.rope_interleave == Some(false) { Pairing::Halves } else { Pairing::Interleaved };
    let hidden = config.hidden()?;
    Ok(MultiHeadLatent {
        input: hidden,
        output: hidden,
        heads,
        query_rank: fields.q_lora_rank.map(|rank| config.size(Some(rank), "q_lora_rank")).transpose()?,
        latent_rank: config.size(fields.kv_lora_rank, "kv_lora_rank")?,
        nope_dim,
        value_dim: config.size(fields.v_head_dim, "v_head_dim")?,
        score_scale: rope::score_factor(config)? / ((nope_dim + rotated) as f32).sqrt(),
        rope: RopeSpec { pairing, ..rope::read(config, rotated, 1.0)? },
    })
}

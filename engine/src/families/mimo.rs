//! MiMo-7B: Qwen2's layers, and an MTP layer that puts the hidden state before the embedding.

use super::{CapturedIds, Config, Family, MtpFamily, config::FamilyAttention};
use crate::{
    error::EngineError,
    spec::{Join, LayerSpec, RecurrentTensorLayout},
};

/// Base, SFT, RL, RL-Zero, RL-0530.
pub static FAMILY: Family = Family {
    architectures: &["MiMoForCausalLM"],
    reads: &[],
    target: |config| config.target(|_, prefix| layer(config, prefix)),
    mtp: Some(MtpFamily {
        layout: |_| RecurrentTensorLayout::Mimo { prefix: "model.mtp_layers.0".into() },
        layer,
        // Both SGLang and vLLM zero the embedding of the first position.
        join: Join::NormedLinear { hidden_first: true, zero_first_embedding: true },
    }),
    captured_ids: CapturedIds::Outputs,
};

fn layer(config: &Config<'_>, prefix: &str) -> Result<LayerSpec, EngineError> {
    let attention = FamilyAttention { qkv_bias: true, ..FamilyAttention::PLAIN };
    config.layer(prefix, attention, config.dense(prefix)?)
}

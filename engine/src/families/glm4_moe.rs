//! GLM-4.5, 4.5-Air, 4.6 and 4.7: half of each head is rotated, a sigmoid router with a correction
//! bias, a shared expert, dense first layers, and an MTP layer after the last layer, which always
//! has experts.

use super::{
    CapturedIds, Config, Family, MtpFamily,
    config::FamilyAttention,
    corrected::{self, Defaults},
};
use crate::{
    error::EngineError,
    spec::{ExpertsSpec, Join, LayerSpec, RecurrentTensorLayout, TargetSpec},
};

/// The family of `Glm4MoeForCausalLM`.
pub static FAMILY: Family = Family {
    architectures: &["Glm4MoeForCausalLM"],
    reads: &[],
    target: read,
    mtp: Some(MtpFamily {
        // In a folder with only the MTP layer, it is layer 0.
        layout: |layer| RecurrentTensorLayout::NextN { prefix: TargetSpec::layer_prefix(layer) },
        layer: |config, prefix| config.layer(prefix, attention(config), config.experts(prefix, &experts(config)?)?),
        join: Join::NormedLinear { hidden_first: false, zero_first_embedding: false },
    }),
    captured_ids: CapturedIds::Outputs,
};

fn read(config: &Config<'_>) -> Result<TargetSpec, EngineError> {
    let experts = experts(config)?;
    let dense = config.fields().first_k_dense_replace.unwrap_or(1);
    config.target(|at, prefix| -> Result<LayerSpec, EngineError> {
        let ffn = if at < dense { config.dense(prefix)? } else { config.experts(prefix, &experts)? };
        config.layer(prefix, attention(config), ffn)
    })
}

fn attention(config: &Config<'_>) -> FamilyAttention {
    let head_norms = Some(config.fields().use_qk_norm.unwrap_or(false));
    FamilyAttention { head_norms, rotated: 0.5, ..FamilyAttention::PLAIN }
}

fn experts(config: &Config<'_>) -> Result<ExpertsSpec, EngineError> {
    corrected::experts(config, Defaults { groups: 1, groups_kept: 1, scaling: 1.0 })
}

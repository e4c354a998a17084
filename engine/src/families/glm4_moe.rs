//! GLM-4.5, 4.5-Air, 4.6 and 4.7: half of a head rotated, a sigmoid router with a correction, a shared expert, dense first
//! layers, and an MTP layer behind the last one, which always has experts.

use super::{CapturedIds, Config, Family, MtpFamily, config::Attention};
use crate::{
    error::EngineError,
    spec::{DraftTensorLayout, ExpertsSpec, Join, LayerSpec, RouterPrecision, RouterScore, RouterSpec, TargetSpec},
};

/// The family of `Glm4MoeForCausalLM`.
pub static FAMILY: Family = Family {
    architectures: &["Glm4MoeForCausalLM"],
    target: read,
    mtp: Some(MtpFamily {
        // A folder of the MTP layer alone calls it the first.
        layouts: |layers| {
            [layers, 0].map(|at| DraftTensorLayout::NextN { prefix: TargetSpec::layer_prefix(at) }).into()
        },
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

fn attention(config: &Config<'_>) -> Attention {
    let head_norms = Some(config.fields().use_qk_norm.unwrap_or(false));
    Attention { head_norms, rotated: 0.5, ..Attention::PLAIN }
}

fn experts(config: &Config<'_>) -> Result<ExpertsSpec, EngineError> {
    let fields = config.fields();
    config.expect_setting("scoring_func", fields.scoring_func.as_deref(), "sigmoid")?;
    config.expect_setting("topk_method", fields.topk_method.as_deref(), "noaux_tc")?;
    let scaling = fields.routed_scaling_factor.unwrap_or(1.0);
    if !scaling.is_finite() {
        return Err(config.malformed(format!("routed_scaling_factor is {scaling}")));
    }
    let intermediate = config.size(fields.moe_intermediate_size, "moe_intermediate_size")?;
    let shared = match fields.n_shared_experts.unwrap_or(1) {
        0 => None,
        count => Some(config.size(count.checked_mul(intermediate), "n_shared_experts · moe_intermediate_size")?),
    };
    let spec = ExpertsSpec {
        router: RouterSpec {
            score: RouterScore::Sigmoid,
            logits: RouterPrecision::Float32,
            renormalise: fields.norm_topk_prob.unwrap_or(true).then_some(1e-20),
            correction_bias: true,
            groups: fields.n_group.unwrap_or(1),
            groups_kept: fields.topk_group.unwrap_or(1),
            scaling: scaling as f32,
        },
        experts: config.size(fields.routed_experts(), "n_routed_experts")?,
        per_token: config.size(fields.num_experts_per_tok, "num_experts_per_tok")?,
        intermediate,
        shared,
    };
    config.check_router(&spec)?;
    Ok(spec)
}

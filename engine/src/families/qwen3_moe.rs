//! Qwen3-MoE: Qwen3's attention, and a softmax router over experts, without a shared expert.

use kernels::reference::GateActivation;

use super::{CapturedIds, Config, Family, config::FamilyAttention};
use crate::{
    error::EngineError,
    spec::{ExpertsLayout, ExpertsSpec, RouterPrecision, RouterScore, RouterSpec, TargetSpec},
};

/// 30B-A3B, 235B-A22B, Coder.
pub static FAMILY: Family = Family {
    architectures: &["Qwen3MoeForCausalLM"],
    target: read,
    mtp: None,
    captured_ids: CapturedIds::Outputs,
    reads: &[],
};

fn read(config: &Config<'_>) -> Result<TargetSpec, EngineError> {
    let fields = config.fields();
    let experts = experts(config)?;
    let step = fields.decoder_sparse_step.unwrap_or(1);
    if step == 0 {
        return Err(config.malformed("decoder_sparse_step is 0, expected 1 or more".into()));
    }
    let dense_layers = fields.mlp_only_layers.as_deref().unwrap_or_default();
    let attention = FamilyAttention { head_norms: Some(true), ..FamilyAttention::PLAIN };
    config.target(|at, prefix| {
        let dense = dense_layers.contains(&at) || !(at + 1).is_multiple_of(step);
        let ffn = if dense { config.dense(prefix)? } else { config.experts(prefix, &experts)? };
        config.layer(prefix, attention, ffn)
    })
}

/// The experts of its layers.
pub fn experts(config: &Config<'_>) -> Result<ExpertsSpec, EngineError> {
    let fields = config.fields();
    config.expect_setting("scoring_func", fields.scoring_func.as_deref(), "softmax")?;
    config.expect_setting("topk_method", fields.topk_method.as_deref(), "greedy")?;
    let spec = ExpertsSpec {
        router: RouterSpec {
            score: RouterScore::Softmax,
            logits: RouterPrecision::Model,
            // In the published code an absent value means false, though every published file says
            // true.
            renormalise: (fields.norm_topk_prob == Some(true)).then_some(0.0),
            correction_bias: false,
            groups: 1,
            groups_kept: 1,
            scaling: 1.0,
            uniform: false,
        },
        experts: config.routed_experts("num_experts")?,
        per_token: config.size(fields.num_experts_per_tok, "num_experts_per_tok")?,
        intermediate: config.size(fields.moe_intermediate_size, "moe_intermediate_size")?,
        shared: None,
        activation: GateActivation::Silu,
        bias: false,
        layout: ExpertsLayout::Separate,
        shared_gate: false,
    };
    config.check_router(&spec)?;
    Ok(spec)
}

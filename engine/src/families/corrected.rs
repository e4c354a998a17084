//! Experts that a sigmoid router chooses with a correction bias (`noaux_tc`), from groups if there
//! are several: GLM-4.5 and DeepSeek-V3.

use kernels::reference::GateActivation;

use super::Config;
use crate::{
    error::EngineError,
    spec::{ExpertsLayout, ExpertsSpec, RouterPrecision, RouterScore, RouterSpec},
};

/// Defaults of a family's published code for values that are missing from config.json.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// `n_group`.
    pub groups: usize,
    /// `topk_group`.
    pub groups_kept: usize,
    /// `routed_scaling_factor`.
    pub scaling: f64,
}

/// Reads the experts and their router.
///
/// # Errors
/// When a size is missing, or the router is of a different kind.
pub fn experts(config: &Config<'_>, defaults: Defaults) -> Result<ExpertsSpec, EngineError> {
    let fields = config.fields();
    config.expect_setting("scoring_func", fields.scoring_func.as_deref(), "sigmoid")?;
    config.expect_setting("topk_method", fields.topk_method.as_deref(), "noaux_tc")?;
    let scaling = fields.routed_scaling_factor.unwrap_or(defaults.scaling);
    if !(scaling > 0.0 && (scaling as f32).is_finite()) {
        return Err(config.malformed(format!("routed_scaling_factor is {scaling}, expected a number above 0")));
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
            groups: fields.n_group.unwrap_or(defaults.groups),
            groups_kept: fields.topk_group.unwrap_or(defaults.groups_kept),
            scaling: scaling as f32,
            uniform: false,
        },
        experts: config.routed_experts("n_routed_experts")?,
        per_token: config.size(fields.num_experts_per_tok, "num_experts_per_tok")?,
        intermediate,
        shared,
        activation: GateActivation::Silu,
        bias: false,
        layout: ExpertsLayout::Separate,
        shared_gate: false,
    };
    config.check_router(&spec)?;
    Ok(spec)
}

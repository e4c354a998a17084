//! gpt-oss: attention with sinks and biases, a window in every second layer, and a router with a
//! bias over experts in MXFP4 with a clamped activation.

use kernels::reference::GateActivation;

use super::{CapturedIds, Config, Family, config::FamilyAttention};
use crate::{
    error::EngineError,
    spec::{
        AttentionSpec, ExpertsLayout, ExpertsSpec, FfnSpec, GroupedQuery, LayerFormats, LayerSpec, NormWeights,
        RouterPrecision, RouterScore, RouterSpec, TargetSpec,
    },
};

/// 20b and 120b.
pub static FAMILY: Family = Family {
    architectures: &["GptOssForCausalLM"],
    target: read,
    mtp: None,
    captured_ids: CapturedIds::GptOss,
    reads: &["sliding_window", "swiglu_limit"],
};

/// The factor of gate within its sigmoid, which no setting gives.
const ALPHA: f32 = 1.702;
/// `swiglu_limit` if it is absent.
const LIMIT: f64 = 7.0;

/// The router: softmax over the best K logits, which equals a softmax over all experts,
/// renormalised.
const ROUTER: RouterSpec = RouterSpec {
    score: RouterScore::Softmax,
    logits: RouterPrecision::Model,
    renormalise: Some(0.0),
    correction_bias: false,
    groups: 1,
    groups_kept: 1,
    scaling: 1.0,
    uniform: false,
};

fn read(config: &Config<'_>) -> Result<TargetSpec, EngineError> {
    let experts = experts(config)?;
    let windows = windows(config)?;
    if config.fields().attention_bias == Some(false) {
        return Err(config.malformed("attention_bias is false, but the attention of gpt-oss has biases".into()));
    }
    let properties = FamilyAttention { qkv_bias: true, head_norms: Some(false), ..FamilyAttention::PLAIN };
    config.target(|at, prefix| {
        let hidden = config.hidden()?;
        config.tensors.expect(&format!("{prefix}.mlp.router.weight"), &[experts.experts, hidden])?;
        check_packed(config, prefix)?;
        let attention = GroupedQuery {
            output_bias: true,
            sinks: true,
            window: windows.get(at).copied().flatten(),
            ..config.attention(prefix, properties, hidden)?
        };
        Ok(LayerSpec {
            hidden,
            epsilon: config.epsilon()?,
            input_norm: true,
            norms: NormWeights::Whole,
            attention: AttentionSpec::Grouped(attention),
            ffn: FfnSpec::Experts(experts.clone()),
            formats: LayerFormats::default(),
        })
    })
}

/// The window of each layer.
fn windows(config: &Config<'_>) -> Result<Vec<Option<usize>>, EngineError> {
    let fields = config.fields();
    let layers = config.size(fields.num_hidden_layers, "num_hidden_layers")?;
    let types = fields.layer_types.as_deref();
    if let Some(types) = types.filter(|types| types.len() != layers) {
        let found = types.len();
        return Err(config.malformed(format!("layer_types names {found} layers, but num_hidden_layers is {layers}")));
    }
    const KNOWN: [&str; 2] = ["full_attention", "sliding_attention"];
    if let Some(other) = types.unwrap_or_default().iter().find(|kind| !KNOWN.contains(&kind.as_str())) {
        return Err(
            config.unsupported(format!("layers of type {other}"), "supported are full_attention and sliding_attention")
        );
    }
    if types.is_none_or(|types| types.iter().any(|kind| kind == KNOWN[1])) {
        config.size(fields.sliding_window, "sliding_window")?;
    }
    fields.layer_windows().ok_or_else(|| config.malformed("the windows of its layers cannot be read".into()))
}

fn experts(config: &Config<'_>) -> Result<ExpertsSpec, EngineError> {
    let fields = config.fields();
    let limit = match fields.other.get("swiglu_limit").filter(|limit| !limit.is_null()) {
        None => LIMIT,
        Some(limit) => limit
            .as_f64()
            .filter(|limit| *limit > 0.0 && limit.is_finite())
            .ok_or_else(|| config.malformed(format!("swiglu_limit is {limit}, expected a number above 0")))?,
    };
    let spec = ExpertsSpec {
        router: ROUTER,
        experts: config.routed_experts("num_local_experts")?,
        per_token: config.size(fields.num_experts_per_tok, "num_experts_per_tok")?,
        intermediate: config.size(fields.intermediate_size, "intermediate_size")?,
        shared: None,
        shared_gate: false,
        activation: GateActivation::Clamped { alpha: ALPHA, limit: limit as f32 },
        bias: true,
        layout: ExpertsLayout::Alternating,
    };
    config.check_router(&spec)?;
    Ok(spec)
}

/// Refuses experts that are not in MXFP4, such as those of converted releases, whose matrices are
/// transposed.
fn check_packed(config: &Config<'_>, prefix: &str) -> Result<(), EngineError> {
    let stored = |name: &str| config.tensors.has(&format!("{prefix}.mlp.experts.0.{name}.weight"));
    let packed = |name: &str| config.tensors.is_mxfp4(&format!("{prefix}.mlp.experts.0.{name}.weight"));
    let projections = ["gate_proj", "up_proj", "down_proj"];
    if projections.iter().any(|name| stored(name) && !packed(name)) {
        return Err(config.unsupported(
            format!("experts of {prefix} in another format than MXFP4"),
            "use the published release, whose experts are in MXFP4 (gate_up_proj_blocks, gate_up_proj_scales, …)",
        ));
    }
    Ok(())
}

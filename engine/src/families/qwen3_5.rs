//! Qwen3.5, 3.6 and 3.8, the language model of their multimodal releases: gated delta nets, and in
//! every fourth layer full attention with gated outputs of which a quarter of each head is rotated;
//! norms stored less one; dense, or with experts and a gated shared expert; and an MTP layer with
//! full attention.
//!
//! The sections of the rotation (`mrope_section`) divide it between the time, height and width of
//! an image. In text all three are the position, so they change nothing. The vision tower is not
//! read, and images are refused.

use serde_json::Value as Json;

use super::{CapturedIds, Config, Family, MtpFamily, config::FamilyAttention};
use crate::{
    error::EngineError,
    spec::{
        AttentionSpec, DeltaNet, ExpertsLayout, ExpertsSpec, FfnSpec, Join, LayerFormats, LayerSpec, NormWeights,
        RecurrentTensorLayout, RouterPrecision, RouterScore, RouterSpec, TargetSpec,
    },
};
use kernels::reference::{DeltaSizes, GateActivation};

/// Settings that this family reads and others do not.
const READS: &[&str] = &[
    "layer_types",
    "full_attention_interval",
    "attn_output_gate",
    "linear_num_value_heads",
    "shared_expert_intermediate_size",
    "mrope_section",
    "mrope_interleaved",
];

/// 0.8B to 27B.
pub static DENSE: Family = family(&["Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"]);

/// 35B-A3B, 122B-A10B, 397B-A17B.
pub static EXPERTS: Family = family(&["Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"]);

const fn family(architectures: &'static [&'static str]) -> Family {
    Family {
        architectures,
        reads: READS,
        target: read,
        mtp: Some(MtpFamily {
            layout: |_| RecurrentTensorLayout::QwenMtp,
            layer: |config, prefix| full_layer(config, prefix, ffn(config, usize::MAX, prefix)?),
            join: Join::NormedLinear { hidden_first: false, zero_first_embedding: false },
        }),
        captured_ids: CapturedIds::Outputs,
    }
}

fn read(config: &Config<'_>) -> Result<TargetSpec, EngineError> {
    let other = &config.fields().other;
    if other.get("mtp_use_dedicated_embeddings").and_then(Json::as_bool) == Some(true) {
        return Err(config.unsupported(
            "mtp_use_dedicated_embeddings = true in config.json",
            "the MTP layer of this engine uses the target's embedding",
        ));
    }
    let gate = other.get("output_gate_type").and_then(Json::as_str);
    if let Some(gate) = gate.filter(|gate| !matches!(*gate, "silu" | "swish")) {
        return Err(config.unsupported(format!("output_gate_type = {gate} in config.json"), "supported: swish"));
    }
    if other.contains_key("vision_config") {
        tracing::info!("{}: text only: the vision tower is not loaded", config.folder().path().display());
    }
    let linear = linear_layers(config)?;
    config.target(|at, prefix| {
        let ffn = ffn(config, at, prefix)?;
        match linear.get(at) {
            Some(true) => linear_layer(config, ffn),
            _ => full_layer(config, prefix, ffn),
        }
    })
}

/// Which layers are linear attention: as listed, or else all but every
/// `full_attention_interval`-th, by default every fourth.
fn linear_layers(config: &Config<'_>) -> Result<Vec<bool>, EngineError> {
    let layers = config.size(config.fields().num_hidden_layers, "num_hidden_layers")?;
    let Some(kinds) = &config.fields().layer_types else {
        let interval = config.size(config.fields().full_attention_interval(), "full_attention_interval")?;
        return Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect());
    };
    if kinds.len() != layers {
        let listed = kinds.len();
        return Err(config.malformed(format!("layer_types lists {listed} layers, but num_hidden_layers is {layers}")));
    }
    let is_linear =
        |kind: &String| match kind.as_str() {
            "linear_attention" => Ok(true),
            "full_attention" => Ok(false),
            kind => Err(config
                .unsupported(format!("layers of type {kind}"), "this family has linear_attention and full_attention")),
        };
    kinds.iter().map(is_linear).collect()
}

fn linear_layer(config: &Config<'_>, ffn: FfnSpec) -> Result<LayerSpec, EngineError> {
    let sizes = DeltaSizes {
        key_heads: number(config, "linear_num_key_heads")?,
        value_heads: number(config, "linear_num_value_heads")?,
        key_dim: number(config, "linear_key_head_dim")?,
        value_dim: number(config, "linear_value_head_dim")?,
        taps: number(config, "linear_conv_kernel_dim")?,
    };
    if !sizes.value_heads.is_multiple_of(sizes.key_heads) {
        let DeltaSizes { key_heads, value_heads, .. } = sizes;
        return Err(config.malformed(format!(
            "linear_num_value_heads is {value_heads}, which is not a multiple of linear_num_key_heads, which is {key_heads}"
        )));
    }
    let hidden = config.hidden()?;
    layer(config, AttentionSpec::Delta(DeltaNet { input: hidden, output: hidden, sizes }), ffn)
}

fn full_layer(config: &Config<'_>, prefix: &str, ffn: FfnSpec) -> Result<LayerSpec, EngineError> {
    let family = FamilyAttention { head_norms: Some(true), rotated: 0.25, ..FamilyAttention::PLAIN };
    let mut attention = config.attention(prefix, family, config.hidden()?)?;
    attention.output_gate = config.fields().other.get("attn_output_gate").and_then(Json::as_bool) != Some(false);
    layer(config, AttentionSpec::Grouped(attention), ffn)
}

fn layer(config: &Config<'_>, attention: AttentionSpec, ffn: FfnSpec) -> Result<LayerSpec, EngineError> {
    Ok(LayerSpec {
        hidden: config.hidden()?,
        epsilon: config.epsilon()?,
        input_norm: true,
        norms: NormWeights::LessOne,
        attention,
        ffn,
        formats: LayerFormats::default(),
    })
}

/// The feed-forward block of a layer; that of the MTP layer is like most of the target's.
fn ffn(config: &Config<'_>, at: usize, prefix: &str) -> Result<FfnSpec, EngineError> {
    let fields = config.fields();
    let dense_layers = fields.mlp_only_layers.as_deref().unwrap_or_default();
    if fields.routed_experts().is_none() || dense_layers.contains(&at) {
        return config.dense(prefix);
    }
    let shared = number(config, "shared_expert_intermediate_size")?;
    let spec = ExpertsSpec {
        router: RouterSpec {
            score: RouterScore::Softmax,
            logits: RouterPrecision::Model,
            // The releases have no setting for it.
            renormalise: Some(0.0),
            correction_bias: false,
            groups: 1,
            groups_kept: 1,
            scaling: 1.0,
            uniform: false,
        },
        experts: config.routed_experts("num_experts")?,
        per_token: config.size(fields.num_experts_per_tok, "num_experts_per_tok")?,
        intermediate: config.size(fields.moe_intermediate_size, "moe_intermediate_size")?,
        shared: Some(shared),
        shared_gate: true,
        activation: GateActivation::Silu,
        bias: false,
        layout: ExpertsLayout::Separate,
    };
    config.check_router(&spec)?;
    config.experts(prefix, &spec)
}

/// A size that only this family has.
fn number(config: &Config<'_>, name: &str) -> Result<usize, EngineError> {
    let value = config.fields().other.get(name).and_then(Json::as_u64);
    config.size(value.and_then(|value| usize::try_from(value).ok()), name)
}

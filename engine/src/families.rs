//! Model families: from a config.json and the names of its tensors to a [`TargetSpec`].
//!
//! Each family has its own file; the registry is keyed by architecture. A setting that would change
//! the meaning of the tensors but is not read by a family is refused ([`settings`]), and so is a
//! tensor that nothing would read ([`unread`]): a model that is read only in part runs but
//! generates nonsense.

mod config;
mod corrected;
mod deepseek_v3;
mod dense;
mod glm4_moe;
mod gpt_oss;
mod mimo;
mod neutral;
mod quantised;
mod qwen3_5;
mod qwen3_moe;
mod rope;
mod settings;
mod unread;

use crate::{
    checkpoint::{Folder, Weights},
    error::EngineError,
    spec::{Join, LayerSpec, RecurrentTensorLayout, TargetSpec},
};

pub(crate) use self::{
    config::{Config, FamilyAttention},
    neutral::is_off,
    quantised::check_draft as check_quantisation_of_draft,
    qwen3_moe::experts as qwen3_moe_experts,
    settings::{check as check_settings, check_block_head, check_fields, check_head},
};

/// A model family, and how to read its checkpoints.
#[derive(Debug)]
pub struct Family {
    /// The names in `architectures` of config.json.
    pub architectures: &'static [&'static str],
    /// Settings that it reads, of those that no other family implements ([`settings`]).
    pub reads: &'static [&'static str],
    /// Reads a target.
    target: fn(&Config<'_>) -> Result<TargetSpec, EngineError>,
    /// Its MTP layer, if the family has one.
    pub mtp: Option<MtpFamily>,
    /// How EAGLE-3 heads for this family number the target's layers.
    pub captured_ids: CapturedIds,
}

/// The layout of a family's MTP layer.
#[derive(Debug)]
pub struct MtpFamily {
    /// The names of its tensors, if a checkpoint stores it as the decoder layer with this number.
    pub layout: fn(usize) -> RecurrentTensorLayout,
    /// Reads its decoder layer under a prefix.
    pub layer: fn(&Config<'_>, &str) -> Result<LayerSpec, EngineError>,
    /// How embedding and hidden state are joined.
    pub join: Join,
}

/// The meaning of the ids in `eagle_config.eagle_aux_hidden_state_layer_ids`, which depends on the
/// target's family (SGLang's `set_eagle3_layers_to_capture`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturedIds {
    /// The layer whose output is captured: the stream before the next layer.
    Outputs,
    /// Outputs if the first id is 1, as the heads of this family are trained; otherwise the stream
    /// before the layers themselves (Kimi-K2's heads).
    DeepSeek,
    /// Outputs, unless the largest id is the number of layers: then the ids are the layers before
    /// which the stream is captured, and that one is the output of the last layer.
    GptOss,
}

impl CapturedIds {
    /// The layers before which the stream is captured, in a target of this many layers.
    pub fn entries(self, ids: &[usize], layers: usize) -> Vec<usize> {
        match self {
            // Training code counts captured layers in two ways, which the published heads show only
            // by their values.
            Self::DeepSeek if ids.first() != Some(&1) => ids.to_vec(),
            Self::GptOss if ids.iter().max() == Some(&layers) => ids.to_vec(),
            Self::Outputs | Self::DeepSeek | Self::GptOss => ids.iter().map(|id| id.saturating_add(1)).collect(),
        }
    }
}

static FAMILIES: [&Family; 10] = [
    &dense::LLAMA,
    &dense::QWEN2,
    &dense::QWEN3,
    &qwen3_moe::FAMILY,
    &qwen3_5::DENSE,
    &qwen3_5::EXPERTS,
    &glm4_moe::FAMILY,
    &mimo::FAMILY,
    &deepseek_v3::FAMILY,
    &gpt_oss::FAMILY,
];

/// The family of a checkpoint.
///
/// # Errors
/// When its architecture is not supported.
pub fn family(folder: &Folder) -> Result<&'static Family, EngineError> {
    let Some(architecture) = folder.config.architecture() else {
        let reason = "architectures is missing or empty, expected the name of a class, such as [\"LlamaForCausalLM\"]";
        return Err(config::malformed_config(folder, reason.into()));
    };
    let supported = || FAMILIES.iter().flat_map(|family| family.architectures);
    let found = FAMILIES.iter().find(|family| family.architectures.contains(&architecture));
    found.copied().ok_or_else(|| EngineError::Unsupported {
        path: folder.path().to_owned(),
        feature: format!("the architecture {architecture}"),
        hint: format!("supported are {}", supported().copied().collect::<Vec<_>>().join(", ")),
    })
}

/// Reads and checks a target's spec.
///
/// # Errors
/// When the architecture or a setting is not supported, or the tensors contradict the
/// configuration.
pub fn read_target(folder: &Folder, weights: &Weights) -> Result<TargetSpec, EngineError> {
    settings::check_fields(folder)?;
    let family = family(folder)?;
    let config = Config::new(folder, weights);
    quantised::check(&config)?;
    settings::check(&config, family.reads)?;
    let spec = (family.target)(&config)?;
    settings::warn_unknown(&config, family.reads);
    unread::check(&config, family, &spec)?;
    quantised::warn(&config);
    if config.has_another_head() {
        tracing::warn!(
            "{}: tie_word_embeddings is true, so the embedding is the head, and lm_head.weight, which differs from it, is \
             not read: set it to false if the head should be read",
            folder.path().display()
        );
    }
    Ok(spec)
}

/// An MTP layer in a draft's folder.
#[derive(Debug)]
pub(crate) struct FoundMtp {
    /// How its family stores it.
    pub family: &'static MtpFamily,
    /// Settings that its family reads ([`Family::reads`]).
    pub reads: &'static [&'static str],
    /// Names of its tensors.
    pub layout: RecurrentTensorLayout,
}

/// The MTP layer in a draft's folder, if it is stored as the decoder layer with this number. Among
/// families with the same layout, the folder's architecture decides.
pub(crate) fn find_mtp(config: &Config<'_>, layer: usize) -> Option<FoundMtp> {
    let architecture = config.fields().architecture().unwrap_or_default();
    let of = |family: &&'static Family| {
        let mtp = family.mtp.as_ref()?;
        let layout = Some((mtp.layout)(layer)).filter(|layout| config.tensors.has(&layout.projection()))?;
        Some(FoundMtp { family: mtp, reads: family.reads, layout })
    };
    // `Glm4MoeForCausalLMNextN` is SGLang's name for the draft of `Glm4MoeForCausalLM`.
    let named = |family: &&&'static Family| family.architectures.iter().any(|name| architecture.starts_with(name));
    // Any family may follow: draft folders often name an architecture of their own.
    FAMILIES.iter().filter(named).chain(&FAMILIES).find_map(of)
}

#[cfg(test)]
mod tests;

//! Detects which draft a folder contains.

use super::DraftTarget;
use crate::{
    checkpoint::Folder,
    error::EngineError,
    families::{Config, MtpFamily, mtp_family},
    spec::DraftTensorLayout,
};

/// A kind of draft, with where its layer is.
#[derive(Debug)]
pub enum Kind {
    /// EAGLE-1/2: one feature, the target's own head.
    Eagle {
        /// What the names of its layer begin with.
        layer: &'static str,
    },
    /// EAGLE-3: features of several layers, its own head over a hot vocabulary.
    Eagle3 {
        /// What the names of its layer begin with.
        layer: &'static str,
    },
    /// A multi-token-prediction layer.
    Mtp {
        /// Of this family.
        family: &'static MtpFamily,
        /// And here.
        layout: DraftTensorLayout,
    },
}

/// Decides by the tensors.
pub fn kind(config: &Config<'_>, target: DraftTarget<'_>) -> Result<Kind, EngineError> {
    if let Some((family, layout)) = mtp_family(config, target.spec.layers.len()) {
        return Ok(Kind::Mtp { family, layout });
    }
    if config.tensors.has("mtp.fc.weight") {
        return Err(config.unsupported("an MTP layer in Qwen's layout (mtp.fc)", SUPPORTED));
    }
    let layer = ["midlayer", "layers.0"]
        .into_iter()
        .find(|layer| config.tensors.has(&format!("{layer}.self_attn.q_proj.weight")));
    let Some(layer) = layer else {
        return Err(config.unsupported("a draft without midlayer.* or layers.0.* tensors", SUPPORTED));
    };
    let size = |name: &str, axis: usize| config.tensors.shape(&format!("{layer}.{name}"))?.get(axis).copied();
    // EAGLE-3 attends from embedding and feature side by side to one width of them.
    let hidden = size("self_attn.o_proj.weight", 0);
    let twice = hidden.and_then(|hidden| hidden.checked_mul(2));
    if size("hidden_norm.weight", 0).is_some() || (twice.is_some() && size("self_attn.q_proj.weight", 1) == twice) {
        return Ok(Kind::Eagle3 { layer });
    }
    if config.tensors.has("fc.weight") {
        return Ok(Kind::Eagle { layer });
    }
    Err(config.unsupported(
        "a draft without fc.weight",
        "this looks like a whole model: supported: EAGLE-1/2 and EAGLE-3 heads and MTP layers",
    ))
}

const SUPPORTED: &str = "supported: EAGLE-1/2 and EAGLE-3 heads and the MTP layers of DeepSeek-V3, GLM-4.5 and \
                         MiMo in their published layouts";

/// Checks the requested algorithm against the checkpoint.
pub fn check_algorithm(folder: &Folder, kind: &Kind, algorithm: &str) -> Result<(), EngineError> {
    let (found, expected) = match kind {
        Kind::Eagle { .. } => ("an EAGLE-1/2 head", "EAGLE"),
        Kind::Eagle3 { .. } => ("an EAGLE-3 head", "EAGLE3"),
        Kind::Mtp { .. } => ("an MTP layer", "NEXTN"),
    };
    // NEXTN is another name of EAGLE in SGLang.
    match (algorithm.to_ascii_uppercase().as_str(), expected) {
        ("EAGLE3", "EAGLE3") | ("EAGLE" | "NEXTN", "EAGLE" | "NEXTN") => Ok(()),
        ("EAGLE" | "NEXTN" | "EAGLE3", _) => Err(EngineError::Configuration(format!(
            "--speculative-algorithm {algorithm}, but {} holds {found} (judging by its tensors); use \
             --speculative-algorithm {expected}",
            folder.path().display()
        ))),
        _ => Err(EngineError::Configuration(format!(
            "--speculative-algorithm {algorithm} is not implemented by this engine; it drafts with EAGLE, EAGLE3 and \
             NEXTN"
        ))),
    }
}

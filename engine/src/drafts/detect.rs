//! Detects the kind of draft that a folder contains.

use schemas::paths::tidy;

use super::{DraftTarget, block};
use crate::{
    checkpoint::Folder,
    error::EngineError,
    families::{Config, MtpFamily, mtp_family},
    spec::RecurrentTensorLayout,
};

/// A kind of draft, and the location of its layer.
#[derive(Debug)]
pub enum Kind {
    /// EAGLE-1/2: one feature, and the target's head.
    Eagle {
        /// Common prefix of the names of its layer.
        layer: &'static str,
    },
    /// EAGLE-3: features of several layers, its own head over a hot vocabulary.
    Eagle3 {
        /// Common prefix of the names of its layer.
        layer: &'static str,
    },
    /// A head that drafts a block in one pass.
    Block {
        /// Whether a token corrects the next position (DSPARK).
        dspark: bool,
    },
    /// A multi-token-prediction layer.
    Mtp {
        /// Its family.
        family: &'static MtpFamily,
        /// Names of its tensors.
        layout: RecurrentTensorLayout,
    },
}

/// Detects the kind of a draft from its tensors.
pub fn kind(config: &Config<'_>, target: DraftTarget<'_>) -> Result<Kind, EngineError> {
    if let Some((family, layout)) = mtp_family(config, target.spec.layers.len()) {
        return Ok(Kind::Mtp { family, layout });
    }
    if config.tensors.has("mtp.fc.weight") {
        return Err(config.unsupported("an MTP layer in Qwen's layout (mtp.fc)", SUPPORTED));
    }
    block::check_kind(config)?;
    if block::is_block(config) {
        return Ok(Kind::Block { dspark: block::is_dspark(config) });
    }
    let layer = ["midlayer", "layers.0"]
        .into_iter()
        .find(|layer| config.tensors.has(&format!("{layer}.self_attn.q_proj.weight")));
    let Some(layer) = layer else {
        return Err(config.unsupported("a draft without midlayer.* or layers.0.* tensors", SUPPORTED));
    };
    let size = |name: &str, axis: usize| config.tensors.shape(&format!("{layer}.{name}"))?.get(axis).copied();
    // EAGLE-3's attention reads the concatenated embedding and feature, and writes the width of one of them.
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
        "this looks like a whole model: supported: EAGLE-1/2, EAGLE-3, DFLASH and DSPARK heads and MTP layers",
    ))
}

const SUPPORTED: &str = "supported: EAGLE-1/2, EAGLE-3, DFLASH and DSPARK heads and the MTP layers of DeepSeek-V3, \
                         GLM-4.5 and MiMo in their published layouts";

/// Checks the requested algorithm against the checkpoint.
pub fn check_algorithm(folder: &Folder, kind: &Kind, algorithm: &str) -> Result<(), EngineError> {
    let (found, expected) = match kind {
        Kind::Eagle { .. } => ("an EAGLE-1/2 head", "EAGLE"),
        Kind::Eagle3 { .. } => ("an EAGLE-3 head", "EAGLE3"),
        Kind::Block { dspark: false } => ("a DFLASH head", "DFLASH"),
        Kind::Block { dspark: true } => ("a DSPARK head", "DSPARK"),
        Kind::Mtp { .. } => ("an MTP layer", "NEXTN"),
    };
    // NEXTN is an alias of EAGLE in SGLang.
    match (algorithm.to_ascii_uppercase().as_str(), expected) {
        ("EAGLE" | "NEXTN", "EAGLE" | "NEXTN") => Ok(()),
        (asked, found) if asked == found => Ok(()),
        ("EAGLE" | "NEXTN" | "EAGLE3" | "DFLASH" | "DSPARK", _) => Err(EngineError::Configuration(format!(
            "--speculative-algorithm {algorithm}, but {} holds {found} (judging by its tensors); use \
             --speculative-algorithm {expected}",
            tidy(folder.path()).display()
        ))),
        _ => Err(EngineError::Configuration(format!(
            "--speculative-algorithm {algorithm} is not implemented by this engine; it drafts with EAGLE, EAGLE3, \
             NEXTN, DFLASH and DSPARK"
        ))),
    }
}

//! The kind of draft in a folder, as far as this engine runs it.

use schemas::{
    model::{DraftHead, DraftKind, MtpLayout},
    paths::tidy,
};

use super::DraftTarget;
use crate::{
    checkpoint::Folder,
    error::EngineError,
    families::{Config, FoundMtp, find_mtp},
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
        /// Whether it is a DSPARK head.
        dspark: bool,
    },
    /// A whole model.
    Model,
    /// A multi-token-prediction layer.
    Mtp(FoundMtp),
}

/// The kind of a draft that was recognised by its tensors. Kinds that this engine does not run are
/// errors with their names.
pub fn kind(config: &Config<'_>, target: DraftTarget<'_>, head: Option<&DraftHead>) -> Result<Kind, EngineError> {
    let without_layer = || config.unsupported("a draft without midlayer.* or layers.0.* tensors", SUPPORTED);
    match head {
        Some(DraftHead::Eagle { layer }) => Ok(Kind::Eagle { layer: layer.ok_or_else(without_layer)? }),
        Some(DraftHead::Eagle3 { layer }) => Ok(Kind::Eagle3 { layer: layer.ok_or_else(without_layer)? }),
        Some(DraftHead::Block { dspark }) => Ok(Kind::Block { dspark: *dspark }),
        // Their names are those of MiMo, but not what they mean.
        Some(DraftHead::Mtp(_)) if config.fields().speculators_model_type.as_deref() == Some("mtp") => Err(config
            .unsupported(
                "an MTP layer in the layout of the speculators library (speculators_model_type = mtp)",
                SUPPORTED,
            )),
        Some(DraftHead::Mtp(layout)) => {
            let layer = if let MtpLayout::Layer(layer) = layout { *layer } else { target.spec.layers.len() };
            find_mtp(config, layer).map(Kind::Mtp).ok_or_else(|| match layout {
                MtpLayout::Qwen => config.unsupported("an MTP layer in Qwen's layout (mtp.fc)", SUPPORTED),
                _ => without_layer(),
            })
        }
        Some(DraftHead::Variant { name, sign, .. }) => Err(config.unsupported(
            format!("a {name} head (judging by {sign})"),
            "supported block heads: DFLASH and DSPARK; read as one of these it would draft worse",
        )),
        Some(DraftHead::Model) => Ok(Kind::Model),
        None => Err(without_layer()),
    }
}

const SUPPORTED: &str = "supported: EAGLE-1/2, EAGLE-3, DFLASH and DSPARK heads, the MTP layers of DeepSeek-V3, GLM-4.5, \
                         MiMo and Qwen3.5 in their published layouts, and whole models (STANDALONE)";

/// If the algorithm is STANDALONE, a checkpoint of a whole model is that model, even if it also
/// contains an MTP layer or has other attention than heads have.
pub fn as_requested(config: &Config<'_>, head: Option<DraftHead>, algorithm: Option<&str>) -> Option<DraftHead> {
    let standalone = algorithm.is_some_and(|name| name.eq_ignore_ascii_case("STANDALONE"));
    const WHOLE: [&str; 3] =
        ["model.embed_tokens.weight", "model.layers.0.post_attention_layernorm.weight", "model.norm.weight"];
    match head {
        None | Some(DraftHead::Mtp(_)) if standalone && WHOLE.iter().all(|name| config.tensors.has(name)) => {
            Some(DraftHead::Model)
        }
        head => head,
    }
}

/// Checks the requested algorithm against the checkpoint.
pub fn check_algorithm(folder: &Folder, head: &DraftHead, algorithm: &str) -> Result<(), EngineError> {
    let Some((found, expected)) = head.algorithm() else { return Ok(()) };
    // NEXTN is an alias of EAGLE in SGLang.
    match (algorithm.to_ascii_uppercase().as_str(), expected) {
        ("EAGLE" | "NEXTN", "EAGLE" | "NEXTN") => Ok(()),
        (requested, found) if requested == found => Ok(()),
        ("EAGLE" | "NEXTN" | "EAGLE3" | "DFLASH" | "DSPARK" | "STANDALONE", _) => {
            // Which rows of a block propose is no matter of tensors.
            let sign = if head.kind() == DraftKind::Block { "tensors and its config.json" } else { "tensors" };
            Err(EngineError::Configuration(format!(
                "--speculative-algorithm {algorithm}, but {} holds {found} (judging by its {sign}); use \
             --speculative-algorithm {expected}",
                tidy(folder.path()).display()
            )))
        }
        _ => Err(EngineError::Configuration(format!(
            "--speculative-algorithm {algorithm} is not implemented by this engine; it drafts with EAGLE, EAGLE3, \
             NEXTN, DFLASH, DSPARK and STANDALONE"
        ))),
    }
}

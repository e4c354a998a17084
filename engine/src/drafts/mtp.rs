//! MTP layers: one decoder layer after a projection of an embedding and the target's final state,
//! used for every draft step.
//!
//! Embedding and head are the target's, as in SGLang, even if the checkpoint has copies. The input
//! of the next step is the state after the layer's final norm: SGLang's choice for all of these
//! families, and vLLM's for all but GLM.

use std::collections::BTreeSet;

use super::DraftTarget;
use crate::{
    error::EngineError,
    families::{self, Config, FoundMtp, MtpFamily},
    spec::{DraftSource, EmbeddingSource, Features, Feedback, RecurrentSpec, RecurrentTensorLayout, VocabularySource},
};

/// The MTP layer of the target's own checkpoint.
pub fn from_target(config: &Config<'_>, target: DraftTarget<'_>) -> Result<RecurrentSpec, EngineError> {
    let layers = target.spec.layers.len();
    let Some(mtp) = &families::family(target.folder)?.mtp else {
        return Err(EngineError::Configuration(format!(
            "speculation needs a draft: {} has no MTP layer; give --speculative-draft-model-path, or remove the tree \
             shape",
            target.folder.path().display()
        )));
    };
    let layout = (mtp.layout)(layers);
    if !config.tensors.has(&layout.projection()) {
        let announced = config.fields().mtp_layers().unwrap_or_default();
        return Err(EngineError::Configuration(format!(
            "speculation needs a draft, and the tensors of an MTP layer are missing from {} (its config.json declares {announced}; exporters and quantisers often drop them): use a checkpoint that has them, or give \
             --speculative-draft-model-path",
            target.folder.path().display()
        )));
    }
    read(config, mtp, layout, DraftSource::Target, target)
}

/// The MTP layer in a separate folder, or in a copy of the whole target.
pub fn in_folder(config: &Config<'_>, found: FoundMtp, target: DraftTarget<'_>) -> Result<RecurrentSpec, EngineError> {
    // The folder may have a class that no target has, so the class says nothing about its settings.
    families::check_settings(config, found.reads)?;
    let hidden = config.hidden()?;
    if hidden != target.spec.hidden {
        let expected = target.spec.hidden;
        return Err(
            config.malformed(format!("hidden_size is {hidden}, but the target's is {expected}: they must be equal"))
        );
    }
    read(config, found.family, found.layout, DraftSource::Folder, target)
}

fn read(
    config: &Config<'_>,
    family: &MtpFamily,
    layout: RecurrentTensorLayout,
    source: DraftSource,
    target: DraftTarget<'_>,
) -> Result<RecurrentSpec, EngineError> {
    check_one_layer(config, &layout)?;
    Ok(RecurrentSpec {
        source,
        features: Features::Final,
        join: family.join,
        layer: (family.layer)(config, &layout.layer_prefix())?,
        tensors: layout,
        feedback: Feedback::Normed,
        embedding: EmbeddingSource::Target,
        head: VocabularySource::Target,
        vocabulary: target.spec.vocabulary,
        head_rows: target.spec.vocabulary,
        tokens: None,
    })
}

/// Refuses several MTP layers, unless config.json says that there is one: then the first is used,
/// as in SGLang and vLLM.
fn check_one_layer(config: &Config<'_>, layout: &RecurrentTensorLayout) -> Result<(), EngineError> {
    const ONE: &str = "only one MTP layer that is used for every step is supported";
    let stored = stored_layers(config, layout);
    match config.fields().stated_mtp_layers() {
        Some((key, layers)) if layers > 1 => {
            Err(config.unsupported(format!("{layers} MTP layers ({key} in config.json), one per draft step"), ONE))
        }
        Some((key, layers)) if stored > 1 => {
            tracing::warn!(
                "{}: the checkpoint has {stored} MTP layers, but {key} is {layers} in config.json: only the first is used",
                config.folder().path().display()
            );
            Ok(())
        }
        None if stored > 1 => {
            let key = match layout {
                RecurrentTensorLayout::QwenMtp => "mtp_num_hidden_layers",
                _ => "num_nextn_predict_layers",
            };
            Err(config.unsupported(
                format!("{stored} MTP layers (judging by the tensors; config.json does not say how many are used)"),
                format!("{ONE}: set {key} to 1 if the first is"),
            ))
        }
        _ => Ok(()),
    }
}

/// Number of MTP layers in a checkpoint, judging by the names of its tensors.
fn stored_layers(config: &Config<'_>, layout: &RecurrentTensorLayout) -> usize {
    // Decoder layers of a target are MTP layers if they have a projection.
    let (prefix, of_each) = match layout {
        RecurrentTensorLayout::QwenMtp => ("mtp.layers.", None),
        RecurrentTensorLayout::Mimo { .. } => ("mtp_layers.", None),
        RecurrentTensorLayout::NextN { .. } => ("layers.", Some("eh_proj.weight")),
        RecurrentTensorLayout::Eagle { .. } | RecurrentTensorLayout::Eagle3 { .. } => return 1,
    };
    let number = |name: &'_ str| {
        let (number, rest) = name.strip_prefix(prefix)?.split_once('.')?;
        number.parse::<usize>().ok().filter(|_| of_each.is_none_or(|tensor| tensor == rest))
    };
    config.tensors.all().filter_map(number).collect::<BTreeSet<_>>().len()
}

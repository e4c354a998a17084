//! MTP layers: one decoder layer after a projection of an embedding and the target's final state,
//! used for every draft step.
//!
//! Embedding and head are the target's, as in SGLang, even if the checkpoint has copies. The input
//! of the next step is the state after the layer's final norm: SGLang's choice for all of these
//! families, and vLLM's for all but GLM.

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
    if let Some((key, layers)) = config.fields().stated_mtp_layers().filter(|(_, layers)| *layers > 1) {
        return Err(config.unsupported(
            format!("{layers} MTP layers ({key} in config.json), one per draft step"),
            "only one MTP layer that is used for every step is supported",
        ));
    }
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

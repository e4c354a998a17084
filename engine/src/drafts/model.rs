//! Reads a whole model that drafts (STANDALONE).

use super::DraftTarget;
use crate::{
    checkpoint::{Folder, Weights},
    error::EngineError,
    families::read_target,
    spec::{StateLayout, TargetSpec},
    text,
};

/// Reads the model in a folder, which has to have its target's tokens: a draft is verified as the
/// token of the same number.
///
/// # Errors
/// When it is not a supported model, keeps states beside its cache, or has other tokens than its
/// target.
pub fn read(folder: &Folder, weights: &Weights, target: DraftTarget<'_>) -> Result<TargetSpec, EngineError> {
    let spec = read_target(folder, weights)?;
    let refused = |reason: String| {
        Err(EngineError::Configuration(format!("{} cannot draft (STANDALONE): {reason}", folder.path().display())))
    };
    if spec.vocabulary != target.spec.vocabulary {
        return refused(format!(
            "it has {} tokens and its target {}, and a draft must have its target's tokens (SGLang and vLLM refuse it too): \
             use a model of the same family and generation",
            spec.vocabulary, target.spec.vocabulary
        ));
    }
    if let Some(difference) = text::first_difference(target.folder, folder)? {
        return refused(format!(
            "its tokenizer numbers tokens differently than its target's: {difference} (SGLang refuses it too)"
        ));
    }
    if spec.state() != StateLayout::default() {
        return refused("models with linear attention (Qwen3.5, 3.6 and 3.8) run as targets only so far".into());
    }
    let [own, of_target] = [folder, target.folder].map(|folder| folder.config.derived_context_length());
    if own < of_target {
        tracing::warn!(
            "the draft {} was trained for {own} positions and its target for {of_target}: longer texts accept fewer drafts",
            folder.path().display()
        );
    }
    Ok(spec)
}

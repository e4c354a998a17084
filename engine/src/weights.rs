//! Replaces the loaded weights with those of another folder.

use std::path::{Path, PathBuf};

use crate::{
    backend::Exchange,
    checkpoint::Folder,
    description::describe,
    drafts::{DraftTarget, read_draft},
    error::EngineError,
    options::EngineOptions,
};

/// Folders of the new weights. At least one is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightFolders {
    /// A folder of the target or, if it holds only a draft, of the draft.
    pub model: Option<PathBuf>,
    /// A folder of the draft.
    pub draft: Option<PathBuf>,
}

impl WeightFolders {
    /// The options with these folders, and which weights change.
    ///
    /// # Errors
    /// When no folder is given, a folder holds neither a target nor a draft for it, or there is no
    /// draft to replace.
    pub(crate) fn resolve(&self, loaded: &EngineOptions) -> Result<(EngineOptions, Exchange), EngineError> {
        if self.draft.is_some() && loaded.draft_model_path.is_none() {
            return Err(EngineError::Configuration(
                "the draft has no separate folder: only the target's weights can be replaced".into(),
            ));
        }
        let draft = self.draft.clone().or_else(|| loaded.draft_model_path.clone());
        let with = |model: &Path, draft: Option<PathBuf>| EngineOptions {
            model_path: model.to_owned(),
            draft_model_path: draft,
            ..loaded.clone()
        };
        let Some(model) = &self.model else {
            return match &self.draft {
                Some(_) => Ok((with(&loaded.model_path, draft), Exchange::Draft)),
                None => Err(EngineError::Configuration("no folder of weights is given".into())),
            };
        };
        if self.draft.is_none() && is_draft(model, loaded) {
            return Ok((with(&loaded.model_path, Some(model.clone())), Exchange::Draft));
        }
        // A draft that was loaded from the target's own folder is replaced together with it.
        let own = self.draft.is_none() && loaded.draft_model_path.as_ref() == Some(&loaded.model_path);
        Ok((with(model, if own { Some(model.clone()) } else { draft }), Exchange::All))
    }
}

/// Whether a folder holds a draft for the loaded target, but no target.
fn is_draft(folder: &Path, loaded: &EngineOptions) -> bool {
    if loaded.draft_model_path.is_none() {
        return false;
    }
    let alone = EngineOptions {
        model_path: folder.to_owned(),
        draft_model_path: None,
        algorithm: None,
        policy: crate::options::ShapePolicy::fixed(schemas::tree::TreeShape::OFF),
        ..loaded.clone()
    };
    if describe(&alone).is_ok() {
        return false;
    }
    let target = EngineOptions { model_path: loaded.model_path.clone(), ..alone };
    let read = || {
        let target = describe(&target)?;
        let folder = Folder::open(folder)?;
        let weights = folder.weights()?;
        let read_for = DraftTarget { folder: &target.folder, spec: &target.spec };
        read_draft(&folder, &weights, read_for, loaded).map(|_| ())
    };
    read().is_ok()
}

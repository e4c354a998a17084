//! The loaded weights, and requests for others.

use std::path::PathBuf;

use engine::{Engine, WeightFolders};

/// What weights are called that no client has named; SGLang's word.
const FIRST_VERSION: &str = "default";

/// Other weights to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Where they are.
    pub folders: WeightFolders,
    /// Whether requests end where they are, instead of being waited for.
    pub abort_all: bool,
    /// Whether the prefix cache is forgotten.
    pub flush: bool,
    /// What to call them.
    pub version: Option<String>,
}

/// The weights that are loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedWeights {
    /// The target's folder.
    pub model_path: PathBuf,
    /// The draft's, if it has one of its own.
    pub draft_model_path: Option<PathBuf>,
    /// Hashes of target and draft.
    pub fingerprint: (String, Option<String>),
    /// What clients call them.
    pub version: String,
}

impl LoadedWeights {
    /// Those of an engine that has just been loaded.
    pub fn of(engine: &Engine) -> Self {
        let (options, identity) = (engine.options(), engine.identity());
        Self {
            model_path: options.model_path.clone(),
            draft_model_path: options.draft_model_path.clone(),
            fingerprint: (identity.target.clone(), identity.draft.clone()),
            version: FIRST_VERSION.into(),
        }
    }

    /// Those of an engine that has taken others. They are called as before unless they have a name.
    pub fn after(before: &Self, engine: &Engine, version: Option<String>) -> Self {
        Self { version: version.unwrap_or_else(|| before.version.clone()), ..Self::of(engine) }
    }
}

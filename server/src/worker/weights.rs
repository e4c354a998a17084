//! The loaded weights, and requests to replace them.

use std::path::PathBuf;

use engine::{Engine, WeightFolders};

/// Version of weights that no client has named; SGLang's default.
const FIRST_VERSION: &str = "default";

/// A request to load other weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Their folders.
    pub folders: WeightFolders,
    /// Whether running requests are aborted instead of waited for.
    pub abort_all: bool,
    /// Whether to flush the prefix cache.
    pub flush: bool,
    /// Their version.
    pub version: Option<String>,
}

/// The loaded weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedWeights {
    /// The target's folder.
    pub model_path: PathBuf,
    /// The draft's folder, if it has a separate one.
    pub draft_model_path: Option<PathBuf>,
    /// Hashes of target and draft.
    pub fingerprint: (String, Option<String>),
    /// Version set by clients.
    pub version: String,
}

impl LoadedWeights {
    /// The weights of an engine that has just been loaded.
    pub fn from_engine(engine: &Engine) -> Self {
        let (options, identity) = (engine.options(), engine.identity());
        Self {
            model_path: options.model_path.clone(),
            draft_model_path: options.draft_model_path.clone(),
            fingerprint: (identity.target.clone(), identity.draft.clone()),
            version: FIRST_VERSION.into(),
        }
    }

    /// The weights after an update. They keep the previous version unless a new one is given.
    pub fn after(before: &Self, engine: &Engine, version: Option<String>) -> Self {
        Self { version: version.unwrap_or_else(|| before.version.clone()), ..Self::from_engine(engine) }
    }
}

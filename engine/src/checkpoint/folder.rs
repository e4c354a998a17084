//! A checkpoint's folder: its configuration, and access to its tensors.

use std::path::{Path, PathBuf};

use schemas::model::{GenerationConfig, JsonFileError, ModelConfig, UnreadField, json_object};
use serde_json::{Map, Value};

use super::{hash, read::read_text, weights::Weights};
use crate::error::EngineError;

/// A checkpoint that has a readable config.json.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The config.json.
    pub config: ModelConfig,
}

impl Folder {
    /// Opens a folder and reads its config.json.
    ///
    /// # Errors
    /// When the folder does not exist, or has no valid config.json.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let file = path.join("config.json");
        // A missing folder is reported by reading the file below.
        if path.is_dir() && !file.exists() {
            return Err(EngineError::Malformed {
                path: path.to_owned(),
                reason: "no config.json in this folder: it is not a Hugging Face checkpoint".into(),
            });
        }
        let text = read_text(&file)?;
        let config = ModelConfig::parse(&text)
            .map_err(|error| EngineError::Malformed { path: file, reason: error.to_string() })?;
        Ok(Self { path: path.to_owned(), config })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Maps the tensors into memory.
    ///
    /// # Errors
    /// When there are no weights, or a file's header is malformed.
    pub fn weights(&self) -> Result<Weights, EngineError> {
        Weights::open(&self.path)
    }

    /// The generation_config.json, or the default if the folder has none.
    ///
    /// # Errors
    /// When the file exists but is not a JSON object.
    pub fn generation_config(&self) -> Result<GenerationConfig, EngineError> {
        const NAME: &str = "generation_config.json";
        let Some(text) = self.optional(NAME)? else { return Ok(GenerationConfig::default()) };
        let path = self.path.join(NAME);
        match GenerationConfig::parse(&text) {
            Ok(config) => {
                warn_skipped(&path, config.unread.iter());
                Ok(config)
            }
            Err(error) => Err(EngineError::Malformed { path, reason: error.to_string() }),
        }
    }

    /// A JSON object in another file of the folder; `None` if the file does not exist.
    ///
    /// # Errors
    /// When the file exists but contains something else.
    pub fn optional_object(&self, name: &str) -> Result<Option<Map<String, Value>>, EngineError> {
        let Some(text) = self.optional(name)? else { return Ok(None) };
        let malformed =
            |error: JsonFileError| EngineError::Malformed { path: self.path.join(name), reason: error.to_string() };
        json_object(&text).map(Some).map_err(malformed)
    }

    /// The contents of another text file of the folder; `None` if it does not exist.
    ///
    /// # Errors
    /// When the file exists but cannot be read.
    pub fn optional(&self, name: &str) -> Result<Option<String>, EngineError> {
        let path = self.path.join(name);
        // A link to nothing is an error, not a missing file.
        if path.exists() || path.is_symlink() { read_text(&path).map(Some) } else { Ok(None) }
    }

    /// A hash of configuration and tensors: equal for copies of a checkpoint, different after any
    /// retraining.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn hash(&self) -> Result<String, EngineError> {
        hash::hash_folder(&self.path)
    }
}

/// Warns about fields with values that are skipped.
pub(crate) fn warn_skipped<'a>(file: &Path, fields: impl Iterator<Item = &'a UnreadField>) {
    let fields: Vec<String> = fields.map(ToString::to_string).collect();
    if !fields.is_empty() {
        tracing::warn!("{}: skipped: {}", file.display(), fields.join("; "));
    }
}

//! The engine, loaded with the head that is currently needed.

use std::path::{Path, PathBuf};

use engine::{Engine, EngineOptions, ModelFiles};

use crate::error::TrainingError;

/// An engine whose draft is replaced.
pub struct Engines {
    /// `None` after loading a draft failed.
    engine: Option<Engine>,
    loaded: PathBuf,
    options: EngineOptions,
}

impl Engines {
    /// Loads the head of a folder into an engine.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub fn new(engine: Engine, options: EngineOptions, head: &Path) -> Result<Self, TrainingError> {
        let mut engines = Self { engine: Some(engine), loaded: PathBuf::new(), options };
        engines.with(head)?;
        Ok(engines)
    }

    /// The engine with the head of a folder.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub fn with(&mut self, head: &Path) -> Result<&mut Engine, TrainingError> {
        let engine = self.engine.take().ok_or_else(gone)?;
        let engine = if self.loaded == head { engine } else { engine.with_draft(head)? };
        self.loaded = head.to_owned();
        Ok(self.engine.insert(engine))
    }

    /// The engine with its current head, for work that does not depend on it.
    ///
    /// # Errors
    /// When loading a head failed earlier.
    pub fn any(&mut self) -> Result<&mut Engine, TrainingError> {
        self.engine.as_mut().ok_or_else(gone)
    }

    /// The files of the target with the head of a folder.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub fn models(&self, head: &Path) -> Result<ModelFiles, TrainingError> {
        let options = EngineOptions { draft_model_path: Some(head.to_owned()), ..self.options.clone() };
        Ok(ModelFiles::open(&options)?)
    }

    /// The options of the run.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }
}

fn gone() -> TrainingError {
    TrainingError::Configuration("the engine no longer has a draft".into())
}

//! Errors of training.

use std::{io, path::PathBuf};

use engine::EngineError;
use tuner::TunerError;

/// An error of training: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum TrainingError {
    /// The engine failed to load, answer or replay.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// Prompts cannot be read.
    #[error("{0}")]
    Prompts(#[from] TunerError),
    /// Tensors do not fit together, or the device failed.
    #[error("tensor computation failed: {0}")]
    Tensor(#[from] candle_core::Error),
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// `read` or `write`.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file has invalid contents.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// Unsupported training, or settings that do not fit the models.
    #[error("{0}")]
    Configuration(String),
    /// The loss is not finite.
    #[error(
        "the loss is not finite after step {step}: lower training.learning_rate, or raise training.warm_up; the last \
         checkpoint is kept"
    )]
    NotFinite {
        /// Number of completed steps.
        step: usize,
    },
}

impl TrainingError {
    /// A failed read.
    pub(crate) fn read(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what: "read", path, source }
    }

    /// A failed write.
    pub(crate) fn write(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what: "write", path, source }
    }

    /// A file with invalid contents.
    pub(crate) fn malformed(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Malformed { path: path.into(), reason: reason.into() }
    }
}

//! What can go wrong in a sweep.

use std::path::PathBuf;

use engine::EngineError;

/// An error that ends a sweep. Finished trials are in the journal whatever happens.
#[derive(Debug, thiserror::Error)]
pub enum TunerError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A prompt file is not what it should be.
    #[error("{}, line {line}: {reason}", path.display())]
    Prompt {
        /// Which.
        path: PathBuf,
        /// Where, from one.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A file is not what it should be.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The folder cannot take this sweep.
    #[error("{}: {reason}", path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The sweep asks for something that cannot be.
    #[error("{0}")]
    Configuration(String),
    /// The engine failed in a way that ends the sweep.
    // Not transparent: who looks for an engine's error along the sources is to find it.
    #[error("{0}")]
    Engine(#[from] EngineError),
}

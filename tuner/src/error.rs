//! Errors of a sweep, and of the systems that it measures.

pub(crate) mod system;

use std::path::PathBuf;

use engine::EngineError;
use external::ServerError;

pub use schemas::paths::tidy;

use self::system::SystemError;

/// An error that ends a sweep. Finished trials stay in the journal.
#[derive(Debug, thiserror::Error)]
pub enum TunerError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", tidy(path).display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", tidy(path).display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A prompt file is malformed.
    #[error("{}, line {line}: {reason}", tidy(path).display())]
    Prompt {
        /// Path of the file.
        path: PathBuf,
        /// The line, from one.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A file is malformed.
    #[error("{}: {reason}", tidy(path).display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The sweep cannot use the folder's journal.
    #[error("{}: {reason}", tidy(path).display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// A batch that the KV cache cannot hold.
    #[error(
        "batch {batch} needs a KV cache of {needed} tokens, but there is room for {room} only: lower batch.sizes or \
         workload.output_length, or raise engine.mem_fraction_static"
    )]
    BatchTooLarge {
        /// Requests that run together.
        batch: usize,
        /// Tokens of their prompts and outputs.
        needed: usize,
        /// Tokens that the cache holds.
        room: usize,
    },
    /// The sweep requests something impossible.
    #[error("{0}")]
    Configuration(String),
    /// The engine failed in a way that ends the sweep.
    // Not transparent, so that the engine's error can be found in the chain of sources.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// The system that is measured failed in a way that ends the sweep.
    #[error("{0}")]
    System(#[from] SystemError),
}

impl TunerError {
    /// Whether the user requested a stop while the system was starting.
    pub fn is_interruption(&self) -> bool {
        matches!(self, Self::System(SystemError::Server(ServerError::Interrupted)))
    }
}

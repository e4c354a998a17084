//! Errors of a sweep.

use std::path::{Component, Path, PathBuf};

use engine::EngineError;
use external::ServerError;

use crate::system::error::SystemError;

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

/// A path without `folder/..`, as a reader would write it; links are not followed.
pub fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        let goes_up = matches!(tidy.components().next_back(), Some(Component::Normal(_)));
        match component {
            Component::ParentDir if goes_up => {
                tidy.pop();
            }
            Component::CurDir => {}
            other => tidy.push(other),
        }
    }
    if tidy.as_os_str().is_empty() { PathBuf::from(".") } else { tidy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_without_detours() {
        for (path, expected) in [
            ("sweeps/../models/target", "models/target"),
            ("./a/./b", "a/b"),
            ("../../x", "../../x"),
            ("/a/../..", "/.."),
            ("a/..", "."),
        ] {
            assert_eq!(tidy(Path::new(path)), Path::new(expected), "{path}");
        }
    }
}

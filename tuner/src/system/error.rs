//! Errors of a system.

use engine::EngineError;
use external::ServerError;

/// Why a system could not do something.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// Our engine failed.
    // Not transparent: who looks for an engine's error along the sources is to find it.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// A server failed.
    #[error("{0}")]
    Server(#[from] ServerError),
    /// The configuration is not one that the system can run.
    #[error("{0}")]
    Unsupported(String),
}

impl SystemError {
    /// Whether the device or the server is not to be trusted any more.
    pub fn needs_restart(&self) -> bool {
        matches!(self, Self::Engine(EngineError::Device(_)) | Self::Server(_))
    }
}

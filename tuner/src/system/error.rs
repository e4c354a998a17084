//! Errors of a system.

use engine::EngineError;
use external::ServerError;

/// Why a system failed.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// spectune's own engine failed.
    // Not transparent, so that the engine's error can be found in the chain of sources.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// A server failed.
    #[error("{0}")]
    Server(#[from] ServerError),
    /// The system cannot run the configuration.
    #[error("{0}")]
    Unsupported(String),
}

impl SystemError {
    /// Whether the device or the server must be restarted.
    pub fn needs_restart(&self) -> bool {
        matches!(self, Self::Engine(EngineError::Device(_)) | Self::Server(_))
    }
}

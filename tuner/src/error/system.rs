//! Errors of a system.

use engine::EngineError;
use external::{ServerError, failure::ServerFailure};
use schemas::secrets::Secrets;

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
    /// The same without secret values: servers print their arguments, keys included.
    pub fn hiding(self, secrets: &Secrets) -> Self {
        match self {
            Self::Server(ServerError::Failed(failure)) => Self::Server(ServerError::Failed(ServerFailure {
                evidence: secrets.hide(&failure.evidence),
                log_tail: secrets.hide(&failure.log_tail),
                ..failure
            })),
            Self::Unsupported(words) => Self::Unsupported(secrets.hide(&words)),
            other => other,
        }
    }

    /// Whether the device or the server must be restarted.
    pub fn needs_restart(&self) -> bool {
        matches!(self, Self::Engine(EngineError::Device(_)) | Self::Server(_))
    }
}

//! Errors of an engine.

use std::path::PathBuf;

/// An error of the engine: what, where, expected and found.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor is missing.
    #[error("{}: tensor {tensor} is missing (expected shape {expected:?})", path.display())]
    MissingTensor {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Its shape.
        expected: Vec<usize>,
    },
    /// A tensor has the wrong shape.
    #[error("{}: tensor {tensor} has shape {found:?}, expected {expected:?}", path.display())]
    TensorShape {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The shape that the configuration asks for.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// The model asks for something that this engine does not implement.
    #[error("{}: {feature} is not supported; {hint}", path.display())]
    Unsupported {
        /// The checkpoint.
        path: PathBuf,
        /// What it asks for.
        feature: String,
        /// What is supported, or what to do.
        hint: String,
    },
    /// Target and draft do not fit, or an option does not fit the models.
    #[error("{0}")]
    Configuration(String),
    /// Memory does not suffice; nothing was allocated.
    #[error("{what} needs {needed_mib} MiB, but {available_mib} MiB are available; {hint}")]
    OutOfMemory {
        /// For what.
        what: String,
        /// Requested MiB.
        needed_mib: u64,
        /// MiB there.
        available_mib: u64,
        /// The flag to change.
        hint: String,
    },
    /// The target computes no numbers.
    #[error(
        "the target's logits for position {position} are not finite (NaN or infinite): its weights are damaged or \
         overflow their dtype; download the checkpoint again, or try --dtype bfloat16 or float32"
    )]
    NotFinite {
        /// Of the token that they are for.
        position: usize,
    },
    /// A request that can never run.
    #[error("{0}")]
    InvalidRequest(String),
    /// The device failed or does not exist.
    #[error("device: {0}")]
    Device(String),
}

impl From<kernels::device::DeviceError> for EngineError {
    fn from(error: kernels::device::DeviceError) -> Self {
        Self::Device(error.to_string())
    }
}

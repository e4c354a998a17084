//! Errors of an engine.

use std::path::PathBuf;

use schemas::paths::tidy;

/// An error of the engine: what, where, expected and found.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", tidy(path).display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file has invalid contents.
    #[error("{}: {reason}", tidy(path).display())]
    Malformed {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor is missing.
    #[error("{}: tensor {tensor} is missing (config.json implies the shape {expected:?})", tidy(path).display())]
    MissingTensor {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Its expected shape.
        expected: Vec<usize>,
    },
    /// A tensor has the wrong shape.
    #[error("{}: tensor {tensor} has shape {found:?}, expected {expected:?} by config.json", tidy(path).display())]
    TensorShape {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The shape that the configuration implies.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// The model needs a feature that this engine does not implement.
    #[error("{}: {feature} is not supported; {hint}", tidy(path).display())]
    Unsupported {
        /// The checkpoint.
        path: PathBuf,
        /// The feature.
        feature: String,
        /// What is supported instead, or what to do.
        hint: String,
    },
    /// Target and draft do not fit together, or an option does not fit the models.
    #[error("{0}")]
    Configuration(String),
    /// Memory is insufficient; nothing was allocated.
    #[error("{what} needs {needed_mib} MiB, but {available_mib} MiB are available; {hint}")]
    OutOfMemory {
        /// What needs the memory.
        what: String,
        /// Required MiB.
        needed_mib: u64,
        /// Available MiB.
        available_mib: u64,
        /// The flag to change.
        hint: String,
    },
    /// The target's logits are not finite.
    #[error(
        "the target's logits for position {position} are not finite (NaN or infinite): its weights are damaged or \
         overflow their dtype; download the checkpoint again, or try --dtype bfloat16 or float32"
    )]
    NotFinite {
        /// Position of the token that the logits are for.
        position: usize,
    },
    /// A request can never run.
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

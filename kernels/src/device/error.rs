//! Errors of a device.

/// Why a device operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A library or a compiler is not on this machine.
    #[error("{library} was not found; {hint}")]
    Missing {
        /// Name of the library.
        library: String,
        /// What to install or set.
        hint: String,
    },
    /// The device does not exist or is too old.
    #[error("{0}")]
    NoDevice(String),
    /// Not enough memory.
    #[error("out of memory on the device: {needed_mib} MiB are needed, but {free_mib} MiB of {total_mib} MiB are free")]
    OutOfMemory {
        /// Size of this allocation.
        needed_mib: u64,
        /// Free memory before it.
        free_mib: u64,
        /// Total memory of the device.
        total_mib: u64,
    },
    /// A kernel does not compile.
    #[error("{file} does not compile for {target}:\n{log}")]
    Compile {
        /// The source.
        file: String,
        /// Architecture or compiler.
        target: String,
        /// The compiler's output.
        log: String,
    },
    /// Lengths that do not fit: an error of the caller, found before the launch.
    #[error("{0}")]
    Shape(String),
    /// A call failed.
    #[error("{call} failed: {reason}")]
    Failed {
        /// The call.
        call: String,
        /// The driver's message.
        reason: String,
    },
}

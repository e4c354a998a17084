//! Errors of reading a checkpoint.

/// Why a file of a checkpoint could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {place}: {source}")]
    Read {
        /// The file.
        place: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The hub cannot be reached.
    #[error("cannot fetch {url}: {reason}")]
    Unreachable {
        /// The requested file or URL.
        url: String,
        /// The network's error.
        reason: String,
    },
    /// The hub refuses the request.
    #[error("{url} answers with status {status}{hint}")]
    Refused {
        /// The requested file or URL.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What to do about it, if known.
        hint: &'static str,
    },
    /// The file is larger than the limit for its kind.
    #[error("{place} is larger than {limit} bytes, the limit for this kind of file")]
    TooLarge {
        /// The file.
        place: String,
        /// The limit.
        limit: u64,
    },
    /// The file has invalid contents.
    #[error("{place}: {reason}")]
    Malformed {
        /// The file.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
}

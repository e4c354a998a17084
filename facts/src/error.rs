//! Errors while a checkpoint is read.

/// Why a file of a checkpoint could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("cannot read {place}: {source}")]
    Read {
        /// The file.
        place: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The hub cannot be reached.
    #[error("cannot fetch {url}: {reason}")]
    Unreachable {
        /// The requested file or URL.
        url: String,
        /// What the network says.
        reason: String,
    },
    /// The hub refuses.
    #[error("{url} answers with status {status}{hint}")]
    Refused {
        /// The requested file or URL.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What to do about it, where that is known.
        hint: &'static str,
    },
    /// It is longer than such a file can be.
    #[error("{place} is larger than {limit} bytes, the limit for this kind of file")]
    TooLarge {
        /// The file.
        place: String,
        /// The limit.
        limit: u64,
    },
    /// It is not what its name says.
    #[error("{place}: {reason}")]
    Malformed {
        /// The file.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
}

//! Drives inference servers of other engines (SGLang, vLLM, or spectune's own `serve`): starts one as a process, waits until it is
//! ready, sends it a load, reads its counters, and stops it without leaving anything of it.
//!
//! - [`process`] owns a server's process group and its log. [`orphans`] ends what a killed run has left.
//! - [`failure`] says from a log why a server did not start or ended.
//! - [`api`] speaks with a server; what differs by engine is in `api/sglang.rs` and `api/vllm.rs`.
//! - [`load`] keeps requests running and takes the times of their tokens.
//!
//! Nothing here knows tree shapes, journals or strategies: that is `tuner`.
#![forbid(unsafe_code)]

pub mod api;
pub mod failure;
pub mod http;
pub mod load;
pub mod orphans;
pub mod port;
pub mod process;
pub mod ready;

use std::{io, path::PathBuf};

/// Why a server could not be driven.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The program could not be started at all.
    #[error("cannot start `{program}`: {source}; is it installed, and is `system.command` right?")]
    Spawn {
        /// The program that was to run.
        program: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// The server ended, or did not become ready.
    #[error("{0}")]
    Failed(failure::Failure),
    /// A request to the server failed.
    #[error("{url}: {reason}")]
    Request {
        /// The request.
        url: String,
        /// Why there is no usable response.
        reason: String,
    },
    /// Processes of the server did not end.
    #[error(
        "processes {pids:?} of the server did not end after SIGKILL; end them by hand before the next run, since they may hold GPU \
         memory"
    )]
    Unkillable {
        /// Their process ids.
        pids: Vec<u32>,
    },
    /// A file of the run could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The user requested a stop.
    #[error("interrupted")]
    Interrupted,
}

impl ServerError {
    /// A file that failed, with its path.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_owned(), source }
    }
}

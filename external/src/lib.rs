//! Drives inference servers of other engines (SGLang, vLLM, or spectune's own `serve`): starts one
//! as a process, waits until it is ready, sends it a load, reads its counters, and stops it without
//! leaving anything behind.
//!
//! - [`process`] owns a server's process group and its log; [`mark`] finds its processes,
//!   [`container`] its container. [`program`] looks it up before it is started.
//! - [`supervisor`] is a process that ends servers as soon as this one is killed. [`orphans`] ends
//!   servers that a killed run left, as the next run does.
//! - [`failure`] determines from a log why a server ended or did not start.
//! - [`address`] reads the URL of a server. [`api`] is its client; differences between engines are
//!   in `api/sglang.rs` and `api/vllm.rs`. [`advice`] says what to do if it does not answer.
//! - [`log`] reads what a server reports about its rounds.
//! - [`load`] keeps requests running and measures when their tokens arrive.
//!
//! Nothing here depends on tree shapes, journals or strategies; these belong to `tuner`.
#![forbid(unsafe_code)]

pub mod address;
pub mod advice;
pub mod api;
mod brief_call;
pub mod container;
pub mod failure;
pub mod http;
pub mod load;
pub mod log;
pub mod mark;
pub mod orphans;
pub mod port;
pub mod process;
pub mod process_table;
pub mod program;
pub mod ready;
pub mod sampled;
pub mod supervisor;

use std::{io, path::PathBuf};

/// Why a server could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The program could not be started.
    #[error("cannot start `{program}`: {source}; is it installed, and is `system.command` right?")]
    Spawn {
        /// The program.
        program: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server ended, or did not become ready.
    #[error("{0}")]
    Failed(failure::ServerFailure),
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
    /// A container did not end.
    #[error("the server's container could not be removed; end it by hand: {command}")]
    Container {
        /// The command that removes it.
        command: String,
    },
    /// The process that ends servers if this one is killed did not start.
    #[error("{program}: the process that ends servers if this one is killed did not start")]
    Supervisor {
        /// Its program.
        program: String,
    },
    /// A file of the run could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The user requested a stop.
    #[error("interrupted")]
    Interrupted,
}

impl ServerError {
    /// An error with the path of its file.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_owned(), source }
    }
}

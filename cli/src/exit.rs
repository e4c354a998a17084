//! Exit codes, the same for every command and every output format.

use std::process::ExitCode;

#[cfg(feature = "engine")]
use {engine::EngineError, external::ServerError, tuner::TunerError};

/// The exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Fine = 0,
    /// The linter found errors or warnings, or nothing was eligible.
    Findings = 1,
    /// Wrong usage, invalid input, or a file that cannot be read or written.
    Usage = 2,
    /// The device or the engine failed.
    #[cfg(feature = "engine")]
    Failure = 3,
    /// A comparison cannot tell: the runs differ, or scatter too much.
    #[cfg(feature = "engine")]
    Unknown = 4,
    /// Interrupted by Ctrl-C or SIGTERM, with all finished work kept: 128 + SIGINT, by the
    /// convention of shells.
    #[cfg(feature = "engine")]
    Interrupted = 130,
}

/// Printed below `--help`: the exit codes, and the environment variables that every command reads.
#[cfg(feature = "engine")]
pub const AFTER_HELP: &str = "\
Exit codes:
  0  success
  1  findings (lint, diagnose), nothing eligible, or worse (report --fail-if)
  2  wrong usage, invalid input, or a file that cannot be read or written
  3  device, engine or server failure
  4  a comparison cannot tell (report --fail-if)
  130  interrupted (Ctrl-C, SIGTERM); finished trials are kept, and --resume continues
       (a second one ends the command at once)

Environment:
  SPECTUNE_LOG    log level on standard error: error, warn (default), info or debug
  SPECTUNE_CACHE  folder for compiled kernels (default: spectune/kernels in the user's cache folder)
  SSL_CERT_FILE   PEM file of certificate authorities for servers at https:// (default: the public ones)
  NO_COLOR        disables colour when set";

/// Printed below `--help`.
#[cfg(not(feature = "engine"))]
pub const AFTER_HELP: &str = "\
This build checks launches only. The commands that run or measure models (sweep, tune, serve …) \
need a build with the feature `engine`, which is on by default.

Exit codes:
  0  success
  1  findings
  2  wrong usage, invalid input, or a file that cannot be read or written

Environment:
  SPECTUNE_LOG    log level on standard error: error, warn (default), info or debug
  NO_COLOR        disables colour when set";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Prints an error of the argument parser, or the requested help, and returns the exit code.
pub fn usage(error: &clap::Error) -> ExitCode {
    // A closed pipe while printing help is not an error.
    let _ = error.print();
    if error.use_stderr() { Exit::Usage.into() } else { Exit::Fine.into() }
}

/// The exit code of an error: 3 for device failures, 2 for wrong input.
#[cfg(feature = "engine")]
pub fn from_error(error: &anyhow::Error) -> Exit {
    let failed = error.chain().any(|cause| {
        matches!(
            cause.downcast_ref(),
            Some(EngineError::Device(_) | EngineError::OutOfMemory { .. } | EngineError::NotFinite { .. })
        )
        // In a sweep over servers, the server is the engine.
        || matches!(cause.downcast_ref(), Some(TunerError::System(_)))
        || matches!(cause.downcast_ref(), Some(ServerError::Request { .. } | ServerError::Failed(_)))
    });
    if failed || is_of_tensors(error) { Exit::Failure } else { Exit::Usage }
}

/// Whether the library of tensors failed, which training uses.
#[cfg(feature = "training")]
fn is_of_tensors(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(training::TrainingError::Tensor(_))))
}

/// Nothing trains in this build.
#[cfg(all(feature = "engine", not(feature = "training")))]
fn is_of_tensors(_error: &anyhow::Error) -> bool {
    false
}

/// The exit code of an error: without an engine, the input is wrong.
#[cfg(not(feature = "engine"))]
pub fn from_error(_error: &anyhow::Error) -> Exit {
    Exit::Usage
}

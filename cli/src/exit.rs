//! Exit codes, the same for every command and every output format.

use std::process::ExitCode;

use engine::EngineError;
use training::TrainingError;
use tuner::TunerError;

/// What the process says to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Fine = 0,
    /// The linter found errors or warnings, or nothing was eligible.
    Findings = 1,
    /// Wrong use, broken input, or a file that cannot be read or written.
    Usage = 2,
    /// The device or the engine failed.
    Failure = 3,
    /// Stopped by Ctrl-C or a signal to end before it was done, with all finished work kept: 128 + SIGINT, as shells say it.
    Interrupted = 130,
}

/// What stands below `--help`: the exit codes, and the variables that every command reads.
pub const AFTER_HELP: &str = "\
Exit codes:
  0  success
  1  findings (lint), or nothing eligible
  2  wrong usage, invalid input, or a file that cannot be read or written
  3  device or engine failure
  130  interrupted (Ctrl-C, SIGTERM); finished trials are kept, and --resume continues

Environment:
  SPECTUNE_LOG    log level on standard error: error, warn (default), info or debug
  SPECTUNE_CACHE  folder for compiled kernels (default: spectune/kernels in the user's cache folder)
  NO_COLOR        disables colour when set";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Prints a complaint of the argument parser (or the help that was asked for) and gives its code.
pub fn usage(error: &clap::Error) -> ExitCode {
    // A closed pipe under --help is nobody's error.
    let _ = error.print();
    if error.use_stderr() { Exit::Usage.into() } else { Exit::Fine.into() }
}

/// The code of an error: what the device did is 3, what the user gave is 2.
pub fn of(error: &anyhow::Error) -> Exit {
    let device = error.chain().any(|cause| {
        matches!(
            cause.downcast_ref::<EngineError>(),
            Some(EngineError::Device(_) | EngineError::OutOfMemory { .. } | EngineError::NotFinite { .. })
        )
    });
    // A server is the engine of such a sweep.
    let server = error.chain().any(|cause| matches!(cause.downcast_ref::<TunerError>(), Some(TunerError::System(_))));
    let tensors = error.chain().any(|cause| matches!(cause.downcast_ref(), Some(TrainingError::Tensor(_))));
    if device || server || tensors { Exit::Failure } else { Exit::Usage }
}

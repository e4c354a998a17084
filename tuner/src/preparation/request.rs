//! The request for a sweep, and how it reports progress.

use std::{path::PathBuf, sync::atomic::AtomicBool};

use external::supervisor::SupervisorProgram;
use schemas::version::EngineVersion;

use super::inputs::SweepInputs;
use crate::{
    TunerError,
    strategy::Planned,
    trials::record::{Record, Trial},
};

/// A sweep as a caller asks for it.
#[derive(Clone, Debug)]
pub struct SweepRequest<'a> {
    /// What it measures, and on what.
    pub inputs: SweepInputs,
    /// Folder of the journal and the tuned file.
    pub out: PathBuf,
    /// Whether to continue an existing sweep.
    pub resume: bool,
    /// Maximum size in bytes of the target's hidden states in `out`, from which acceptance can be
    /// replayed without the target; 0 stores none.
    pub keep_states: u64,
    /// Set by another thread when the user requests a stop; finished trials are kept.
    pub interrupted: &'a AtomicBool,
    /// How the process is started that ends servers if this one is killed; without it, only the
    /// next run ends them.
    pub supervisor: Option<SupervisorProgram>,
}

/// Reports progress while a sweep runs.
pub trait SweepProgress {
    /// The plan is known: this many trials, of which `done` are already measured.
    fn planned(&mut self, _planned: Planned, _done: usize) {}
    /// This many trials are requested in addition to the plan; some of them may already be
    /// measured.
    fn more(&mut self, _trials: usize) {}
    /// A slow step starts before any trial: its description and number of steps.
    fn preparing(&mut self, _what: &str, _steps: usize) {}
    /// This many of its steps are done.
    fn prepared(&mut self, _steps: usize) {}
    /// This many more servers are expected to start, at most.
    fn starts_left(&mut self, _starts: usize) {}
    /// The start of a server took this many seconds, whether or not it became ready.
    fn server_started(&mut self, _seconds: f64) {}
    /// The first server runs, and reports this version of its engine; `None` if it is not one of
    /// SGLang or vLLM.
    ///
    /// # Errors
    /// To end the sweep before its first trial.
    fn engine_known(&mut self, _version: Option<EngineVersion>) -> Result<(), TunerError> {
        Ok(())
    }
    /// A trial starts.
    fn started(&mut self, _trial: &Trial) {}
    /// A trial has been appended to the journal.
    fn finished(&mut self, _record: &Record) {}
    /// A message for the user.
    fn note(&mut self, _text: &str) {}
}

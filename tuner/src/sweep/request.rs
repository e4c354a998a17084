//! The request for a sweep, and how it reports progress.

use std::{path::PathBuf, sync::atomic::AtomicBool};

use engine::DeviceChoice;
use schemas::sweep::SweepFile;

use crate::{
    record::{Record, Trial},
    strategy::{Planned, Shard},
};

/// What to sweep, and how.
#[derive(Debug)]
pub struct SweepRequest<'a> {
    /// The sweep file.
    pub file: SweepFile,
    /// The folder from which its relative paths start.
    pub folder: PathBuf,
    /// Where journal and tuned file go.
    pub out: PathBuf,
    /// Whether to continue an existing sweep.
    pub resume: bool,
    /// The part for this machine.
    pub shard: Option<Shard>,
    /// Where to run, over what the file says.
    pub device: Option<DeviceChoice>,
    /// Bytes that the target's hidden states may take in `out`, so that acceptance is told again without the target; 0
    /// keeps none.
    pub keep_states: u64,
    /// Set by another thread when the user requests a stop; finished trials are kept.
    pub interrupted: &'a AtomicBool,
}

/// What the caller shows while a sweep runs.
pub trait Progress {
    /// The plan is made: this many trials, this many of them done already.
    fn planned(&mut self, _planned: Planned, _done: usize) {}
    /// A slow step starts before any trial: its description and number of steps.
    fn preparing(&mut self, _what: &str, _steps: usize) {}
    /// This many of its steps are done.
    fn prepared(&mut self, _steps: usize) {}
    /// A trial begins.
    fn started(&mut self, _trial: &Trial) {}
    /// A trial is in the journal.
    fn finished(&mut self, _record: &Record) {}
    /// Something the user should know.
    fn note(&mut self, _text: &str) {}
}

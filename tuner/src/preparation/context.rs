//! A sweep in progress.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{
    Ready,
    request::{SweepProgress, SweepRequest},
};

/// What the stages of a sweep in progress share, made once from its request.
pub struct SweepContext<'a> {
    /// The engine, the workload and the experiment.
    pub ready: Ready,
    /// Folder of the journal, of what guides the search, and of the tuned file.
    pub out: &'a Path,
    /// Whether what the folder contains is used.
    pub resume: bool,
    /// As [`SweepRequest::keep_states`].
    pub keep_states: u64,
    /// Set by another thread when the user requests a stop, or at a limit of time.
    pub interrupted: &'a AtomicBool,
    /// Told of each step.
    pub progress: &'a mut dyn SweepProgress,
}

impl<'a> SweepContext<'a> {
    /// The context of a request whose inputs are ready.
    pub fn new(
        request: &'a SweepRequest<'_>,
        ready: Ready,
        interrupted: &'a AtomicBool,
        progress: &'a mut dyn SweepProgress,
    ) -> Self {
        let SweepRequest { out, resume, keep_states, .. } = request;
        Self { ready, out, resume: *resume, keep_states: *keep_states, interrupted, progress }
    }

    /// Whether a stop is requested.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

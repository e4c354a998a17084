//! The host thread of a rank.

use std::{
    sync::mpsc::{self, Sender},
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use super::super::CudaBackend;
use crate::error::EngineError;

/// A job, with access to the thread's backend (`None` before its models are loaded).
pub type RankJob = Box<dyn FnOnce(&mut Option<CudaBackend>) + Send>;

/// Maximum time for a thread to release its device.
const MOST: Duration = Duration::from_secs(10);

/// The host thread of a rank, which owns its part of the models and runs one job after the other.
pub struct RankThread {
    /// Name of its device.
    pub name: String,
    jobs: Option<Sender<RankJob>>,
    thread: Option<JoinHandle<()>>,
}

impl RankThread {
    /// Starts the thread.
    pub fn start(rank: usize, name: &str) -> Result<Self, EngineError> {
        let (jobs, receiver) = mpsc::channel::<RankJob>();
        let work = move || {
            let mut backend = None;
            receiver.into_iter().for_each(|job| job(&mut backend));
        };
        let thread = Builder::new().name(format!("rank {rank}")).spawn(work);
        let thread = thread.map_err(|error| EngineError::Device(format!("no thread for rank {rank}: {error}")))?;
        Ok(Self { name: name.to_owned(), jobs: Some(jobs), thread: Some(thread) })
    }

    /// Queues a job; dropped if the thread has ended.
    pub fn send(&self, job: RankJob) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }

    /// Whether the thread has ended, because a job panicked.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread as a panic would, without a panic message.
    pub fn kill(&self) {
        self.send(Box::new(|_| std::panic::resume_unwind(Box::new("killed"))));
    }
}

impl Drop for RankThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let Some(thread) = self.thread.take() else { return };
        let until = Instant::now() + MOST;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        // A thread that hangs in the driver is left alone.
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

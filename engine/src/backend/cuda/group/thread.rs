//! The host thread of a rank.

use std::{
    sync::mpsc::{self, Sender},
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use super::super::CudaBackend;
use crate::error::EngineError;

/// What a thread does with what it owns: nothing yet, before its models are loaded.
pub type Job = Box<dyn FnOnce(&mut Option<CudaBackend>) + Send>;

/// How long a thread may take to give its device back.
const MOST: Duration = Duration::from_secs(10);

/// The host thread of a rank, which owns its part of the models and does one job after the other.
pub struct RankThread {
    /// Of its device.
    pub name: String,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl RankThread {
    /// Starts it.
    pub fn start(rank: usize, name: &str) -> Result<Self, EngineError> {
        let (jobs, receiver) = mpsc::channel::<Job>();
        let work = move || {
            let mut backend = None;
            receiver.into_iter().for_each(|job| job(&mut backend));
        };
        let thread = Builder::new().name(format!("rank {rank}")).spawn(work);
        let thread = thread.map_err(|error| EngineError::Device(format!("no thread for rank {rank}: {error}")))?;
        Ok(Self { name: name.to_owned(), jobs: Some(jobs), thread: Some(thread) })
    }

    /// Gives it a job; one that has ended drops it.
    pub fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }

    /// Whether it does nothing any more, because a job has panicked.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Lets it end as by a panic, without the words of one.
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
        // One that hangs in its driver is left alone.
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

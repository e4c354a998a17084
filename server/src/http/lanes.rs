//! Runs slow work (parsing bodies, rendering chats, tokenising) off the I/O threads, a bounded
//! number of jobs at a time. Long jobs queue after long jobs only, so short ones do not wait for
//! them. Jobs that may need much stack or time have threads and a queue that nothing else uses.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Semaphore, oneshot};

use super::error::ApiError;

/// Input from this size on counts as long, in bytes.
const LONG: usize = 256 << 10;
/// Input up to this size, in bytes, is parsed on the I/O thread: that is faster than handing it
/// over.
pub const SPOT: usize = 16 << 10;

/// Number of jobs with threads of their own at a time.
const DEEP_JOBS: usize = 2;
/// Stack of such a thread in bytes. What is not used takes no memory.
const DEEP_STACK: usize = 256 << 20;
/// Maximum time until such a job has ended, with the time in the queue.
const DEEP_PATIENCE: Duration = Duration::from_secs(60);

/// Queues for jobs. Clones share them.
#[derive(Clone, Debug)]
pub struct Lanes {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
    deep: Arc<Semaphore>,
}

/// Whether the result of a job is still needed.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<AtomicBool>);

/// Held by the caller; dropped when it gives up.
struct Waits(Cancellation);

impl Default for Lanes {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let queue = |jobs: usize| Arc::new(Semaphore::new(jobs));
        Self { short: queue(cores), long: queue((cores / 8).max(1)), deep: queue(DEEP_JOBS) }
    }
}

impl Lanes {
    /// Runs a job on input of this many bytes when its turn comes. If the caller gives up, a
    /// waiting job is not started, and a running one can check whether it is still needed.
    ///
    /// # Errors
    /// When the job fails.
    pub async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(&Cancellation) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let lane = if bytes >= LONG { &self.long } else { &self.short };
        let failed = || ApiError::failed("the server failed on this input");
        let permit = lane.clone().acquire_owned().await.map_err(|_| failed())?;
        let waits = Waits(Cancellation::default());
        let wanted = waits.0.clone();
        let done = tokio::task::spawn_blocking(move || {
            // The lane is occupied until the job ends, even if its client has left.
            let _permit = permit;
            work(&wanted)
        });
        let done = done.await.map_err(|_| failed())?;
        drop(waits);
        done
    }

    /// Runs a job that may need much stack or time. It can neither be cancelled nor keep the
    /// process alive, and delays only jobs of its kind. It is not started if the caller gives up
    /// before.
    ///
    /// # Errors
    /// When the job fails, or has not ended in time.
    pub async fn run_deep<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let failed = || ApiError::failed("the server failed on this input");
        let job = async {
            let permit = self.deep.clone().acquire_owned().await.map_err(|_| failed())?;
            let (sender, receiver) = oneshot::channel();
            let started = std::thread::Builder::new().stack_size(DEEP_STACK).spawn(move || {
                let _permit = permit;
                // The client may have left.
                let _ = sender.send(work());
            });
            started.map_err(|_| failed())?;
            receiver.await.map_err(|_| failed())?
        };
        let done = tokio::time::timeout(DEEP_PATIENCE, job).await;
        done.map_err(|_| ApiError::stuck_on_grammar(DEEP_PATIENCE.as_secs()))?
    }
}

impl Cancellation {
    /// Whether the result is still needed.
    pub fn is(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[tokio::test]
    async fn long_work_waits_for_long_work_and_short_work_does_not() {
        let queue = || Arc::new(Semaphore::new(1));
        let lanes = Lanes { short: queue(), long: queue(), deep: queue() };
        let (finish, finished) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let lanes = lanes.clone();
            async move { lanes.run(LONG, move |_| Ok(finished.recv().is_ok())).await }
        });
        while lanes.long.available_permits() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(lanes.run(1, |_| Ok(7)).await.ok(), Some(7));
        let mut second = Box::pin(lanes.run(LONG, |_| Ok(8)));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut second).await.is_err());
        finish.send(()).expect("it waits");
        assert_eq!(second.await.ok(), Some(8));
        assert_eq!(first.await.expect("no panic").ok(), Some(true));
    }

    #[tokio::test]
    async fn deep_work_delays_only_its_kind_and_has_a_large_stack() {
        fn sum(depth: u64) -> u64 {
            let local = std::hint::black_box([depth; 64]);
            if depth == 0 { 0 } else { sum(depth - 1) + local[63] }
        }
        let lanes = Lanes::default();
        let (finish, finished) = mpsc::channel::<()>();
        let finished = Arc::new(std::sync::Mutex::new(finished));
        let blocked: Vec<_> = (0..DEEP_JOBS)
            .map(|_| {
                let (lanes, finished) = (lanes.clone(), finished.clone());
                let job = move || Ok(finished.lock().expect("no panic").recv().is_ok());
                tokio::spawn(async move { lanes.run_deep(job).await })
            })
            .collect();
        while lanes.deep.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..4 * std::thread::available_parallelism().map_or(1, usize::from) {
            assert_eq!(lanes.run(1, |_| Ok(7)).await.ok(), Some(7));
        }
        drop(finish);
        for job in blocked {
            assert_eq!(job.await.expect("no panic").ok(), Some(false));
        }
        // More than the 2 MiB that other threads have.
        assert_eq!(lanes.run_deep(|| Ok(sum(20_000))).await.ok(), Some(200_010_000));
        assert!(lanes.run_deep::<()>(|| panic!("a fault")).await.is_err());
    }

    #[tokio::test]
    async fn work_learns_that_its_client_has_left() {
        let lanes = Lanes::default();
        let (started, starts) = mpsc::channel();
        let (ended, ends) = mpsc::channel();
        let work = move |wanted: &Cancellation| {
            let _ = started.send(wanted.is());
            while wanted.is() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = ended.send(());
            Ok(())
        };
        let client = tokio::spawn(async move { lanes.run(1, work).await.is_ok() });
        let first = tokio::task::spawn_blocking(move || starts.recv());
        assert_eq!(first.await.expect("no panic"), Ok(true));
        client.abort();
        assert!(tokio::task::spawn_blocking(move || ends.recv()).await.expect("no panic").is_ok());
    }
}

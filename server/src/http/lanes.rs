//! Runs slow work (parsing bodies, rendering chats, tokenising) off the I/O threads, a bounded
//! number of jobs at a time. Long jobs queue after long jobs only, so short ones do not wait for
//! them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Semaphore;

use super::error::ApiError;

/// Input from this size on counts as long, in bytes.
const LONG: usize = 256 << 10;
/// Input up to this size, in bytes, is parsed on the I/O thread: that is faster than handing it
/// over.
pub const SPOT: usize = 16 << 10;

/// Queues for short and long jobs. Clones share them.
#[derive(Clone, Debug)]
pub struct Lanes {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

/// Whether the result of a job is still needed.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<AtomicBool>);

/// Held by the caller; dropped when it gives up.
struct Waits(Cancellation);

impl Default for Lanes {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { short: Arc::new(Semaphore::new(cores)), long: Arc::new(Semaphore::new((cores / 8).max(1))) }
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
        let lanes = Lanes { short: Arc::new(Semaphore::new(1)), long: Arc::new(Semaphore::new(1)) };
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

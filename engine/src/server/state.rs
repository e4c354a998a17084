//! What all handlers share.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use super::{ServeOptions, error::ApiError, metrics::Metrics, worker::Running, worker::Worker};
use crate::Request;

/// Shared by all handlers.
pub struct State {
    /// The engine's thread.
    pub worker: Worker,
    /// How it is served.
    pub options: ServeOptions,
    /// Figures of requests.
    pub metrics: Metrics,
    /// When it started, in seconds since the Unix epoch.
    pub started: u64,
    stopping: AtomicBool,
    numbers: AtomicU64,
    random: RandomState,
}

impl State {
    /// For a worker that has started.
    pub fn new(worker: Worker, options: ServeOptions) -> Self {
        Self {
            metrics: Metrics::new(&worker),
            worker,
            options,
            started: now(),
            stopping: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            random: RandomState::new(),
        }
    }

    /// The name under which the model is served.
    pub fn model(&self) -> &str {
        self.options.served_model_name.as_deref().unwrap_or(&self.worker.facts().identity.name)
    }

    /// A number that no other response has.
    pub fn response_id(&self, prefix: &str) -> String {
        format!("{prefix}-{:016x}{:04x}", self.random_number(), self.numbers.load(Ordering::Relaxed) & 0xFFFF)
    }

    /// A seed for a request that gives none.
    pub fn random_number(&self) -> u64 {
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(self.numbers.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }

    /// No request is taken any more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Sends requests to the engine, all or none of them.
    ///
    /// # Errors
    /// When the server is stopping, the queue is full, or a request can never run.
    pub async fn submit(&self, requests: Vec<Request>) -> Result<Vec<Running>, ApiError> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(ApiError::stopping());
        }
        if self.worker.statistics().waiting + requests.len() > self.options.max_queued_requests {
            return Err(ApiError::busy(self.options.max_queued_requests));
        }
        let mut running = Vec::new();
        for request in requests {
            // On an error those that run already are dropped, which cancels them.
            running.push(self.worker.submit(request).await?);
        }
        Ok(running)
    }
}

/// Seconds since the Unix epoch.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

//! What all handlers share.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use super::{ServeOptions, metrics::Metrics, worker::Worker};

/// Shared by all handlers.
pub struct State {
    /// The engine's thread.
    pub worker: Worker,
    /// How it is served.
    pub options: ServeOptions,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// When it started, in seconds since the Unix epoch.
    pub started: u64,
    stopping: AtomicBool,
    numbers: AtomicU64,
    random: RandomState,
}

impl State {
    /// For a worker that has started.
    pub fn new(worker: Worker, options: ServeOptions, metrics: Metrics) -> Self {
        Self {
            worker,
            options,
            metrics,
            started: now(),
            stopping: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            random: RandomState::new(),
        }
    }

    /// The name under which the model is served.
    pub fn model(&self) -> &str {
        self.options.model_name(&self.worker.facts().identity)
    }

    /// Whether a client may call the model so: by its name, by the path that was given for it, which is its name in
    /// SGLang, or `default`, which SGLang's clients say.
    pub fn is_served(&self, asked: &str) -> bool {
        let path = &self.worker.facts().options.model_path;
        [self.model(), "default", ""].contains(&asked) || path.to_str() == Some(asked)
    }

    /// An id that no other response has.
    pub fn response_id(&self, prefix: &str) -> String {
        format!("{prefix}-{:016x}", self.random_number())
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

    /// Whether it is about to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// Seconds since the Unix epoch.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

//! State shared by all handlers.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    ServeOptions,
    http::{
        error::ApiError,
        lanes::Lanes,
        memory::{Permit, RequestMemory},
    },
    metrics::ServerMetrics,
    output::{grammar::Grammars, reasoning::Thinking, tools::ToolFamily},
    worker::{Named, RunningRequest, Worker},
};

/// Shared by all handlers.
pub struct State {
    /// The engine's thread.
    pub worker: Worker,
    /// The server's options.
    pub options: ServeOptions,
    /// The metrics of `/metrics`.
    pub metrics: ServerMetrics,
    /// The memory limit of requests.
    pub memory: RequestMemory,
    /// Where slow work runs.
    pub lanes: Lanes,
    /// The model's format of function calls.
    pub family: ToolFamily,
    /// Whether and where the model thinks.
    pub thinking: Thinking,
    /// Grammars of structured output.
    pub grammars: Arc<Grammars>,
    /// Start time, in seconds since the Unix epoch.
    pub started: u64,
    stopping: AtomicBool,
    numbers: AtomicU64,
    random: RandomState,
}

impl State {
    /// For a started worker.
    pub fn new(worker: Worker, options: ServeOptions, metrics: ServerMetrics) -> Self {
        let facts = worker.facts();
        let grammars = Grammars::new(facts.text.clone(), facts.capacity.vocab_size, facts.end_tokens.clone());
        let template = facts.text.as_ref().and_then(|text| text.template_source()).unwrap_or_default();
        let (calls, thoughts) = (options.tool_call_parser.as_deref(), options.reasoning_parser.as_deref());
        let family = calls.and_then(ToolFamily::from_parser).unwrap_or_else(|| ToolFamily::from_template(template));
        let thinking = thoughts.and_then(Thinking::from_parser).unwrap_or_else(|| Thinking::from_template(template));
        Self {
            family,
            thinking,
            worker,
            memory: RequestMemory::new(options.max_request_memory),
            lanes: Lanes::default(),
            grammars: Arc::new(grammars),
            options,
            metrics,
            started: now(),
            stopping: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            random: RandomState::new(),
        }
    }

    /// The name of the served model.
    pub fn model(&self) -> &str {
        self.options.model_name(&self.worker.facts().identity)
    }

    /// Whether a client may use this name: the model's name, its path (the name in SGLang), or
    /// `default`, which SGLang's clients send.
    pub fn is_served(&self, requested: &str) -> bool {
        let path = |path: &std::path::Path| path.to_str() == Some(requested);
        [self.model(), "default", ""].contains(&requested)
            || path(&self.worker.facts().options.model_path)
            // Weights that were replaced while serving come from another folder.
            || path(&self.worker.published().weights.model_path)
    }

    /// A unique id that starts with a prefix.
    pub fn new_id(&self, prefix: &str) -> String {
        format!("{prefix}{:016x}", self.random_number())
    }

    /// OpenAI's `system_fingerprint`: what the output of a seed depends on, which are the program
    /// and the weights.
    pub fn fingerprint(&self) -> String {
        let weights = self.worker.published().weights;
        let hash = blake3::hash(format!("{} {}", env!("CARGO_PKG_VERSION"), weights.fingerprint.0).as_bytes());
        format!("fp_{}", &hash.to_hex()[..10])
    }

    /// Reserves memory for requests until they end.
    ///
    /// # Errors
    /// When not enough is free.
    fn hold(&self, requests: &[Named]) -> Result<Permit, ApiError> {
        /// Bytes per request: its fields, its channel, its entry in the scheduler.
        const REQUEST: usize = 4 << 10;
        /// Bytes per prompt token: the token itself, and at worst a separate page with a key.
        const TOKEN: usize = 48;
        let bytes = requests.iter().map(|named| REQUEST + TOKEN * named.request.input_ids.len()).sum();
        self.memory.hold(bytes)
    }

    /// Submits the requests of one body, all or none of them.
    ///
    /// # Errors
    /// When there are too many, they would need too much memory, one can never run, or the engine
    /// has failed or ended.
    pub async fn submit(&self, requests: Vec<Named>, arrived: Instant) -> Result<Vec<RunningRequest>, ApiError> {
        let held = Arc::new(self.hold(&requests)?);
        let mut running = self.worker.submit(requests, arrived).await?;
        // The requests of a body share one permit, which ends with the last of them.
        running.iter_mut().for_each(|one| one.held = Some(held.clone()));
        Ok(running)
    }

    /// A random seed for a request without one.
    pub fn random_number(&self) -> u64 {
        // Its keys are random, so ids and seeds differ from one start to the next.
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(self.numbers.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }

    /// Stops accepting requests.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the server is shutting down.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// Seconds since the Unix epoch.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

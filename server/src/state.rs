//! What all handlers share.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use super::{
    ServeOptions,
    error::ApiError,
    grammar::Grammars,
    lanes::Lanes,
    memory::{Held, Memory},
    metrics::Metrics,
    reasoning::Thinking,
    tools::Family,
    worker::{Named, Running, Worker},
};

/// Shared by all handlers.
pub struct State {
    /// The engine's thread.
    pub worker: Worker,
    /// How it is served.
    pub options: ServeOptions,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// What requests may hold of the machine's memory.
    pub memory: Memory,
    /// Where long work is done.
    pub lanes: Lanes,
    /// How the model writes calls of functions.
    pub family: Family,
    /// Whether and where it thinks.
    pub thinking: Thinking,
    /// Grammars of structured output.
    pub grammars: Arc<Grammars>,
    /// When it started, in seconds since the Unix epoch.
    pub started: u64,
    stopping: AtomicBool,
    numbers: AtomicU64,
    random: RandomState,
}

impl State {
    /// For a worker that has started.
    pub fn new(worker: Worker, options: ServeOptions, metrics: Metrics) -> Self {
        let facts = worker.facts();
        let grammars = Grammars::new(facts.text.clone(), facts.capacity.vocab_size, facts.end_tokens.clone());
        let template = facts.text.as_ref().and_then(|text| text.template_source()).unwrap_or_default();
        let (calls, thoughts) = (options.tool_call_parser.as_deref(), options.reasoning_parser.as_deref());
        let family = calls.and_then(Family::of_parser).unwrap_or_else(|| Family::of_template(template));
        let thinking = thoughts.and_then(Thinking::of_parser).unwrap_or_else(|| Thinking::of_template(template));
        Self {
            family,
            thinking,
            worker,
            memory: Memory::new(options.max_request_memory),
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

    /// The name under which the model is served.
    pub fn model(&self) -> &str {
        self.options.model_name(&self.worker.facts().identity)
    }

    /// Whether a client may call the model so: by its name, by the path that was given for it, which is its name in
    /// SGLang, or `default`, which SGLang's clients say.
    pub fn is_served(&self, asked: &str) -> bool {
        let path = |path: &std::path::Path| path.to_str() == Some(asked);
        [self.model(), "default", ""].contains(&asked)
            || path(&self.worker.facts().options.model_path)
            || path(&self.worker.published().weights.model_path)
    }

    /// An id that no other response has.
    pub fn response_id(&self, prefix: &str) -> String {
        format!("{prefix}-{:016x}", self.random_number())
    }

    /// Takes the memory of requests, which their ends give back.
    ///
    /// # Errors
    /// When others hold what would be needed.
    fn hold(&self, requests: &[Named]) -> Result<Held, ApiError> {
        /// A request's own fields, its channel, its place in the scheduler.
        const REQUEST: usize = 4 << 10;
        /// A token of a prompt: itself, and at worst its own page with a key.
        const TOKEN: usize = 48;
        let bytes = requests.iter().map(|named| REQUEST + TOKEN * named.request.input_ids.len()).sum();
        self.memory.hold(bytes)
    }

    /// Submits requests that came with one body, all or none of them.
    ///
    /// # Errors
    /// When there are too many, they would hold too much memory, one can never run, or the engine has failed or ended.
    pub async fn submit(&self, requests: Vec<Named>, arrived: Instant) -> Result<Vec<Running>, ApiError> {
        let held = Arc::new(self.hold(&requests)?);
        let mut running = self.worker.submit(requests, arrived).await?;
        running.iter_mut().for_each(|one| one.held = Some(held.clone()));
        Ok(running)
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

//! An OpenAI-compatible HTTP server over an [`Engine`].
//!
//! One thread owns the engine and loops (see `worker`); handlers talk to it over channels and never wait for it while
//! holding anything that it needs.
#![forbid(unsafe_code)]

mod access;
mod chat;
mod completions;
mod connections;
mod control;
mod cors;
mod error;
mod fields;
mod generate;
mod grammar;
mod health;
mod info;
mod lanes;
mod latency;
mod memory;
mod metrics;
mod neutral;
mod parameters;
mod prompt_logprobs;
mod prompts;
mod reading;
mod reasoning;
mod replies;
mod request_log;
mod responses;
mod routes;
mod shutdown;
mod state;
mod stream;
mod throughput;
mod tokenize;
mod tools;
mod updates;
mod weights;
mod worker;

#[cfg(test)]
mod tests;

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, thread::JoinHandle, time::Duration};

use engine::{Engine, Identity};
use tokio::net::TcpListener;

use self::{latency::Latencies, metrics::Metrics, request_log::RequestLog, state::State, worker::Worker};

/// How to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// Address to listen on, such as `127.0.0.1`.
    pub host: String,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Clients must send it as a bearer token.
    pub api_key: Option<String>,
    /// Name under which the model is served; the last part of its path unless given.
    pub served_model_name: Option<String>,
    /// Requests that may wait beyond those that run.
    pub max_queued_requests: usize,
    /// Most connections; fewer where the process may not open as many files.
    pub max_connections: usize,
    /// Bytes that all requests may hold together: bodies, what is parsed of them, prompts that wait or run.
    pub max_request_memory: usize,
    /// Origins of web pages that may use the server, `*` for all. Where none are given: all with a key, else pages of this
    /// machine.
    pub allowed_origins: Vec<String>,
    /// Whether responses carry figures of speculation (vLLM's `metrics.speculative_decoding`).
    pub request_metrics: bool,
    /// How long running requests may go on after a signal to stop.
    pub shutdown_grace: Duration,
    /// How the model writes calls of functions, by the name of a parser ([`tool_call_parsers`]); detected from its chat template
    /// unless given.
    pub tool_call_parser: Option<String>,
    /// How its reasoning is separated ([`reasoning_parsers`]); detected from its chat template unless given.
    pub reasoning_parser: Option<String>,
    /// A file to which every finished request is added, prompt and answer as tokens; `None` logs none.
    pub log_requests: Option<PathBuf>,
}

/// Why a server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {source}; {hint}")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// An option cannot be used.
    #[error("{0}")]
    Option(String),
    /// The engine failed while serving.
    #[error("the engine failed: {0}")]
    Engine(String),
    /// The network failed.
    #[error("the server failed: {0}")]
    Io(#[from] io::Error),
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: 30_000,
            api_key: None,
            served_model_name: None,
            max_queued_requests: 1024,
            max_connections: 4096,
            max_request_memory: 1 << 30,
            allowed_origins: Vec::new(),
            request_metrics: false,
            shutdown_grace: Duration::from_secs(10),
            tool_call_parser: None,
            reasoning_parser: None,
            log_requests: None,
        }
    }
}

impl ServeOptions {
    /// The name under which a model is served.
    pub fn model_name<'a>(&'a self, identity: &'a Identity) -> &'a str {
        self.served_model_name.as_deref().unwrap_or(&identity.name)
    }
}

/// Names of parsers of calls.
pub fn tool_call_parsers() -> impl Iterator<Item = &'static str> {
    tools::PARSERS.iter().map(|(name, _)| *name)
}

/// Names of parsers of reasoning.
pub fn reasoning_parsers() -> impl Iterator<Item = &'static str> {
    reasoning::PARSERS.iter().map(|(name, _)| *name)
}

/// Serves until SIGINT or SIGTERM. `ready` is called with the address once requests are taken.
///
/// # Errors
/// When an option or the address cannot be used, or the engine fails.
pub fn serve(mut engine: Engine, options: ServeOptions, ready: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    if options.api_key.as_deref().is_some_and(|key| key.trim().is_empty()) {
        return Err(ServeError::Option("--api-key is empty: give a key, or remove the flag to require none".into()));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = listen(&options).await?;
        let signals = shutdown::signals()?;
        engine.commit_memory().map_err(|error| ServeError::Engine(error.to_string()))?;
        let (state, thread) = start(engine, options)?;
        ready(listener.local_addr()?);
        let ended = shutdown::run(listener, state.clone(), signals).await;
        // The engine thread ends when its last handle does; a failed one has said why.
        state.worker.stop();
        let failure = tokio::task::spawn_blocking(move || thread.join()).await;
        match failure {
            Ok(Ok(None)) => ended.map_err(ServeError::Io),
            Ok(Ok(Some(reason))) => Err(ServeError::Engine(reason)),
            _ => Err(ServeError::Engine("its thread panicked".into())),
        }
    })
}

/// The engine's thread and what the handlers share.
fn start(engine: Engine, options: ServeOptions) -> Result<(Arc<State>, JoinHandle<Option<String>>), ServeError> {
    let log = options.log_requests.as_ref().map(|path| {
        let wrong = |error| ServeError::Option(format!("--log-requests {}: {error}", path.display()));
        RequestLog::open(path, &engine).map_err(wrong)
    });
    let log = log.transpose()?;
    let latencies = Latencies::default();
    let most_requests = engine.max_running_requests().saturating_add(options.max_queued_requests);
    let (worker, thread) = Worker::start(engine, most_requests, latencies.clone(), log);
    let metrics = Metrics::new(&worker, options.model_name(&worker.facts().identity), latencies);
    Ok((Arc::new(State::new(worker, options, metrics)), thread))
}

async fn listen(options: &ServeOptions) -> Result<TcpListener, ServeError> {
    TcpListener::bind((options.host.as_str(), options.port)).await.map_err(|source| ServeError::Listen {
        address: format!("{}:{}", options.host, options.port),
        hint: match source.kind() {
            io::ErrorKind::AddrInUse => "another program uses the port: choose another --port, or stop that program",
            io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose another --port",
            _ => "check --host and --port",
        },
        source,
    })
}

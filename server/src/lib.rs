//! An OpenAI-compatible HTTP server over an [`Engine`].
//!
//! It has four parts, each of which uses only those above it in this list:
//! - `http`: connections, memory limits, request bodies and errors.
//! - `worker`: the thread that owns the engine and loops. Handlers talk to it over channels, and
//!   never wait for it while holding anything that it needs.
//! - `output`: reads reasoning, function calls and structured output in generated text, and streams
//!   it.
//! - `api`: the endpoints, by the API that defines them.
//!
//! `metrics` are the counters of `worker` under the names that dashboards read. `state` is what all
//! handlers share.
#![forbid(unsafe_code)]

mod api;
mod http;
mod metrics;
mod output;
mod shutdown;
mod state;
mod worker;

#[cfg(test)]
mod tests;

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, thread::JoinHandle, time::Duration};

use engine::{Engine, Identity};
use tokio::net::TcpListener;

use self::{
    metrics::ServerMetrics,
    output::{reasoning, tools},
    state::State,
    worker::{Worker, latency::Latencies, request_log::RequestLog},
};

/// Maximum time to wait for work on input at the end.
const LAST_WORK: Duration = Duration::from_secs(1);

/// Options of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// Address to listen on, such as `127.0.0.1`.
    pub host: String,
    /// Port; 0 selects a free one.
    pub port: u16,
    /// Key that clients must send as a bearer token.
    pub api_key: Option<String>,
    /// Name under which the model is served (default: the last part of its path).
    pub served_model_name: Option<String>,
    /// Maximum number of waiting requests, in addition to the running ones.
    pub max_queued_requests: usize,
    /// Maximum number of connections; lower if the process may not open as many files.
    pub max_connections: usize,
    /// Maximum memory of all requests together, in bytes: bodies, their parsed form, prompts that
    /// wait or run.
    pub max_request_memory: usize,
    /// Origins of web pages that may use the server, `*` for all. By default all with a key, else
    /// pages of this machine.
    pub allowed_origins: Vec<String>,
    /// Whether responses include figures of speculation (vLLM's `metrics.speculative_decoding`).
    pub request_metrics: bool,
    /// Time for running requests to finish after a signal to stop.
    pub shutdown_grace: Duration,
    /// The format of function calls, by the name of a parser ([`tool_call_parsers`]) (default:
    /// detected from the chat template).
    pub tool_call_parser: Option<String>,
    /// How reasoning is separated, by the name of a parser ([`reasoning_parsers`]) (default:
    /// detected from the chat template).
    pub reasoning_parser: Option<String>,
    /// A file to which every finished request is appended, prompt and output as tokens; `None` for
    /// no log.
    pub log_requests: Option<PathBuf>,
}

/// Why a server could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {source}; {hint}")]
    Listen {
        /// The address.
        address: String,
        /// The error.
        source: io::Error,
        /// What the user can do.
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

/// Names of the parsers for function calls.
pub fn tool_call_parsers() -> impl Iterator<Item = &'static str> {
    tools::PARSERS.iter().map(|(name, _)| *name)
}

/// Names of the parsers for reasoning.
pub fn reasoning_parsers() -> impl Iterator<Item = &'static str> {
    reasoning::PARSERS.iter().map(|(name, _)| *name)
}

/// Serves until SIGINT or SIGTERM. `ready` is called with the address once requests are accepted.
///
/// # Errors
/// When an option or the address cannot be used, or the engine fails.
pub fn serve(mut engine: Engine, options: ServeOptions, ready: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    if options.api_key.as_deref().is_some_and(|key| key.trim().is_empty()) {
        return Err(ServeError::Option("--api-key is empty: give a key, or remove the flag to require none".into()));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(async {
        let listener = listen(&options).await?;
        let signals = shutdown::signals()?;
        engine.commit_memory().map_err(|error| ServeError::Engine(error.to_string()))?;
        let (state, thread) = start(engine, options)?;
        ready(listener.local_addr()?);
        let ended = shutdown::run(listener, state.clone(), signals).await;
        // The engine's thread ends with its last handle; if it failed, it returns the reason.
        state.worker.stop();
        let failure = tokio::task::spawn_blocking(move || thread.join()).await;
        match failure {
            Ok(Ok(None)) => ended.map_err(ServeError::Io),
            Ok(Ok(Some(reason))) => Err(ServeError::Engine(reason)),
            _ => Err(ServeError::Engine("its thread panicked".into())),
        }
    });
    // Work on the input of clients that have been cut off does not keep the process alive.
    runtime.shutdown_timeout(LAST_WORK);
    ended
}

/// Starts the engine's thread, and creates what the handlers share.
fn start(engine: Engine, options: ServeOptions) -> Result<(Arc<State>, JoinHandle<Option<String>>), ServeError> {
    let log = options.log_requests.as_ref().map(|path| {
        let wrong = |error| ServeError::Option(format!("--log-requests {}: {error}", path.display()));
        RequestLog::open(path, &engine).map_err(wrong)
    });
    let log = log.transpose()?;
    let latencies = Latencies::default();
    let most_requests = engine.max_running_requests().saturating_add(options.max_queued_requests);
    let (worker, thread) = Worker::start(engine, most_requests, latencies.clone(), log);
    let metrics = ServerMetrics::new(&worker, options.model_name(&worker.facts().identity), latencies);
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

//! `spectune serve`: serves the OpenAI API.

use std::{path::PathBuf, time::Duration};

use clap::builder::PossibleValuesParser;
use server::{ServeError, ServeOptions, serve};

use crate::{engine_flags::EngineFlags, engine_setup, exit::Exit, interrupt, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune serve results/demo/tuned.toml
  spectune serve --model-path models/tiny/target --speculative-algorithm EAGLE3 \\
      --speculative-draft-model-path models/tiny/eagle3 --port 8000
  spectune serve results/demo/tuned.toml --log-requests requests.jsonl
  curl http://127.0.0.1:30000/v1/chat/completions -H 'Content-Type: application/json' \\
      -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'";

/// Serve the OpenAI API.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A tuned file written by `spectune sweep`; engine flags override it
    tuned: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineFlags,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port; 0 chooses a free one
    #[arg(long, default_value_t = 30_000)]
    port: u16,
    /// Key that clients must send as a bearer token
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Name under which the model is served (default: the last part of its path)
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// Maximum number of waiting requests, in addition to running ones
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_queued_requests: usize,
    /// Maximum number of connections; fewer if the limit of open files (ulimit -n) is lower
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Maximum memory of all requests in MiB: bodies, and prompts of waiting and running requests
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..))]
    max_request_memory: u32,
    /// Origins of web pages that may use the server, or * (default: all with --api-key, else pages
    /// of this machine)
    #[arg(long, value_name = "ORIGIN", num_args = 1.., value_delimiter = ',')]
    allowed_origins: Vec<String>,
    /// No effect, as Prometheus metrics are always served at /metrics; accepted for SGLang's
    /// command lines
    #[arg(long)]
    enable_metrics: bool,
    /// Add speculation statistics to every response
    #[arg(long)]
    request_metrics: bool,
    /// Format of tool calls (default: detected from the chat template)
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(server::tool_call_parsers()))]
    tool_call_parser: Option<String>,
    /// How reasoning is separated from the answer (default: detected from the chat template)
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(server::reasoning_parsers()))]
    reasoning_parser: Option<String>,
    /// Seconds that running requests may continue after a stop signal
    #[arg(long, value_name = "SECONDS", default_value_t = 10, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    shutdown_grace: u64,
    /// Append every finished request to a file, prompt and answer as token ids, for
    /// `spectune train` and `spectune drift`. It contains what clients sent: off by default,
    /// readable only by its owner, never rotated or deleted
    #[arg(long, value_name = "FILE")]
    log_requests: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let (options, measured) = engine_setup::tuned_options(arguments.tuned.as_deref(), &arguments.engine)?;
    let engine = engine_setup::load_tuned(options, measured.as_ref())?;
    let options = ServeOptions {
        host: arguments.host,
        port: arguments.port,
        api_key: arguments.api_key,
        served_model_name: arguments.served_model_name,
        max_queued_requests: arguments.max_queued_requests,
        max_connections: arguments.max_connections as usize,
        max_request_memory: (arguments.max_request_memory as usize) << 20,
        allowed_origins: arguments.allowed_origins,
        request_metrics: arguments.request_metrics,
        shutdown_grace: Duration::from_secs(arguments.shutdown_grace),
        log_requests: arguments.log_requests,
        tool_call_parser: arguments.tool_call_parser,
        reasoning_parser: arguments.reasoning_parser,
    };
    let model = options.model_name(engine.identity()).to_owned();
    let device = engine.device().device;
    let ready = |address| {
        // From now on signals are the server's, which lets running requests finish.
        interrupt::leave();
        terminal::note(&format!("serving {model} on {device} at http://{address}"));
    };
    match serve(engine, options, ready) {
        Ok(()) => Ok(Exit::Fine),
        // An engine error is a device failure; all others are usage errors.
        Err(error @ ServeError::Engine(_)) => {
            terminal::print_error(&error.into());
            Ok(Exit::Failure)
        }
        Err(error) => Err(error.into()),
    }
}

//! `spectune diagnose`: says from a server's log, or from its metrics, why speculation is slower
//! than was promised.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use external::{
    address::server_address,
    api::{Api, ApiKind, Metrics},
    log::ServerLog,
    sampled::{self, SampledReading},
};
use serde::Serialize;
use tuner::{
    diagnosis::{Against, Diagnosis, LoadFigures, Promise, diagnose},
    workload,
};

use crate::{exit::Exit, interrupt, setup, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune diagnose server.log
  docker logs sglang 2>&1 | spectune diagnose -
  spectune diagnose eagle.log --against plain.log     # the same load without speculation
  spectune diagnose eagle.log --against plain.log --promised-speed-up 2.5 --promised-accept-length 3.6
  spectune diagnose all.log --start 1                 # of a log with several starts, the first
  spectune diagnose http://localhost:30000            # a running server, under the load that it has

Reads what SGLang (`Decode batch` …) and vLLM (`Avg generation throughput` …) print every few seconds \
under load. The gap between the promised and the found speed-up is a product: acceptance, how much \
longer a round takes, and the rest. Accept lengths are tokens per round and request, bonus token \
included; for one request, SGLang counts its first token too, which vLLM leaves out. Of several data-parallel \
ranks or engines, all figures are those of one.

Of a server at a URL it reads /metrics every --interval seconds for --seconds, and sends no requests: give it a load \
meanwhile. SGLang needs --enable-metrics.";

/// Time to wait for an answer of a server.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Say from a server's log or metrics why speculation is slower than was promised, and what to
/// change.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The log of a server of SGLang or vLLM, or the URL of one that runs; - reads standard input
    #[arg(value_name = "LOG|URL")]
    log: PathBuf,
    /// The log of the same load without speculation, or the URL of a server that has it
    #[arg(long, value_name = "LOG|URL")]
    against: Option<PathBuf>,
    /// Of a log with several starts of servers, the one to diagnose, from 1 (default: the last);
    /// engines that run at the same time with the same settings are one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    start: Option<u64>,
    /// The speed-up that was promised, as a ratio to no speculation; needs --against
    #[arg(long, value_name = "RATIO", requires = "against")]
    promised_speed_up: Option<f64>,
    /// The accept length that was promised, bonus token included
    #[arg(long, value_name = "LENGTH")]
    promised_accept_length: Option<f64>,
    /// Seconds for which the metrics of a server are read
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86400))]
    seconds: u64,
    /// Seconds between two readings
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Environment variable that holds the API key of the servers
    #[arg(long, value_name = "NAME")]
    api_key_env: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let Arguments { promised_speed_up, promised_accept_length, .. } = arguments;
    for (flag, value, least) in
        [("--promised-speed-up", promised_speed_up, 0.0), ("--promised-accept-length", promised_accept_length, 1.0)]
    {
        if value.is_some_and(|value| !(value.is_finite() && value > 0.0 && value >= least)) {
            bail!("{flag} {} is out of range, expected a number above {least}", value.unwrap_or_default());
        }
    }
    let mut is_cut = false;
    let read = figures(&arguments.log, arguments.start, &arguments, &mut is_cut)?;
    // A second server is not watched after an interrupt.
    let against = arguments.against.as_deref().filter(|_| !is_cut);
    let without = against.map(|against| figures(against, None, &arguments, &mut is_cut)).transpose()?;
    if without.as_ref().is_some_and(ServerLog::speculates) {
        bail!("the server of --against speculates too: give one without speculation");
    }
    let promise = Promise { speed_up: promised_speed_up, accept_length: promised_accept_length };
    let found = diagnose(&read, without.as_ref(), promise);
    if arguments.json {
        let all = DiagnosedServer::new(&read, &found);
        terminal::print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
    } else {
        terminal::print(&shown(&read, &found, promise))?;
    }
    Ok(match found.findings.is_empty() {
        _ if is_cut => Exit::Interrupted,
        true => Exit::Fine,
        false => Exit::Findings,
    })
}

/// A diagnosis with the configuration that it is about.
#[derive(Serialize)]
struct DiagnosedServer<'a> {
    engine: &'a str,
    version: Option<&'a str>,
    speculates: bool,
    algorithm: Option<&'a str>,
    num_steps: Option<usize>,
    topk: Option<usize>,
    num_draft_tokens: Option<usize>,
    max_running_requests: Option<usize>,
    #[serde(flatten)]
    found: &'a Diagnosis,
}

impl<'a> DiagnosedServer<'a> {
    fn new(log: &'a ServerLog, found: &'a Diagnosis) -> Self {
        let settings = &log.settings;
        Self {
            engine: engine(log),
            version: settings.version.as_deref(),
            speculates: log.speculates(),
            algorithm: settings.algorithm.as_deref(),
            num_steps: settings.num_steps,
            topk: settings.topk,
            num_draft_tokens: settings.verified_rows,
            max_running_requests: settings.max_running,
            found,
        }
    }
}

/// The figures of a log, or of a running server; `is_cut` is set if the user ended that early.
fn figures(from: &Path, start: Option<u64>, arguments: &Arguments, is_cut: &mut bool) -> anyhow::Result<ServerLog> {
    let url = from.to_str().filter(|text| text.starts_with("http://") || text.starts_with("https://"));
    match url {
        None if is_host_and_port(from) => {
            bail!("{0} is neither a file nor a URL: for a running server give http://{0}", from.display())
        }
        None => read_log(from, start),
        Some(_) if start.is_some() => bail!("--start is about a log: a running server has one start"),
        Some(url) => watch(url, arguments, is_cut),
    }
}

/// Whether a name that no file has is that of a server, without a scheme.
fn is_host_and_port(from: &Path) -> bool {
    let port = from.to_str().and_then(|text| text.rsplit_once(':')).filter(|(host, _)| !host.is_empty());
    port.is_some_and(|(_, port)| port.parse::<u16>().is_ok()) && !from.exists()
}

/// Reads the metrics of a running server for a while. A reading that fails is left out; an
/// interrupt ends it with what was read until then.
fn watch(url: &str, arguments: &Arguments, is_cut: &mut bool) -> anyhow::Result<ServerLog> {
    let Arguments { seconds, interval, .. } = *arguments;
    let url = &server_address(url).map_err(anyhow::Error::msg)?;
    let (api, info) = Api::recognise(url, setup::api_key(arguments.api_key_env.as_deref())?, TIMEOUT)?;
    let mut readings = vec![SampledReading { at: Duration::ZERO, metrics: page(&api)? }];
    terminal::note(&format!("reading the metrics of {url} for {seconds} s"));
    let interrupted = interrupt::polled();
    let begin = Instant::now();
    let mut failed = Vec::new();
    // Two readings at least, whatever the interval.
    let mut is_over = false;
    while !is_over {
        // The interval may be longer than the whole observation.
        *is_cut |= !waited(Duration::from_secs(interval.min(seconds)), interrupted);
        let at = begin.elapsed();
        match page(&api) {
            Ok(metrics) => readings.push(SampledReading { at, metrics }),
            Err(error) => failed.push(error),
        }
        is_over = *is_cut || at >= Duration::from_secs(seconds);
    }
    match failed.pop() {
        Some(error) if readings.len() < 2 => return Err(error),
        Some(error) => {
            let (failed, all) = (failed.len() + 1, failed.len() + 1 + readings.len());
            terminal::note(&format!("{failed} of {all} readings failed and are left out; the last one: {error}"));
        }
        None => {}
    }
    let found = sampled::observed(api.kind(), &info, &readings);
    let watched = begin.elapsed().as_secs_f64();
    if found.intervals.is_empty() {
        bail!(
            "{url} ran no request in {watched:.0} s: give it a load meanwhile, for example with the engine's own benchmark"
        );
    }
    if *is_cut {
        terminal::note(&format!("interrupted: the figures are those of {watched:.0} of {seconds} s"));
    }
    Ok(found)
}

/// A server's page of metrics.
fn page(api: &Api) -> anyhow::Result<Metrics> {
    api.metrics()?.with_context(|| {
        let url = api.base();
        match api.kind() {
            ApiKind::Sglang => format!("{url} has no /metrics: start SGLang with --enable-metrics"),
            ApiKind::Vllm => format!(
                "{url} has no /metrics, which vLLM has unless it is told otherwise: if a proxy in front of it does not forward \
                 them, give the server's own address"
            ),
        }
    })
}

/// Waits; returns false if the user interrupts it.
fn waited(time: Duration, interrupted: &AtomicBool) -> bool {
    const NAP: Duration = Duration::from_millis(20);
    let until = Instant::now() + time;
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(NAP));
    }
}

/// Reads a log: the given start of a server, or the last one.
fn read_log(path: &Path, start: Option<u64>) -> anyhow::Result<ServerLog> {
    let name = path.display();
    let cannot_read = || format!("cannot read {name}");
    let from: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin()),
        false => Box::new(File::open(path).with_context(cannot_read)?),
    };
    let mut from = BufReader::new(from);
    if let Some(reason) = workload::refusal(path, from.fill_buf().with_context(cannot_read)?) {
        bail!("{name}: {reason}");
    }
    let (mut servers, others) = ServerLog::read_apart(from).with_context(cannot_read)?;
    let count = servers.len();
    if count == 0 {
        bail!(
            "{name} reports no rounds: expected lines of SGLang with `Decode batch` or of vLLM with `Avg generation \
             throughput`, which servers print under load (not with --disable-log-stats)"
        );
    }
    let number = start.map_or(count, |start| usize::try_from(start).unwrap_or(usize::MAX));
    if number > count {
        bail!(
            "--start {number} is out of range: {name} has reports of {count} start{}",
            if count == 1 { "" } else { "s" }
        );
    }
    if count > 1 {
        terminal::note(&format!(
            "{name} has reports of {count} starts of servers, or of servers with different settings: this is number \
             {number}; --start N gives another"
        ));
    }
    let chosen = servers.swap_remove(number - 1);
    let left_out: usize = others.iter().map(|other| other.intervals.len()).sum();
    if let Some(other) = others.first() {
        terminal::note(&format!(
            "{name} has {left_out} report{} of {} too, which are left out: divide the log to diagnose them",
            if left_out == 1 { "" } else { "s" },
            engine(other)
        ));
    }
    Ok(chosen)
}

fn shown(log: &ServerLog, found: &Diagnosis, promise: Promise) -> String {
    let mut text =
        configuration(log) + "\nrunning  reports   tokens/s  accept  round ms  not rounds  waiting  KV cache\n";
    for load in &found.loads {
        text += &row(load);
    }
    for load in &found.loads {
        text += &spent(load);
    }
    for against in &found.against {
        text += &comparison(against);
    }
    if !found.factors.is_empty() {
        text += &format!("\n{}:\n", meaning(promise));
        let product: f64 = found.factors.iter().map(|factor| factor.factor).product();
        for factor in &found.factors {
            text += &format!("  {:>6.2}×  {}: {}\n", factor.factor, factor.name, factor.figures);
        }
        text += &format!("  {product:>6.2}×  together\n");
    }
    if found.findings.is_empty() && found.loads.iter().all(|load| load.round_ms.is_none()) {
        text +=
            "\nToo few reports to say what costs time: rounds need two reports without prompts after the first one.\n";
    } else if found.findings.is_empty() {
        text += "\nNothing here costs time that could be saved by a flag.\n";
    } else {
        text += "\nWhat costs time, and what to change:\n";
    }
    for (number, finding) in found.findings.iter().enumerate() {
        text += &format!("{:>3}. {}\n     → {}\n", number + 1, finding.what, finding.change);
    }
    text += "\nNot known from this:\n";
    for unknown in &found.unknown {
        text += &format!("  - {unknown}\n");
    }
    text
}

/// What the product of the factors is.
fn meaning(promise: Promise) -> &'static str {
    match (promise.speed_up, promise.accept_length) {
        (Some(_), Some(_)) => "The gap between the promised and the found speed-up, as factors",
        (_, Some(_)) => "The promised accept length divided by these is the speed-up",
        (_, None) => "The accept length divided by these is the speed-up",
    }
}

/// The name of the engine.
fn engine(log: &ServerLog) -> &str {
    match (log.settings.engine.as_deref(), log.kind) {
        (Some(engine), _) => engine,
        (None, ApiKind::Sglang) => "SGLang",
        (None, ApiKind::Vllm) => "vLLM",
    }
}

fn configuration(log: &ServerLog) -> String {
    let (settings, engine) = (&log.settings, engine(log));
    let shape = match (settings.num_steps, settings.topk, settings.verified_rows) {
        (Some(steps), Some(topk), Some(rows)) => format!(" ({steps},{topk},{rows})"),
        _ => String::new(),
    };
    let algorithm = match &settings.algorithm {
        Some(algorithm) => format!("{algorithm}{shape}"),
        None if log.speculates() => "speculation".to_owned(),
        None => "no speculation".to_owned(),
    };
    let (each, ranks) = match log.sources() {
        0 | 1 => ("", String::new()),
        several => (" on each", format!(" of {several} ranks or engines; all figures are those of one")),
    };
    let limit =
        settings.max_running.map_or_else(String::new, |limit| format!(", at most {limit} requests at once{each}"));
    let plural = if log.intervals.len() == 1 { "" } else { "s" };
    format!("{engine}, {algorithm}{limit}; {} report{plural}{ranks}\n", log.intervals.len())
}

fn row(load: &LoadFigures) -> String {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let percent = |share: f64| format!("{:.0}%", 100.0 * share);
    format!(
        "{:>7.0} {:>8} {:>10.0} {:>7} {:>9} {:>11} {:>8.0} {:>9}\n",
        load.running,
        load.reports,
        load.tokens_per_s,
        or_dash(load.accept_length.map(|length| format!("{length:.2}"))),
        or_dash(load.round_ms.map(|round| format!("{round:.2}"))),
        or_dash(load.other_share.map(percent)),
        load.waiting,
        or_dash(load.cache_used.map(percent))
    )
}

/// What the time was spent on, if the engine counts it.
fn spent(load: &LoadFigures) -> String {
    let Some(spent) = load.spent else { return String::new() };
    let percent = |share: f64| format!("{:.0}%", 100.0 * share);
    let parts = spent.parts_ms.map_or_else(String::new, |[draft, verify, extend]| {
        format!(
            "; a round drafts for {draft:.2} ms, verifies for {verify:.2} ms and extends the draft for {extend:.2} ms"
        )
    });
    format!(
        "\nat {:.0} running: {} of the time in rounds, {} in prefill, {} with neither{parts}\n",
        load.running,
        percent(spent.rounds),
        percent(spent.prefill),
        percent((1.0 - spent.rounds - spent.prefill).max(0.0))
    )
}

fn comparison(against: &Against) -> String {
    let ratio = against.round_ratio.map_or_else(
        || "too few reports without prompts to compare rounds".to_owned(),
        |ratio| format!("a round takes {ratio:.2} times one without speculation"),
    );
    format!(
        "\nat {:.0} running ({:.0} without speculation): {:.2}× as fast; accept length {:.2}, {ratio}\n",
        against.running[0], against.running[1], against.speed_up, against.accept_length
    )
}

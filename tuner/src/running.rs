//! Measures servers that are already running, as they are: one configuration each, under the loads
//! asked for. Nothing is varied and nothing is ranked. Two servers are measured in turns, with the
//! same prompts in each block, and compared by paired ratios.
//!
//! [`connect`] finds out what a server is, [`run`] measures, [`result`] summarises, and [`journal`]
//! keeps every trial.

mod describe;
pub mod journal;
mod place;
pub mod record;
pub mod result;
mod trial;

use std::{
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use external::{
    ServerError,
    address::{host_and_port, is_this_host, server_address},
    advice::explained,
    api::{Api, ServerInfo},
    http::ApiKey,
};

pub use self::describe::DescribedFile;
use self::{
    journal::RunningContents,
    record::{RunningHeader, RunningOutcome, RunningRecord, RunningServer, RunningSettings},
};
use crate::{
    TunerError,
    system::{
        SystemError,
        time_limit::{Over, TimeLimit},
    },
    trials::{
        configuration::TrialLoad,
        journal::{RUNNING, already_there, exists, lines::Lines},
    },
    workload::{
        ModelText,
        prompt_pool::{Draw, PromptPool},
    },
};

/// Maximum time without a byte of a response; a long prefill takes less.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);
/// Maximum time for a server to describe itself.
const LONGEST_DESCRIPTION: Duration = Duration::from_secs(20);
/// Maximum time that a server which does not answer is waited for after the end of the time.
const AFTER_LIMIT: Duration = Duration::from_secs(5);
/// Trials that may fail one after the other before the measurement ends.
const MOST_FAILURES: usize = 3;

/// A running server.
#[derive(Clone, Debug)]
pub struct Connected {
    api: Api,
    /// Its own description.
    pub info: ServerInfo,
    /// The same in the form that is kept and shown.
    pub server: RunningServer,
}

/// Inputs of a measurement.
#[derive(Debug)]
pub struct RunningMeasurement<'a> {
    /// The settings.
    pub requested: RunningSettings,
    /// Folder of the checkpoint whose tokenizer makes tokens of the prompts.
    pub model: PathBuf,
    /// Folder of the journal.
    pub out: PathBuf,
    /// Whether to continue an existing measurement.
    pub resume: bool,
    /// Set by another thread when the user requests a stop; finished trials are kept.
    pub interrupted: &'a AtomicBool,
}

/// Why a measurement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunningEnd {
    /// Everything was measured.
    Complete,
    /// The time was used up.
    TimeBudget,
    /// The user stopped it.
    Interrupted,
}

/// Reports progress.
pub trait RunningProgress {
    /// This many trials are planned, of which `done` are measured.
    fn planned(&mut self, trials: usize, done: usize);
    /// A trial starts.
    fn started(&mut self, server: &RunningServer, load: TrialLoad, repeat: usize);
    /// A trial is in the journal.
    fn finished(&mut self, server: &RunningServer, record: &RunningRecord);
    /// A message for the user.
    fn note(&mut self, text: &str);
}

/// Connects to a running server. A key is sent with every request.
///
/// # Errors
/// When the URL is wrong, nothing answers, the server is not ready, or the launch file has no
/// launch.
pub fn connect(url: &str, key: Option<ApiKey>, launch: Option<&DescribedFile<'_>>) -> Result<Connected, TunerError> {
    let base = server_address(url).map_err(TunerError::Configuration)?;
    let (api, info) = Api::recognise(&base, key.clone(), LONGEST_DESCRIPTION).map_err(|error| match error {
        // The file of the user's certificate authorities.
        ServerError::File { .. } => TunerError::Configuration(error.to_string()),
        error => TunerError::System(SystemError::Server(error)),
    })?;
    let failed = |error: ServerError| TunerError::System(SystemError::Server(explained(error, &base)));
    if !api.is_ready().map_err(failed)? {
        return Err(TunerError::System(SystemError::Unsupported(format!(
            "{base} answers but is not ready to serve: wait until it has loaded its model"
        ))));
    }
    let metrics = api.metrics().map_err(failed)?;
    let server = describe::describe(&api, &info, metrics.as_ref(), launch).map_err(TunerError::Configuration)?;
    let api = Api::new(api.kind(), &base, None, LONGEST_SILENCE).with_key(key);
    // The model's name is given, so that no request has to look it up.
    let api = match info.models.first() {
        Some(name) => api.with_model(name.clone()),
        None => api,
    };
    Ok(Connected { api, info, server })
}

/// Whether two URLs are names of one server: this host has several names, hosts are written in any
/// case, and a port may be left out.
pub fn is_same_server(one: &str, other: &str) -> bool {
    match (server_address(one), server_address(other)) {
        (Ok(one), Ok(other)) => place_of(&one) == place_of(&other),
        _ => false,
    }
}

/// Scheme, host, port and path of a server's address in one spelling.
fn place_of(base: &str) -> (&str, String, u16, &str) {
    let (scheme, rest) = base.split_once("://").unwrap_or_default();
    let (_, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = host_and_port(base);
    let host = if is_this_host(&host) { "this host".to_owned() } else { host };
    (scheme, host, port, path)
}

/// Measures servers; the records include those of an earlier start.
///
/// # Errors
/// When a load is above a server's limit, the prompts or the journal cannot be used, or a server
/// fails.
pub fn run(
    request: &RunningMeasurement<'_>,
    servers: &[Connected],
    progress: &mut dyn RunningProgress,
) -> Result<(RunningContents, RunningEnd), TunerError> {
    let requested = &request.requested;
    if !request.resume && exists(&request.out) {
        return Err(already_there(&request.out));
    }
    servers.iter().try_for_each(|one| check_limit(&one.server, &requested.loads))?;
    let continues = request.resume && exists(&request.out);
    let starts = if continues { journal::read(&request.out)?.header.starts + 1 } else { 0 };
    let prompts = prompts(request, servers, starts)?;
    notes(requested, &prompts, servers).iter().for_each(|note| progress.note(note));
    let header = RunningHeader {
        kind: RUNNING.to_owned(),
        format: record::FORMAT,
        requested: requested.clone(),
        servers: servers.iter().map(|one| one.server.clone()).collect(),
        starts: 0,
        prompts: prompts.available(),
        full_loops: true,
    };
    if continues {
        journal::check(&request.out, &header)?;
    }
    // What is refused leaves the servers as they are.
    if requested.flush {
        servers.iter().try_for_each(|one| trial::flush(&one.api)).map_err(SystemError::from)?;
    }
    let (lines, records) = if continues {
        let (lines, contents) = journal::resume(&request.out, &header)?;
        for line in &contents.damaged {
            progress.note(&format!("line {line} of the journal is damaged; its trial runs again"));
        }
        (lines, contents.records)
    } else {
        (journal::create(&request.out, &header)?, Vec::new())
    };
    let begun = OnceLock::new();
    let limit = TimeLimit::new(requested.seconds, request.interrupted, &begun).begin();
    let ended = limit.bound(|stop| {
        let (failures, start) = (0, starts);
        RunningBench { request, servers, prompts, start, lines, records, failures, limit, stop, progress }.measure()
    })?;
    Ok((journal::read(&request.out)?, ended))
}

/// Refuses batches that a server would not run together.
fn check_limit(server: &RunningServer, loads: &[TrialLoad]) -> Result<(), TunerError> {
    let largest = loads.iter().filter_map(|load| load.batch_size()).max();
    match (largest, server.limit) {
        (Some(batch), Some(limit)) if batch > limit => Err(TunerError::Configuration(format!(
            "a concurrency of {batch} is above the limit of {}, which runs at most {limit} requests together: lower the \
             concurrency to {limit}, or start the server with a higher limit (SGLang: --max-running-requests, vLLM: \
             --max-num-seqs)",
            server.url
        ))),
        _ => Ok(()),
    }
}

fn prompts(request: &RunningMeasurement<'_>, servers: &[Connected], starts: usize) -> Result<PromptPool, TunerError> {
    let reported = servers.iter().filter_map(|one| one.server.setting("context length")?.parse::<usize>().ok());
    let model = ModelText::open(&request.model, reported.min())?;
    let RunningSettings { workload, folder, loads, repeats, .. } = &request.requested;
    PromptPool::load(workload, Path::new(folder), model, loads, *repeats, starts)
}

/// What the user should know before the first trial.
fn notes(requested: &RunningSettings, prompts: &PromptPool, servers: &[Connected]) -> Vec<String> {
    let mut notes = Vec::new();
    if prompts.left_out > 0 {
        notes.push(format!("{} prompts are skipped (too long, or without a user message)", prompts.left_out));
    }
    if let Some(available) = prompts.available().filter(|available| *available < prompts.each_start()) {
        let instead = if requested.flush { "" } else { ", which the server may find in its prefix cache" };
        notes.push(format!(
            "the workload has {available} different prompts, but {} are needed for every repeat to send new ones: the rest \
             repeat earlier ones{instead}; trials with cold and with warm prompts are shown apart",
            prompts.each_start()
        ));
    }
    for Connected { server: RunningServer { url, models, .. }, .. } in servers {
        if let [measured, others @ ..] = models.as_slice()
            && !others.is_empty()
        {
            notes.push(format!("{url} serves {} models: the first one, {measured}, is measured", models.len()));
        }
    }
    if requested.workload.random.is_some() {
        notes.push("random prompts: accept lengths on them say nothing about text".into());
    }
    if let [first, second] = servers
        && first.server.models != second.server.models
    {
        let names = |one: &Connected| one.server.models.join(", ");
        notes.push(format!("the servers serve models of different names: {} and {}", names(first), names(second)));
    }
    notes
}

/// A measurement under way.
struct RunningBench<'a, 'b> {
    request: &'a RunningMeasurement<'a>,
    servers: &'a [Connected],
    prompts: PromptPool,
    /// Number of earlier starts.
    start: usize,
    lines: Lines,
    records: Vec<RunningRecord>,
    /// Trials that failed since the last one that did not.
    failures: usize,
    limit: TimeLimit<'a>,
    /// Set at its end, and when the user requests a stop.
    stop: &'b AtomicBool,
    progress: &'b mut dyn RunningProgress,
}

impl RunningBench<'_, '_> {
    /// All blocks that are not measured yet: every load in every repeat.
    fn measure(&mut self) -> Result<RunningEnd, TunerError> {
        let (repeats, loads) = (self.request.requested.repeats, self.request.requested.loads.clone());
        let blocks: Vec<(usize, usize)> =
            (0..repeats).flat_map(|repeat| (0..loads.len()).map(move |load| (repeat, load))).collect();
        let done = blocks.iter().filter(|(repeat, load)| self.is_done(*repeat, loads[*load])).count();
        let each = self.servers.len();
        self.progress.planned(blocks.len() * each, done * each);
        for (repeat, load) in blocks {
            if self.is_done(repeat, loads[load]) {
                continue;
            }
            if let Some(over) = self.limit.over() {
                return Ok(over.into());
            }
            let draw = self.prompts.draw(self.start, repeat, load)?;
            let mut order: Vec<usize> = (0..each).collect();
            // In turns, so that neither server is always the first one to meet a block.
            order.rotate_left((repeat + load) % each);
            for server in order {
                if self.is_stopped() || !self.trial(server, loads[load], repeat, &draw)? {
                    return Ok(self.limit.over().map_or(RunningEnd::Interrupted, RunningEnd::from));
                }
            }
        }
        // All is measured, whatever the time is.
        let interrupted = self.limit.over().filter(|over| *over == Over::Interrupted);
        Ok(interrupted.map_or(RunningEnd::Complete, RunningEnd::from))
    }

    /// Measures one server; returns false if it was stopped by the user or by the end of the time.
    fn trial(&mut self, at: usize, load: TrialLoad, repeat: usize, draw: &Draw) -> Result<bool, TunerError> {
        let Connected { api, server, .. } = &self.servers[at];
        self.progress.started(server, load, repeat);
        let options = trial::RunningOptions {
            warm_up_tokens: self.request.requested.workload.warm_up_tokens,
            flush: self.request.requested.flush,
            speculates: server.speculates,
            interrupted: self.stop,
        };
        // A server that does not answer is not waited for beyond the end.
        let silence = self.limit.left().map_or(LONGEST_SILENCE, |left| LONGEST_SILENCE.min(left + AFTER_LIMIT));
        let (outcome, failure) = match trial::run(&api.waiting(silence), draw, &options) {
            Ok(Some(figures)) => (RunningOutcome::Measured(Box::new(figures)), None),
            Ok(None) => return Ok(false),
            Err(_) if self.is_stopped() => return Ok(false),
            Err(error) => {
                let error = explained(error, &server.url);
                (RunningOutcome::Failed { reason: error.to_string() }, Some(error))
            }
        };
        let finished_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let record = RunningRecord { server: at, load, repeat, draw: self.start, finished_at, outcome };
        self.lines.append(&record)?;
        self.progress.finished(server, &record);
        self.records.push(record);
        self.failures = if failure.is_some() { self.failures + 1 } else { 0 };
        match failure {
            Some(error) if self.failures >= MOST_FAILURES => Err(TunerError::System(SystemError::Server(error))),
            _ => Ok(true),
        }
    }

    /// Whether all servers have a trial of a block that counts, with the same prompts.
    fn is_done(&self, repeat: usize, load: TrialLoad) -> bool {
        let of = |server: usize, draw: usize| {
            let is_it =
                |one: &&RunningRecord| (one.server, one.load, one.repeat, one.draw) == (server, load, repeat, draw);
            self.records.iter().filter(is_it).any(|one| one.exclusion().is_none())
        };
        (0..=self.start).any(|draw| (0..self.servers.len()).all(|server| of(server, draw)))
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl From<Over> for RunningEnd {
    fn from(over: Over) -> Self {
        match over {
            Over::Interrupted => Self::Interrupted,
            Over::Time => Self::TimeBudget,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_has_several_names() {
        for (one, other, is_same) in [
            ("http://localhost:30000", "http://127.0.0.1:30000/", true),
            ("http://LOCALHOST:30000/v1", "http://[::1]:30000", true),
            ("http://gpu-1", "http://GPU-1:80/", true),
            ("http://gpu-1:30000", "http://gpu-2:30000", false),
            ("http://localhost:30000", "http://localhost:30001", false),
            ("https://host/one", "https://host/two", false),
        ] {
            assert_eq!(is_same_server(one, other), is_same, "{one} {other}");
        }
    }

    #[test]
    fn a_load_above_the_limit_is_refused_with_both_numbers() {
        let server = RunningServer { url: "http://h:1".into(), limit: Some(48), ..RunningServer::default() };
        let reported =
            check_limit(&server, &[TrialLoad::BatchSize(1), TrialLoad::BatchSize(64)]).expect_err("above").to_string();
        assert!(reported.contains("64") && reported.contains("48") && reported.contains("http://h:1"), "{reported}");
        assert!(check_limit(&server, &[TrialLoad::BatchSize(48)]).is_ok());
        assert!(check_limit(&RunningServer { limit: None, ..server }, &[TrialLoad::BatchSize(4096)]).is_ok());
    }
}

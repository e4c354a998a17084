//! A server of another engine: every change of configuration needs a start.
//!
//! One server runs at a time. It is started for the first trial of a configuration, serves all its
//! trials, and is stopped before the next one starts; that start waits until its processes have
//! ended and the GPU's memory is free again.

mod adaptive;
mod container;
mod files;
pub(crate) mod flush;
pub(crate) mod fresh;
mod gpu_memory;
mod host;
mod kept_texts;
mod launch;
mod observed;
mod resolved;
mod room;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use engine::Request;
use external::{
    ServerError,
    api::{Api, ApiKind, Generate, ServerInfo},
    failure::{Remedy, ServerFailure},
    load::{self, LoadArrivals, Observed},
    mark::ProcessMark,
    orphans::{OrphanHandle, ServerFile},
    port::Ports,
    process::Server,
    ready::{failure_while_serving, wait_until_ready},
    supervisor::{Supervisor, SupervisorProgram},
};
use schemas::sweep::{SystemKind, SystemSettings};

pub use self::container::refusal;
pub use self::files::{FileLookup, IN_FOLDER, LookupState, look_up};
pub use self::host::Host;
pub use self::launch::{LaunchPlan, words};
pub(crate) use self::observed::{all_rounds, further_tokens, generate};
pub(crate) use self::resolved::most_running;
use self::{
    fresh::{FreshBlock, FreshPrompts},
    gpu_memory::ServerGpuMemory,
    observed::Rounds,
};
use super::{SwitchCost, System, SystemError};
use crate::{
    TunerError,
    files::atomic_file,
    host::machine::Watch,
    runner::{self, RequestSource, TrialEnd, TrialOptions, measurement},
    system::stop_command,
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{Measurement, PartsApart, Trial},
    },
    workload::prompt_pool::other_prompt,
};

/// The subfolder of a sweep's folder with one server log per start.
pub const LOGS: &str = "servers";
/// Time that a server has to finish its work after a request to stop.
const GRACE: Duration = Duration::from_secs(15);
/// Maximum time without a response while the server has requests; a long prefill takes less.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);
/// Maximum number of whole requests in a warm-up, unless a larger batch runs together.
const MOST_WARM_UP: usize = 256;
/// A warm-up is repeated if it took less than this share of the time of the one before it.
const STILL_FASTER: f64 = 0.9;
/// No further warm-up is begun after this time: what is compiled once is little of so long a trial.
const LONGEST_WARM_UP: Duration = Duration::from_secs(30);
/// Largest log in which secret values are hidden, in bytes.
const LARGEST_LOG: u64 = 256 << 20;
/// Time for running requests to be given up after an interrupt. Then their server, which may have
/// stopped responding, is killed.
const LONGEST_GIVING_UP: Duration = Duration::from_secs(2);

/// Ends the servers that a killed run left in a sweep's folder. Returns the number of processes.
///
/// # Errors
/// When one does not end.
pub fn end_left(out: &Path) -> Result<usize, TunerError> {
    ServerFile::in_folder(&out.join(LOGS)).end_left().map_err(failed)
}

/// Servers of one engine, one after the other.
pub struct Servers<'a> {
    plan: LaunchPlan,
    settings: SystemSettings,
    /// Folder for the logs and the server file.
    out: PathBuf,
    ports: Ports,
    file: ServerFile,
    /// Ends the servers if this process is killed.
    supervisor: Option<Supervisor>,
    running: Option<StartedServer>,
    /// Number of starts so far.
    starts: usize,
    gpus: Vec<usize>,
    gpu: ServerGpuMemory,
    /// Configurations that did not start. They are not started again in this run: the result would
    /// be the same.
    refused: Vec<(Configuration, ServerRefusal)>,
    notes: Vec<String>,
    /// Durations of starts in seconds, failed ones included, that were not reported yet.
    start_seconds: Vec<f64>,
    /// Names of settings for which a difference from the linter was already reported.
    reported: BTreeSet<&'static str>,
    /// Prompts for each repeat, if the servers cannot forget what they were sent.
    fresh: Option<FreshPrompts>,
    interrupted: &'a AtomicBool,
}

/// A client of a server.
struct StartedServer {
    /// `None` for a server that was already running.
    server: Option<Server>,
    api: Api,
    configuration: Configuration,
    info: ServerInfo,
    /// Its command line; empty for a server that was already running.
    command: String,
    /// Loads that it has already run: kernels compiled at first use are then compiled.
    warm: Vec<TrialLoad>,
    /// What it was sent of [`FreshPrompts`].
    sent: Vec<FreshBlock>,
}

/// Why a configuration does not run.
#[derive(Clone, Debug)]
enum ServerRefusal {
    /// The server failed.
    Failed(ServerFailure),
    /// It ran something else.
    Unsupported(String),
}

/// The chain of a table that must be drafted with this many requests.
#[derive(Clone, Copy)]
struct Chain {
    steps: usize,
    batch: usize,
}

impl<'a> Servers<'a> {
    /// Servers for a sweep. Servers that a killed run left in the same folder are ended first.
    ///
    /// # Errors
    /// When the folder cannot be used, or a remaining server does not end.
    pub fn new(
        plan: LaunchPlan,
        settings: &SystemSettings,
        out: PathBuf,
        supervisor: Option<&SupervisorProgram>,
        interrupted: &'a AtomicBool,
    ) -> Result<Self, TunerError> {
        let logs = out.join(LOGS);
        fs::create_dir_all(&logs).map_err(|source| TunerError::Write { path: logs.clone(), source })?;
        let file = ServerFile::in_folder(&logs);
        let mut notes = Vec::new();
        match file.end_left().map_err(failed)? {
            0 => {}
            left => notes.push(format!("{left} server processes left by an earlier run were stopped")),
        }
        let is_log = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "log");
        let starts = fs::read_dir(&logs).into_iter().flatten().flatten().filter(is_log).count();
        let gpus: Vec<usize> = Host::this().used_by(settings).gpus.iter().map(|gpu| gpu.number).collect();
        Ok(Self {
            plan,
            settings: settings.clone(),
            out: logs,
            ports: Ports::default(),
            file,
            supervisor: supervisor.map(Supervisor::start).transpose().map_err(failed)?,
            running: None,
            starts,
            gpu: ServerGpuMemory::now(gpus.iter().copied()),
            gpus,
            refused: Vec::new(),
            notes,
            start_seconds: Vec::new(),
            reported: BTreeSet::new(),
            fresh: None,
            interrupted,
        })
    }

    /// The running server's own description; starts a server for the configuration if none runs.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn info(&mut self, configuration: &Configuration) -> Result<ServerInfo, SystemError> {
        if self.running.is_none() {
            self.configure(configuration)?;
        }
        let info = self.running.as_ref().map(|running| running.info.clone()).unwrap_or_default();
        self.plan.learn(&info);
        Ok(info)
    }

    /// Sends other prompts in each repeat from now on.
    pub fn send_fresh(&mut self, prompts: FreshPrompts) {
        self.fresh = Some(prompts);
    }

    /// Whether the running server flushes its prefix cache, if it has one.
    ///
    /// # Errors
    /// When it does not respond.
    pub fn flushes(&self) -> Result<bool, SystemError> {
        let Some(running) = self.running.as_ref().filter(|_| self.settings.keep_prefix_cache) else { return Ok(true) };
        Ok(flush::succeeds(&mut || running.api.flush_cache(), flush::LONGEST, self.interrupted)?)
    }

    fn kind(&self) -> ApiKind {
        match self.settings.kind {
            SystemKind::Vllm => ApiKind::Vllm,
            SystemKind::Spectune | SystemKind::Sglang => ApiKind::Sglang,
        }
    }

    /// Starts a server, and tries once more if the failure may be accidental.
    fn start(&mut self, configuration: &Configuration) -> Result<StartedServer, SystemError> {
        let first = self.start_once(configuration);
        match first {
            Err(SystemError::Server(ServerError::Failed(failure))) if failure.class.remedy() == Remedy::OnceMore => {
                self.notes.push(format!("{configuration}: {failure}; started once more"));
                self.start_once(configuration)
            }
            Err(SystemError::Server(ServerError::Failed(failure))) if self.plan.take_older_flag(&failure) => {
                self.notes.push(format!("{configuration}: {failure}; started with the older name of the flag"));
                self.start_once(configuration)
            }
            other => other,
        }
    }

    /// Remembers why a configuration does not run, unless the cause is not the configuration.
    fn refuse(&mut self, configuration: &Configuration, error: SystemError) -> SystemError {
        let refusal = match &error {
            SystemError::Server(ServerError::Failed(failure)) if failure.class.is_elsewhere() => None,
            SystemError::Server(ServerError::Failed(failure)) => Some(ServerRefusal::Failed(failure.clone())),
            SystemError::Unsupported(words) => Some(ServerRefusal::Unsupported(words.clone())),
            SystemError::Server(_) | SystemError::Engine(_) => None,
        };
        self.refused.extend(refusal.map(|refusal| (configuration.clone(), refusal)));
        error
    }

    fn start_once(&mut self, configuration: &Configuration) -> Result<StartedServer, SystemError> {
        // Drivers free memory some time after a process ends; a server started before that sizes
        // its cache by what is left.
        if let Some(evidence) = self.gpu.wait_until_back(self.interrupted) {
            return Err(room::not_free(evidence));
        }
        let port = self.ports.fresh().map_err(|source| ServerError::File { path: self.out.clone(), source })?;
        self.starts += 1;
        let log = self.out.join(format!("{:03}.log", self.starts));
        let mark = ProcessMark::new();
        let name = format!("spectune-{}", mark.as_str());
        let launch = self.plan.launch(&self.settings, configuration, &name, port, log)?;
        if let Some(text) = adaptive::file(configuration) {
            let path = launch::table_file(&launch.log);
            fs::write(&path, text).map_err(|source| ServerError::File { path, source })?;
        }
        if let Some(refusal) = room::refusal(&self.plan.for_draft(configuration), &self.settings, &self.gpus) {
            return Err(refusal);
        }
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(ServerError::Interrupted.into());
        }
        // Recorded before the start, so that the supervisor or a later run can always clean up.
        let handle = OrphanHandle { mark: mark.clone(), container: launch.container.clone() };
        self.file.add(&handle)?;
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.add(&handle)?;
        }
        let mut server = Server::start(&launch, mark)?;
        let address = self.settings.address.clone().unwrap_or_else(|| format!("http://127.0.0.1:{port}"));
        let api = Api::new(self.kind(), &address, Some(name), LONGEST_SILENCE);
        let longest = Duration::from_secs_f64(self.settings.start_timeout_s);
        let ready = wait_until_ready(&mut server, &api, longest, self.interrupted);
        let info = ready.and_then(|_| api.info());
        match info {
            Ok(info) => {
                let (server, configuration) = (Some(server), configuration.clone());
                Ok(StartedServer {
                    server,
                    api,
                    configuration,
                    info,
                    command: words(&launch),
                    warm: Vec::new(),
                    sent: Vec::new(),
                })
            }
            Err(error) => {
                self.end(server)?;
                Err(error.into())
            }
        }
    }

    /// Stops a server, says so if the user's stop command failed, and waits until its processes are
    /// gone.
    fn end(&mut self, server: Server) -> Result<(), SystemError> {
        let mark = server.mark().clone();
        server.stop(GRACE)?;
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.take(&mark);
        }
        // Only now, since the server has closed its log.
        self.hide_secrets();
        if stop_command::is_in(&self.settings.command) {
            let log = atomic_file::read(&self.out.join(format!("{:03}.log", self.starts)), LARGEST_LOG);
            self.notes.extend(log.ok().and_then(|log| stop_command::failure(&log, GRACE)));
        }
        Ok(self.file.clear()?)
    }

    /// Hides secret values in the log of the last start, which the server wrote.
    fn hide_secrets(&self) {
        let secrets = self.settings.secrets();
        if secrets.is_empty() {
            return;
        }
        let name = format!("{:03}.log", self.starts);
        let Ok(text) = atomic_file::read(&self.out.join(&name), LARGEST_LOG) else { return };
        let hidden = secrets.hide(&text);
        // A log that cannot be written again is no reason to lose the trial.
        if hidden != text
            && let Err(error) = atomic_file::write(&self.out, &name, hidden.as_bytes())
        {
            tracing::warn!("{name} still contains secret values of the server's command: {error}");
        }
    }

    /// Serves the requests of a trial; `None` if the user requests a stop. If a certain chain must
    /// be drafted, the server is polled meanwhile to check that.
    fn serve(
        &self,
        running: &StartedServer,
        requests: &[Request],
        arrivals: &LoadArrivals,
        chain: Option<Chain>,
    ) -> Result<Option<Observed>, SystemError> {
        let generates: Vec<Generate<'_>> = requests.iter().map(observed::generate).collect();
        let run = || load::run(&running.api, &generates, arrivals, self.interrupted);
        let ended = AtomicBool::new(false);
        let (observed, drafted) = thread::scope(|scope| {
            let ended = &ended;
            let ask = |chain: Chain| move || adaptive::steps_while(&running.api, chain.steps, chain.batch, ended);
            let asking = chain.map(|chain| scope.spawn(ask(chain)));
            let server = running.server.as_ref();
            let watching = server.map(|server| scope.spawn(|| abort_if_silent(server, self.interrupted, ended)));
            let observed = run();
            ended.store(true, Ordering::Relaxed);
            // Otherwise every trial would last until the watcher wakes up by itself.
            watching.iter().for_each(|watching| watching.thread().unpark());
            (observed, asking.map(|asking| asking.join().unwrap_or_default()).unwrap_or_default())
        });
        match (observed, chain) {
            (Ok(observed), Some(chain)) => {
                adaptive::check_steps(&drafted, chain.steps, chain.batch)?;
                Ok(Some(observed))
            }
            (Ok(observed), None) => Ok(Some(observed)),
            (Err(ServerError::Interrupted), _) => Ok(None),
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Runs requests that are not measured. Before the first trial of a load: whole requests, twice
    /// the batch, again and again until the server gets no faster, since engines compile kernels
    /// when they first meet a size. Before further trials: short ones. Returns false if
    /// interrupted.
    fn warm_up(
        &self,
        running: &StartedServer,
        trial: &Trial,
        terms: &TrialOptions<'_>,
        requests: &[Request],
        chain: Option<Chain>,
    ) -> Result<bool, SystemError> {
        let tokens = terms.workload.warm_up_tokens;
        if tokens == 0 {
            return Ok(true);
        }
        let batch = trial.load.batch_size().unwrap_or(requests.len());
        // A server that cannot forget must not see the measured prompts before.
        let others: Vec<Request>;
        let requests = match &self.fresh {
            Some(_) => {
                others = requests.iter().map(|request| other_prompt(request, usize::MAX)).collect();
                others.as_slice()
            }
            None => requests,
        };
        let is_warm = running.warm.contains(&trial.load);
        let warm_up: Vec<Request> = if is_warm {
            requests.iter().take(batch).map(|request| runner::shortened(request, tokens)).collect()
        } else {
            // The first time under a load, whole requests: engines compile and tune for batch sizes
            // that short ones do not reach.
            requests.iter().cycle().take((2 * batch).min(MOST_WARM_UP.max(batch))).cloned().collect()
        };
        let began = Instant::now();
        let mut fastest = None;
        loop {
            let Some(observed) = self.serve(running, &warm_up, &LoadArrivals::Closed(batch), chain)? else {
                return Ok(false);
            };
            self.flush(running)?;
            let still_faster = fastest.is_none_or(|fastest| observed.elapsed.as_secs_f64() < fastest * STILL_FASTER);
            if is_warm || !still_faster || began.elapsed() > LONGEST_WARM_UP {
                return Ok(true);
            }
            fastest = Some(observed.elapsed.as_secs_f64());
        }
    }

    /// The chain of a table that must be drafted under a trial's load, if this has not been checked
    /// yet.
    fn chain(&self, running: &StartedServer, trial: &Trial) -> Option<Chain> {
        let batch = trial.load.batch_size()?;
        let is_open = !trial.configuration.table.is_empty() && !running.warm.contains(&trial.load);
        is_open.then(|| Chain { steps: trial.configuration.shape_at(batch).num_steps, batch })
    }

    /// Flushes the prefix cache, and waits if the server still finishes a request.
    ///
    /// # Errors
    /// When it does not flush, and would find what it was sent before.
    fn flush(&self, running: &StartedServer) -> Result<(), SystemError> {
        // A server that we started without a prefix cache has nothing to flush, unless it keeps
        // texts; prompts that were not sent before are not in it either.
        let has_cache = running.server.is_none() || self.settings.keep_prefix_cache;
        let keeps = kept_texts::need_a_flush(&self.plan, &running.configuration);
        let must = self.fresh.is_none() && (has_cache || keeps);
        flush::before_a_trial(must, &mut || running.api.flush_cache(), flush::LONGEST, self.interrupted)
    }

    /// The requests of a trial and their arrivals.
    fn requested(
        &self,
        running: &StartedServer,
        trial: &Trial,
        terms: &TrialOptions<'_>,
    ) -> Result<(Vec<Request>, LoadArrivals), SystemError> {
        if let Some(fresh) = &self.fresh {
            return fresh.requests(trial, &running.sent);
        }
        let (requests, source) = runner::requested(terms.workload, trial)?;
        Ok(match source {
            RequestSource::Closed(batch_size) => (requests, LoadArrivals::Closed(batch_size)),
            RequestSource::Open(times) => (requests, LoadArrivals::Open(times)),
        })
    }
}

impl System for Servers<'_> {
    fn supports(&self, configuration: &Configuration) -> Result<(), SystemError> {
        self.plan.supports(configuration)
    }

    fn configure(&mut self, configuration: &Configuration) -> Result<(), SystemError> {
        if self.running.as_ref().is_some_and(|running| running.configuration == *configuration) {
            return Ok(());
        }
        self.stop()?;
        // A start takes minutes, and what the engine refuses it refuses again.
        if let Some((_, refusal)) = self.refused.iter().find(|(refused, _)| refused == configuration) {
            return Err(refusal.clone().into());
        }
        self.plan.supports(configuration)?;
        let begin = Instant::now();
        let started = self.start(configuration);
        self.start_seconds.push(begin.elapsed().as_secs_f64());
        let running = started.map_err(|error| self.refuse(configuration, error))?;
        let log = running.server.as_ref().map(Server::log).unwrap_or_default();
        let differences = adaptive::check_started(configuration, &running.info, &log)
            .and_then(|()| resolved::differences(&running.info, &self.plan.for_draft(configuration), configuration));
        let running = self.running.insert(running);
        match differences {
            Ok(notes) => {
                self.notes.extend(notes);
                if self.settings.kind == SystemKind::Sglang {
                    let otherwise = {
                        let plan = self.plan.for_draft(configuration);
                        resolved::beyond_the_linter(&running.command, &running.info, &plan, &mut self.reported)
                    };
                    self.notes.extend(otherwise);
                }
                Ok(())
            }
            Err(words) => {
                // It runs, but not what was requested, so it is stopped and its trials are not
                // measured.
                running.configuration = configuration.clone();
                self.stop()?;
                Err(self.refuse(configuration, SystemError::Unsupported(words)))
            }
        }
    }

    fn run(&mut self, trial: &Trial, terms: &TrialOptions<'_>) -> Result<TrialEnd, SystemError> {
        let Some(running) = &self.running else {
            return Err(SystemError::Unsupported("no server is running".into()));
        };
        let block = self.fresh.as_ref().map(|fresh| fresh.block(trial));
        let (requests, arrivals) = self.requested(running, trial, terms)?;
        resolved::check_room(&running.info, trial.load)?;
        // Otherwise some configurations would find earlier prompts in the cache and others would
        // not.
        self.flush(running)?;
        // Checked once per load: the rows of a table do not change.
        let chain = self.chain(running, trial);
        let warms = terms.workload.warm_up_tokens > 0;
        if !self.warm_up(running, trial, terms, &requests, chain)? {
            return Ok(TrialEnd::Interrupted);
        }
        let before = running.api.counters()?;
        // The log before the trial has rounds of the warm-up.
        let log_before = running.server.as_ref().map(Server::log_length);
        let watch = Watch::begin(None);
        let chain = chain.filter(|_| !warms);
        if let Some((running, block)) = self.running.as_mut().zip(block) {
            running.sent.push(block);
        }
        let Some(running) = &self.running else { return Ok(TrialEnd::Interrupted) };
        let Some(observed) = self.serve(running, &requests, &arrivals, chain)? else {
            return Ok(TrialEnd::Interrupted);
        };
        let after = running.api.counters()?;
        let further = observed::further_tokens(&observed);
        let unreported = Rounds::from_configuration(&trial.configuration, (&before, &after), further);
        let cached_share = observed::cached_share(&requests, &observed, &before, &after);
        let seen = observed::seen(&requests, observed, &arrivals, unreported)?;
        if self.settings.kind == SystemKind::Vllm {
            observed::check_possible(&trial.configuration, &seen)?;
        }
        if let (Some(before), Some(after)) = (before.retracted, after.retracted)
            && after > before
        {
            return Err(SystemError::Unsupported(format!(
                "{} requests were retracted because the KV cache was full, so the running batch was smaller than requested; \
                 lower the batch, or give the server more memory",
                after - before
            )));
        }
        if let (Some(server), Some(from)) = (&running.server, log_before) {
            observed::check_graphs(&server.log_from(from), trial.load)?;
        }
        if let Some(batch) = trial.load.batch_size() {
            let (proposed, rounds) = observed::drafted(&seen);
            adaptive::check_drafted(&trial.configuration, batch, proposed, rounds)?;
        }
        let made_up = self.plan.made_up(&trial.configuration)?;
        let simulated = made_up.is_some() || self.settings.simulates_acceptance();
        let figures = measurement::from_observations(&seen, &terms.objective, simulated)?;
        let figures = figures.of(&trial.configuration);
        if let Some(length) = made_up {
            observed::check_made_up(f64::from(length), figures.accept_length)?;
        }
        // A client does not see the engine's steps, so figures that need them are missing.
        let (rounds_s, prefills_s, stalls, steady) = (None, None, None, None);
        let machine = Some(watch.end(None));
        let explained = if self.settings.keep_prefix_cache { observed::common_share(&requests) } else { 0.0 };
        self.notes.extend(observed::cached_words(trial, cached_share, explained));
        if let Some(running) = &mut self.running {
            running.warm.push(trial.load);
        }
        Ok(TrialEnd::Measured(Box::new(Measurement {
            rounds_s,
            prefills_s,
            stalls,
            steady,
            machine,
            cached_share,
            ..figures
        })))
    }

    fn time_parts(&mut self, _trial: &Trial, _figures: &Measurement) -> Result<Option<PartsApart>, SystemError> {
        Ok(None)
    }

    /// Stops a failed server: the next trial starts a new one.
    fn recover(&mut self, error: &SystemError) -> Result<(), SystemError> {
        if !error.needs_restart() {
            return Ok(());
        }
        self.stop()
    }

    fn explain(&mut self, error: SystemError) -> SystemError {
        let SystemError::Server(request @ ServerError::Request { .. }) = error else { return error };
        match self.running.as_mut().and_then(|running| running.server.as_mut()) {
            Some(server) => ServerError::Failed(failure_while_serving(server, &request)).into(),
            None => request.into(),
        }
    }

    fn switch_cost(&self, from: &Configuration, to: &Configuration) -> SwitchCost {
        if from == to { SwitchCost::None } else { SwitchCost::Restart }
    }

    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn start_seconds(&mut self) -> Vec<f64> {
        std::mem::take(&mut self.start_seconds)
    }

    fn stop(&mut self) -> Result<(), SystemError> {
        match self.running.take().and_then(|running| running.server) {
            Some(server) => self.end(server),
            None => Ok(()),
        }
    }
}

impl From<ServerRefusal> for SystemError {
    fn from(refusal: ServerRefusal) -> Self {
        match refusal {
            ServerRefusal::Failed(failure) => Self::Server(ServerError::Failed(failure)),
            ServerRefusal::Unsupported(words) => Self::Unsupported(words),
        }
    }
}

/// Kills a server if its load does not end after an interrupt: requests to a server that does not
/// respond wait for long.
fn abort_if_silent(server: &Server, interrupted: &AtomicBool, ended: &AtomicBool) {
    let mut since = None;
    while !ended.load(Ordering::Relaxed) {
        if interrupted.load(Ordering::Relaxed) && since.get_or_insert_with(Instant::now).elapsed() >= LONGEST_GIVING_UP
        {
            return server.abort();
        }
        thread::park_timeout(Duration::from_millis(100));
    }
}

/// The failure of a server in an error, for the record of its trial.
pub fn failure_of(error: &SystemError) -> Option<&ServerFailure> {
    match error {
        SystemError::Server(ServerError::Failed(failure)) => Some(failure),
        _ => None,
    }
}

fn failed(error: ServerError) -> TunerError {
    TunerError::Configuration(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use external::failure::FailureClass;
    use schemas::{sweep::SweepFile, text::Source};

    use super::*;

    /// MiB in use on the only GPU.
    static IN_USE: AtomicU64 = AtomicU64::new(10);

    #[test]
    fn a_start_without_memory_is_tried_again_and_a_rejected_one_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "[system]\nkind = 'sglang'\ncommand = ['sh', '-c', 'echo \"error: argument --x\" >&2; exit 2']\n\
                    [models]\ntarget = 't'\ndraft = 'd'\nalgorithm = 'EAGLE3'\n[workload]\nrandom = { input_length = 8 }\n\
                    [space]\nnum_steps = [1]\ntopk = [1]\n";
        let file = SweepFile::read_all(&Source::new("sweep.toml", text)).expect("a sweep file");
        let interrupted = AtomicBool::new(false);
        let plan = LaunchPlan::from_file(&file, folder.path(), 8);
        let mut servers =
            Servers::new(plan, &file.system, folder.path().to_owned(), None, &interrupted).expect("servers");
        let query = |_: &str| Some(IN_USE.load(Ordering::Relaxed).to_string());
        servers.gpu = ServerGpuMemory::from_gpus([0], query, Duration::ZERO);
        let configuration = Configuration::from_shape("1,1,2".parse().expect("a shape"));
        let mut class = || {
            let error = servers.configure(&configuration).expect_err("it does not start");
            (failure_of(&error).map(|failure| failure.class), servers.starts)
        };
        IN_USE.store(5000, Ordering::Relaxed);
        assert_eq!(class(), (Some(FailureClass::GpuNotFree), 0));
        IN_USE.store(10, Ordering::Relaxed);
        assert_eq!(class(), (Some(FailureClass::Configuration), 1));
        assert_eq!(class(), (Some(FailureClass::Configuration), 1), "it is not started again");
    }
}

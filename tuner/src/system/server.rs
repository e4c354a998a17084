//! A server of another engine: every change of configuration is a start.
//!
//! One server runs at a time. It is started for the first trial of a configuration, serves all its trials, and is
//! stopped before the next one starts, when its processes have ended and the GPU's memory is free again.

mod adaptive;
mod gpu_memory;
mod host;
mod launch;
mod observed;
mod resolved;

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
    api::{Api, Generate, Kind, ServerInfo},
    failure::{Failure, Remedy},
    load::{self, Arrivals, Observed},
    orphans::ServerFile,
    port::Ports,
    process::{Mark, Server},
    ready::{failure_while_serving, wait_until_ready},
};
use schemas::sweep::{SystemKind, SystemSettings};

pub use self::host::Host;
pub use self::launch::{LaunchPlan, words};
use self::{gpu_memory::GpuMemory, observed::Rounds};
use super::{SwitchCost, System, SystemError};
use crate::{
    TunerError,
    configuration::{Configuration, Load},
    machine::Watch,
    record::{Measurement, PartsApart, Trial},
    runner::{self, Ended, Source, TrialOptions, measurement},
};

/// The folder, in that of a sweep, with the logs of its servers: one for each start.
pub const LOGS: &str = "servers";
/// How long a server may take to finish its work after a request to stop.
const GRACE: Duration = Duration::from_secs(15);
/// How long a server may be silent while it has requests: a long prompt is read in less.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);
/// Whole requests of a warm-up, at most, unless more run together.
const MOST_WARM_UP: usize = 256;
/// How long a server may take to register that its last request has ended.
const LONGEST_FLUSH: Duration = Duration::from_secs(10);

/// Ends the servers that a killed run of a sweep's folder has left. Returns how many processes there were.
///
/// # Errors
/// When one does not end.
pub fn end_left(out: &Path) -> Result<usize, TunerError> {
    ServerFile::of(&out.join(LOGS)).end_left().map_err(failed)
}

/// Servers of one engine, one after the other.
pub struct Servers<'a> {
    plan: LaunchPlan,
    settings: SystemSettings,
    /// Where logs and the file of servers go.
    out: PathBuf,
    ports: Ports,
    file: ServerFile,
    running: Option<Running>,
    /// Starts so far.
    starts: usize,
    gpu: GpuMemory,
    notes: Vec<String>,
    /// Values of which it was said that the linter resolves them otherwise.
    told: BTreeSet<&'static str>,
    interrupted: &'a AtomicBool,
}

/// A client of a server.
struct Running {
    /// `None` for one that was there before.
    server: Option<Server>,
    api: Api,
    configuration: Configuration,
    info: ServerInfo,
    /// Its command line; empty for one that was there before.
    command: String,
    /// Loads that it has run: kernels that are compiled at their first use are compiled then.
    warm: Vec<Load>,
}

/// The chain of a table that should run with this many requests.
#[derive(Clone, Copy)]
struct Chain {
    steps: usize,
    batch: usize,
}

impl<'a> Servers<'a> {
    /// Servers for a sweep. Those that a killed run of the same folder has left are ended first.
    ///
    /// # Errors
    /// When the folder cannot be used, or a server that was left does not end.
    pub fn new(
        plan: LaunchPlan,
        settings: &SystemSettings,
        out: PathBuf,
        interrupted: &'a AtomicBool,
    ) -> Result<Self, TunerError> {
        let logs = out.join(LOGS);
        fs::create_dir_all(&logs).map_err(|source| TunerError::Write { path: logs.clone(), source })?;
        let file = ServerFile::of(&logs);
        let mut notes = Vec::new();
        match file.end_left().map_err(failed)? {
            0 => {}
            left => notes.push(format!("{left} server processes left by an earlier run were ended")),
        }
        let is_log = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "log");
        let starts = fs::read_dir(&logs).into_iter().flatten().flatten().filter(is_log).count();
        Ok(Self {
            plan,
            settings: settings.clone(),
            out: logs,
            ports: Ports::default(),
            file,
            running: None,
            starts,
            gpu: GpuMemory::now(Host::this().used_by(settings).gpus.iter().map(|gpu| gpu.number)),
            notes,
            told: BTreeSet::new(),
            interrupted,
        })
    }

    /// What the running server says of itself; starts one for a configuration if none runs.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn info(&mut self, configuration: &Configuration) -> Result<ServerInfo, SystemError> {
        if self.running.is_none() {
            self.configure(configuration)?;
        }
        let info = self.running.as_ref().map(|running| running.info.clone()).unwrap_or_default();
        self.plan.learn(&info);
        if self.settings.url.is_some() {
            self.plan.tables = Err("a server at a URL is measured as it is".into());
        }
        Ok(info)
    }

    fn kind(&self) -> Kind {
        match self.settings.kind {
            SystemKind::Vllm => Kind::Vllm,
            SystemKind::Spectune | SystemKind::Sglang => Kind::Sglang,
        }
    }

    /// A running server, given by its URL.
    fn attach(&self, url: &str, configuration: &Configuration) -> Result<Running, SystemError> {
        let api = Api::new(self.kind(), url, None, LONGEST_SILENCE);
        if !api.is_ready()? {
            return Err(SystemError::Unsupported(format!("{url} is not ready to serve")));
        }
        let info = api.info()?;
        Ok(Running {
            server: None,
            api,
            configuration: configuration.clone(),
            info,
            command: String::new(),
            warm: Vec::new(),
        })
    }

    /// Starts a server, and once more where its failure may have been chance.
    fn start(&mut self, configuration: &Configuration) -> Result<Running, SystemError> {
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

    fn start_once(&mut self, configuration: &Configuration) -> Result<Running, SystemError> {
        let port = self.ports.fresh().map_err(|source| ServerError::File { path: self.out.clone(), source })?;
        self.starts += 1;
        let log = self.out.join(format!("{:03}.log", self.starts));
        let mark = Mark::new();
        let name = format!("spectune-{}", mark.as_str());
        let launch = self.plan.launch(&self.settings, configuration, &name, port, log)?;
        if let Some(text) = adaptive::file(configuration) {
            let path = launch::table_file(&launch.log);
            fs::write(&path, text).map_err(|source| ServerError::File { path, source })?;
        }
        // Before the start, so that a later run can clean up whatever happens to this one.
        self.file.add(&mark)?;
        let mut server = Server::start(&launch, mark)?;
        let api = Api::new(self.kind(), &format!("http://127.0.0.1:{port}"), Some(name), LONGEST_SILENCE);
        let longest = Duration::from_secs_f64(self.settings.start_timeout_s);
        let ready = wait_until_ready(&mut server, &api, longest, self.interrupted);
        let info = ready.and_then(|_| api.info());
        match info {
            Ok(info) => {
                let (server, configuration) = (Some(server), configuration.clone());
                Ok(Running { server, api, configuration, info, command: words(&launch), warm: Vec::new() })
            }
            Err(error) => {
                self.end(server)?;
                Err(error.into())
            }
        }
    }

    /// Stops a server and waits until nothing is left of it.
    fn end(&mut self, server: Server) -> Result<(), SystemError> {
        server.stop(GRACE)?;
        self.file.clear()?;
        if let Some(words) = self.gpu.wait_until_back() {
            return Err(SystemError::Unsupported(words));
        }
        Ok(())
    }

    /// Serves the requests of a trial; `None` where the user wants to stop. With a chain that is to be drafted, the server is asked
    /// meanwhile whether it does.
    fn serve(
        &self,
        running: &Running,
        requests: &[Request],
        arrivals: &Arrivals,
        chain: Option<Chain>,
    ) -> Result<Option<Observed>, SystemError> {
        let generates: Vec<Generate<'_>> = requests.iter().map(observed::generate).collect();
        let run = || load::run(&running.api, &generates, arrivals, self.interrupted);
        let (observed, drafted) = match chain {
            None => (run(), adaptive::Drafted::default()),
            Some(chain) => {
                let ended = AtomicBool::new(false);
                thread::scope(|scope| {
                    let asking = scope.spawn(|| adaptive::steps_while(&running.api, chain.steps, chain.batch, &ended));
                    let observed = run();
                    ended.store(true, Ordering::Relaxed);
                    (observed, asking.join().unwrap_or_default())
                })
            }
        };
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

    /// Runs requests that are not measured: whole ones, two for each that runs together, before the first trial of a load, so that
    /// every kernel of it has run at its sizes; short ones before further trials. Whether it came to its end.
    fn warm_up(
        &self,
        running: &Running,
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
        let warm_up: Vec<Request> = if running.warm.contains(&trial.load) {
            requests.iter().take(batch).map(|request| runner::shortened(request, tokens)).collect()
        } else {
            requests.iter().cycle().take((2 * batch).min(MOST_WARM_UP.max(batch))).cloned().collect()
        };
        let ended = self.serve(running, &warm_up, &Arrivals::Closed(batch), chain)?.is_some();
        self.flush(running)?;
        Ok(ended)
    }

    /// The chain of a table that is to be drafted under a trial's load, if it was not seen yet.
    fn chain(&self, running: &Running, trial: &Trial) -> Option<Chain> {
        let batch = trial.load.batch_size()?;
        let is_open = !trial.configuration.table.is_empty() && !running.warm.contains(&trial.load);
        is_open.then(|| Chain { steps: trial.configuration.shape_at(batch).num_steps, batch })
    }

    /// Empties the prefix cache; the server may still be busy with what a request has left.
    fn flush(&self, running: &Running) -> Result<(), SystemError> {
        let deadline = Instant::now() + LONGEST_FLUSH;
        while !running.api.flush_cache()? && Instant::now() < deadline {
            // One that never can was started without a prefix cache.
            if running.server.is_some() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
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
        self.plan.supports(configuration)?;
        let running = match self.settings.url.clone() {
            Some(url) => self.attach(&url, configuration)?,
            None => self.start(configuration)?,
        };
        let log = running.server.as_ref().map(Server::log).unwrap_or_default();
        let differences = adaptive::check_started(configuration, &running.info, &log)
            .and_then(|()| resolved::differences(&running.info, &self.plan, configuration));
        let running = self.running.insert(running);
        match differences {
            Ok(notes) => {
                self.notes.extend(notes);
                if self.settings.kind == SystemKind::Sglang {
                    let otherwise =
                        resolved::beside_the_linter(&running.command, &running.info, &self.plan, &mut self.told);
                    self.notes.extend(otherwise);
                }
                Ok(())
            }
            Err(words) => {
                running.configuration = configuration.clone();
                self.stop()?;
                Err(SystemError::Unsupported(words))
            }
        }
    }

    fn run(&mut self, trial: &Trial, terms: &TrialOptions<'_>) -> Result<Ended, SystemError> {
        let Some(running) = &self.running else {
            return Err(SystemError::Unsupported("no server is running".into()));
        };
        let (requests, source) = runner::asked(terms.workload, trial)?;
        let arrivals = match source {
            Source::Closed(batch_size) => Arrivals::Closed(batch_size),
            Source::Open(times) => Arrivals::Open(times),
        };
        resolved::check_room(&running.info, trial.load)?;
        // Prompts that were seen before would be found in the cache, by some configurations and not by others.
        self.flush(running)?;
        // Once for each load: a table's rows do not move.
        let chain = self.chain(running, trial);
        let warms = terms.workload.warm_up_tokens > 0;
        if !self.warm_up(running, trial, terms, &requests, chain)? {
            return Ok(Ended::Interrupted);
        }
        let before = running.api.counters()?;
        let log_before = running.server.as_ref().map(Server::log_length);
        let watch = Watch::begin(None);
        let chain = chain.filter(|_| !warms);
        let Some(observed) = self.serve(running, &requests, &arrivals, chain)? else { return Ok(Ended::Interrupted) };
        let after = running.api.counters()?;
        let untold = Rounds::of(&trial.configuration, &before, &after);
        let seen = observed::seen(&requests, observed, &arrivals, untold)?;
        if let (Some(before), Some(after)) = (before.retracted, after.retracted)
            && after > before
        {
            return Err(SystemError::Unsupported(format!(
                "{} requests were put back because the KV cache was full: the batch was smaller than it says; lower the batch, or \
                 give the server more memory",
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
        let simulated = made_up.is_some() || self.settings.env.contains_key(launch::SIMULATED_LENGTH);
        let figures = measurement::of(&seen, &terms.objective, simulated)?;
        if let Some(length) = made_up {
            observed::check_made_up(f64::from(length), figures.accept_length)?;
        }
        // A client does not see the engine's steps, so figures that need them are missing.
        let (rounds_s, prefills_s, stalls, steady) = (None, None, None, None);
        let machine = Some(watch.end(None));
        if let Some(running) = &mut self.running {
            running.warm.push(trial.load);
        }
        Ok(Ended::Measured(Box::new(Measurement { rounds_s, prefills_s, stalls, steady, machine, ..figures })))
    }

    fn time_parts(&mut self, _trial: &Trial, _figures: &Measurement) -> Result<Option<PartsApart>, SystemError> {
        Ok(None)
    }

    /// What failed is stopped: the next trial starts afresh.
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

    fn stop(&mut self) -> Result<(), SystemError> {
        match self.running.take().and_then(|running| running.server) {
            Some(server) => self.end(server),
            None => Ok(()),
        }
    }
}

/// The failure of a server in an error, for the record of its trial.
pub fn failure_of(error: &SystemError) -> Option<&Failure> {
    match error {
        SystemError::Server(ServerError::Failed(failure)) => Some(failure),
        _ => None,
    }
}

fn failed(error: ServerError) -> TunerError {
    TunerError::Configuration(error.to_string())
}

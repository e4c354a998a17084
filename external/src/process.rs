//! A server as a process group with a log. Stopping it leaves no process behind.
//!
//! Engines start children (schedulers, workers, detokenizers) that outlive a dead parent and hold
//! GPU memory. So the server is the leader of a separate process group, and a variable in its
//! environment marks it and all its descendants ([`mark`](crate::mark)): processes that leave the
//! group are still found by the mark, and only marked processes are ended, and containers by their
//! name.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{
    ServerError,
    container::Container,
    failure::ProcessEnd,
    mark::{AFTER_KILL, KEEP_ENVIRONMENT, MARK, ProcessMark, wait},
    orphans::OrphanHandle,
};

/// Maximum number of bytes of a log's end that are searched for a cause.
const READ_LOG_BYTES: u64 = 1 << 20;

/// How a server is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLaunch {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables, in addition to this process's.
    pub env: Vec<(String, String)>,
    /// Log file for stdout and stderr; appended to.
    pub log: PathBuf,
    /// The container that it starts, if it is a client of a container runtime.
    pub container: Option<Container>,
}

/// A running server. Dropping it ends its processes without waiting for them to finish their work.
#[derive(Debug)]
pub struct Server {
    child: Child,
    mark: ProcessMark,
    container: Option<Container>,
    log: PathBuf,
    /// Offset in the log at which this start begins.
    log_start: u64,
    started: Instant,
    ended: Option<ProcessEnd>,
}

impl Server {
    /// Starts a server. It is running when this returns, but not ready yet.
    ///
    /// # Errors
    /// When its log cannot be written, or the program cannot be started.
    pub fn start(launch: &ProcessLaunch, mark: ProcessMark) -> Result<Self, ServerError> {
        let log = &launch.log;
        let output = OpenOptions::new().create(true).append(true).open(log).map_err(ServerError::file(log))?;
        let log_start = output.metadata().map_err(ServerError::file(log))?.len();
        let errors = output.try_clone().map_err(ServerError::file(log))?;
        let child = Command::new(&launch.program)
            .args(&launch.args)
            .envs(launch.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))))
            .env(KEEP_ENVIRONMENT.0, KEEP_ENVIRONMENT.1)
            .env(MARK, mark.as_str())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|source| ServerError::Spawn { program: launch.program.clone(), source })?;
        let container = launch.container.clone();
        Ok(Self { child, mark, container, log: log.clone(), log_start, started: Instant::now(), ended: None })
    }

    /// Its process id, which is also that of its group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its mark.
    pub fn mark(&self) -> &ProcessMark {
        &self.mark
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// How its main process ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<ProcessEnd> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten().map(how);
        }
        self.ended
    }

    /// The end of its log of this start, at most `READ_LOG_BYTES`.
    pub fn log(&self) -> String {
        self.log_from(self.log_start)
    }

    /// The end of its log after an offset, at most `READ_LOG_BYTES`.
    pub fn log_from(&self, start: u64) -> String {
        read_end(&self.log, start).unwrap_or_default()
    }

    /// Current length of its log in bytes.
    pub fn log_length(&self) -> u64 {
        std::fs::metadata(&self.log).map_or(self.log_start, |metadata| metadata.len())
    }

    /// Stops it: SIGTERM to the group, `grace` to finish its work, then SIGKILL. Returns once none
    /// of its processes is left.
    ///
    /// # Errors
    /// When some do not end after SIGKILL, or its container cannot be removed.
    pub fn stop(mut self, grace: Duration) -> Result<(), ServerError> {
        if let Some(container) = &self.container {
            container.stop(grace);
        }
        self.signal_group(Signal::TERM);
        // The main process must be reaped here, or it would stay a zombie.
        let gone = wait(grace, || self.ended().is_some() && self.mark.has_ended());
        match gone {
            true => self.container.as_ref().map_or(Ok(()), Container::remove),
            false => self.kill(),
        }
    }

    /// Kills it without waiting for its end, so that requests to it fail at once.
    /// [`stop`](Self::stop) waits for the end.
    pub fn abort(&self) {
        if let Some(container) = &self.container {
            container.stop(Duration::ZERO);
        }
        self.signal_group(Signal::KILL);
    }

    fn kill(&mut self) -> Result<(), ServerError> {
        self.signal_group(Signal::KILL);
        wait(AFTER_KILL, || self.ended().is_some());
        OrphanHandle { mark: self.mark.clone(), container: self.container.clone() }.end(Duration::ZERO).map(|_| ())
    }

    fn signal_group(&self, signal: Signal) {
        // Once the leader is reaped, its number may belong to another process; the rest of the
        // group is found by the mark.
        if self.ended.is_none()
            && let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process_group(group, signal);
        }
        self.mark.signal(signal);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.ended().is_none() || !self.mark.has_ended() {
            // Errors cannot be reported here; the run's list of servers still contains the mark.
            let _ = self.kill();
        }
    }
}

fn how(status: ExitStatus) -> ProcessEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessEnd::Code(code),
        (None, signal) => ProcessEnd::Signal(signal.unwrap_or(0)),
    }
}

/// The end of a file, after an offset.
fn read_end(path: &Path, start: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(start.max(length.saturating_sub(READ_LOG_BYTES)))).ok()?;
    let mut bytes = Vec::new();
    file.take(READ_LOG_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, folder: &Path) -> ProcessLaunch {
        ProcessLaunch {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("GREETING".into(), "hello".into())],
            log: folder.join("log"),
            container: None,
        }
    }

    #[test]
    fn what_a_server_writes_and_how_it_ends_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        for (script, expected) in
            [("echo $GREETING; exit 3", ProcessEnd::Code(3)), ("echo hello; kill -9 $$", ProcessEnd::Signal(9))]
        {
            let mut server = Server::start(&shell(script, folder.path()), ProcessMark::new()).expect("it starts");
            assert!(wait(Duration::from_secs(20), || server.ended().is_some()));
            assert_eq!((server.ended(), server.log().trim()), (Some(expected), "hello"));
        }
        let absent = ProcessLaunch { program: "/nonexistent/engine".into(), ..shell("", folder.path()) };
        assert!(matches!(Server::start(&absent, ProcessMark::new()), Err(ServerError::Spawn { .. })));
    }

    #[test]
    fn a_stopped_server_leaves_nothing_even_if_it_ignores_sigterm_or_leaves_its_group() {
        let folder = tempfile::tempdir().expect("a folder");
        let scripts = [
            "sleep 1000",
            "sleep 1000 & sleep 1000 & wait",
            "trap '' TERM; sleep 1000 & while true; do sleep 1; done",
            // A grandchild in its own session, whose parent has ended.
            "(setsid sh -c 'trap \"\" TERM; while true; do sleep 1; done' &) ; sleep 1000",
        ];
        for script in scripts {
            let server = Server::start(&shell(script, folder.path()), ProcessMark::new()).expect("it starts");
            let mark = server.mark().clone();
            assert!(wait(Duration::from_secs(20), || !mark.processes().is_empty()), "{script}");
            server.stop(Duration::from_millis(100)).expect("it ends");
            assert!(mark.processes().is_empty(), "{script}");
        }
    }

    #[test]
    fn dropping_a_server_ends_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::start(&shell("sleep 1000", folder.path()), ProcessMark::new()).expect("it starts");
        let mark = server.mark().clone();
        drop(server);
        assert!(mark.processes().is_empty());
    }
}

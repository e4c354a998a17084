//! A server as a process group with a log. Stopping it leaves no process behind.
//!
//! Engines start children (schedulers, workers, detokenizers) that outlive a dead parent and hold GPU memory. So the
//! server is the leader of a separate process group, and a variable in its environment marks it and all its
//! descendants: processes that leave the group are still found by the mark, and only marked processes are ended.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{ServerError, failure::Ended};

/// The variable that marks a server and its descendants.
const MARK: &str = "SPECTUNE_SERVER";
/// Maximum number of bytes of a log's end that are searched for a cause.
const READ_LOG_BYTES: u64 = 1 << 20;
/// Polling interval while a server shuts down.
const LOOK: Duration = Duration::from_millis(20);
/// Time for processes to disappear after SIGKILL: a driver frees a GPU's memory first.
const AFTER_KILL: Duration = Duration::from_secs(30);

/// How a server is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables, in addition to this process's.
    pub env: Vec<(String, String)>,
    /// Log file for stdout and stderr; appended to.
    pub log: PathBuf,
}

/// The mark of a server, unique to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark(String);

/// A running server. Dropping it ends its processes without waiting for them to finish their work.
#[derive(Debug)]
pub struct Server {
    child: Child,
    mark: Mark,
    log: PathBuf,
    /// Offset in the log at which this start begins.
    log_start: u64,
    started: Instant,
    ended: Option<Ended>,
}

impl Mark {
    /// Creates a new mark.
    pub fn new() -> Self {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self(format!("{}-{nanos}", std::process::id()))
    }

    /// Parses a recorded mark; `None` if the text is not a valid one.
    pub fn parse(text: &str) -> Option<Self> {
        let plain =
            !text.is_empty() && text.len() < 64 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        plain.then(|| Self(text.to_owned()))
    }

    /// The mark as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The marked processes, without this one.
    pub fn processes(&self) -> Vec<u32> {
        let entry = format!("{MARK}={}", self.0);
        let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let bears = |pid: &u32| {
            // Processes of other users, and ended ones, cannot be read.
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
        };
        numbers.filter(|pid| *pid != std::process::id()).filter(bears).collect()
    }

    /// Ends the marked processes: SIGTERM, `grace`, SIGKILL. Returns once none is left.
    ///
    /// # Errors
    /// When some do not end after SIGKILL.
    pub fn end(&self, grace: Duration) -> Result<(), ServerError> {
        self.signal(Signal::TERM);
        if wait(grace, || self.processes().is_empty()) {
            return Ok(());
        }
        // New processes may start between listing and killing.
        let deadline = Instant::now() + AFTER_KILL;
        while Instant::now() < deadline {
            self.signal(Signal::KILL);
            if wait(Duration::from_millis(200), || self.processes().is_empty()) {
                return Ok(());
            }
        }
        Err(ServerError::Unkillable { pids: self.processes() })
    }

    fn signal(&self, signal: Signal) {
        for pid in self.processes().into_iter().filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            // A process that has just ended is the expected case.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Default for Mark {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// Starts a server. It is running when this returns, but not ready yet.
    ///
    /// # Errors
    /// When its log cannot be written, or the program cannot be started.
    pub fn start(launch: &Launch, mark: Mark) -> Result<Self, ServerError> {
        let log = &launch.log;
        let output = OpenOptions::new().create(true).append(true).open(log).map_err(ServerError::file(log))?;
        let log_start = output.metadata().map_err(ServerError::file(log))?.len();
        let errors = output.try_clone().map_err(ServerError::file(log))?;
        let child = Command::new(&launch.program)
            .args(&launch.args)
            .envs(launch.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))))
            .env(MARK, mark.as_str())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|source| ServerError::Spawn { program: launch.program.clone(), source })?;
        Ok(Self { child, mark, log: log.clone(), log_start, started: Instant::now(), ended: None })
    }

    /// Its process id, which is also that of its group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its mark.
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// How its main process ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<Ended> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten().map(how);
        }
        self.ended
    }

    /// The end of its log of this start, at most [`READ_LOG_BYTES`].
    pub fn log(&self) -> String {
        self.log_from(self.log_start)
    }

    /// The end of its log after an offset, at most [`READ_LOG_BYTES`].
    pub fn log_from(&self, start: u64) -> String {
        read_end(&self.log, start).unwrap_or_default()
    }

    /// Current length of its log in bytes.
    pub fn log_length(&self) -> u64 {
        std::fs::metadata(&self.log).map_or(self.log_start, |metadata| metadata.len())
    }

    /// Stops it: SIGTERM to the group, `grace` to finish its work, then SIGKILL. Returns once none of its processes is
    /// left.
    ///
    /// # Errors
    /// When some do not end after SIGKILL.
    pub fn stop(mut self, grace: Duration) -> Result<(), ServerError> {
        self.signal_group(Signal::TERM);
        // The main process must be reaped here, or it would stay a zombie.
        let gone = wait(grace, || self.ended().is_some() && self.mark.processes().is_empty());
        if gone {
            return Ok(());
        }
        self.kill()
    }

    fn kill(&mut self) -> Result<(), ServerError> {
        self.signal_group(Signal::KILL);
        wait(AFTER_KILL, || self.ended().is_some());
        self.mark.end(Duration::ZERO)
    }

    fn signal_group(&self, signal: Signal) {
        // Once the leader is reaped, its number may belong to another process; the rest of the group is found by the
        // mark.
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
        if self.ended().is_none() || !self.mark.processes().is_empty() {
            // Errors cannot be reported here; the run's list of servers still contains the mark.
            let _ = self.kill();
        }
    }
}

fn how(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Code(code),
        (None, signal) => Ended::Signal(signal.unwrap_or(0)),
    }
}

/// Waits until a condition holds, at most this long; returns whether it does.
pub(crate) fn wait(longest: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + longest;
    loop {
        if done() {
            return true;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        thread::sleep(LOOK.min(left));
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

    fn shell(script: &str, folder: &Path) -> Launch {
        Launch {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("GREETING".into(), "hello".into())],
            log: folder.join("log"),
        }
    }

    #[test]
    fn what_a_server_writes_and_how_it_ends_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        for (script, expected) in
            [("echo $GREETING; exit 3", Ended::Code(3)), ("echo hello; kill -9 $$", Ended::Signal(9))]
        {
            let mut server = Server::start(&shell(script, folder.path()), Mark::new()).expect("it starts");
            assert!(wait(Duration::from_secs(20), || server.ended().is_some()));
            assert_eq!((server.ended(), server.log().trim()), (Some(expected), "hello"));
        }
        let absent = Launch { program: "/nonexistent/engine".into(), ..shell("", folder.path()) };
        assert!(matches!(Server::start(&absent, Mark::new()), Err(ServerError::Spawn { .. })));
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
            let server = Server::start(&shell(script, folder.path()), Mark::new()).expect("it starts");
            let mark = server.mark().clone();
            assert!(wait(Duration::from_secs(20), || !mark.processes().is_empty()), "{script}");
            server.stop(Duration::from_millis(100)).expect("it ends");
            assert!(mark.processes().is_empty(), "{script}");
        }
    }

    #[test]
    fn dropping_a_server_ends_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::start(&shell("sleep 1000", folder.path()), Mark::new()).expect("it starts");
        let mark = server.mark().clone();
        drop(server);
        assert!(mark.processes().is_empty());
    }

    #[test]
    fn a_mark_is_digits_and_dashes() {
        let mark = Mark::new();
        assert_eq!(Mark::parse(mark.as_str()), Some(mark));
        for text in ["", "a=b", "12\0", &"1".repeat(64)] {
            assert_eq!(Mark::parse(text), None, "{text:?}");
        }
    }
}

//! A process that outlives the one that starts servers, and ends them if that one is killed.
//!
//! The supervisor reads a pipe whose only writing end is in the process that it watches. Before a
//! server starts, it is written there; once it has been stopped, it is taken back. At the end of
//! the file, whatever caused it, the supervisor ends the servers that are left, and itself. It has
//! a session of its own, so signals to the group or the terminal of the watched process do not
//! reach it, and it keeps none of that process's files open.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use crate::{
    ServerError,
    mark::{ProcessMark, wait},
    orphans::{GRACE, OrphanHandle},
};

/// How the supervisor is started: a program that calls [`detach`] and then [`supervise`] on its
/// standard input and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisorProgram {
    /// The program.
    pub path: PathBuf,
    /// Its name in lists of processes.
    pub name: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables, in addition to this process's.
    pub env: Vec<(String, String)>,
}

/// The watched side: a running supervisor and the servers that it would end.
#[derive(Debug)]
pub struct Supervisor {
    program: SupervisorProgram,
    process: Option<SupervisedProcess>,
    servers: Vec<OrphanHandle>,
}

#[derive(Debug)]
struct SupervisedProcess {
    child: Child,
    /// The pipe; `None` once it is closed.
    input: Option<ChildStdin>,
}

/// The line by which the supervisor says that it has its own session.
const READY: &str = "ready";
/// What comes before a server that starts, and before the mark of one that has ended.
const ADD: char = '+';
const TAKE: char = '-';
/// Number of starts of a supervisor that ends before it is ready: a signal to the group may hit it
/// in its first moments.
const TRIES: usize = 3;
/// Time for a supervisor without servers to end.
const LONGEST_END: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Starts a supervisor. It is detached when this returns.
    ///
    /// # Errors
    /// When the program cannot be started, or is not a supervisor.
    pub fn start(program: &SupervisorProgram) -> Result<Self, ServerError> {
        let process = Some(SupervisedProcess::start(program)?);
        Ok(Self { program: program.clone(), process, servers: Vec::new() })
    }

    /// Its process id; `None` if it could not be started again.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.child.id())
    }

    /// Has it end a server if this process is killed from now on. Call it before the server starts.
    ///
    /// # Errors
    /// When it has been killed and cannot be started again.
    pub fn add(&mut self, server: &OrphanHandle) -> Result<(), ServerError> {
        self.servers.push(server.clone());
        let line = format!("{ADD}{}", server.line());
        if self.process.as_mut().is_some_and(|process| process.tell(&line)) {
            return Ok(());
        }
        // Something has killed it: the new one learns of all servers.
        self.process = None;
        let mut process = SupervisedProcess::start(&self.program)?;
        let knows_all = self.servers.iter().all(|server| process.tell(&format!("{ADD}{}", server.line())));
        self.process = Some(process);
        if knows_all { Ok(()) } else { Err(not_ready(&self.program)) }
    }

    /// Takes a server back that has ended.
    pub fn take(&mut self, mark: &ProcessMark) {
        self.servers.retain(|server| server.mark != *mark);
        if let Some(process) = &mut self.process {
            // If it has been killed, the next server starts a new one.
            process.tell(&format!("{TAKE}{}", mark.as_str()));
        }
    }
}

impl SupervisedProcess {
    fn start(program: &SupervisorProgram) -> Result<Self, ServerError> {
        for _ in 0..TRIES {
            let mut child = Command::new(&program.path)
                .arg0(&program.name)
                .args(&program.args)
                .envs(program.env.iter().map(|(name, value)| (name, value)))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|source| ServerError::Spawn { program: program.path.display().to_string(), source })?;
            let input = child.stdin.take();
            let mut lines = BufReader::new(child.stdout.take().ok_or_else(|| not_ready(program))?).lines();
            if lines.any(|line| line.is_ok_and(|line| line == READY)) {
                return Ok(Self { child, input });
            }
            drop(input);
            let _ = child.kill();
            let _ = child.wait();
        }
        Err(not_ready(program))
    }

    /// Writes a line; returns whether it could be written.
    fn tell(&mut self, line: &str) -> bool {
        let Some(input) = &mut self.input else { return false };
        // One write, so that no half of a line is read.
        input.write_all(format!("{line}\n").as_bytes()).is_ok()
    }
}

impl Drop for SupervisedProcess {
    /// Closes the pipe. With servers left the supervisor needs a while and is not waited for: it is
    /// then a process of its own.
    fn drop(&mut self) {
        self.input = None;
        wait(LONGEST_END, || self.child.try_wait().is_ok_and(|status| status.is_some()));
    }
}

fn not_ready(program: &SupervisorProgram) -> ServerError {
    ServerError::Supervisor { program: program.path.display().to_string() }
}

/// Makes this process independent of the one that started it: a session of its own, and none of its
/// inherited files but standard input, output and error. Call it first, before this process opens
/// files.
pub fn detach() {
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let inherited: Vec<i32> =
        descriptors.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|one| *one > 2).collect();
    for one in inherited {
        // The descriptor of the listing itself is closed already.
        let _ = nix::unistd::close(one);
    }
    // Fails only for the leader of a group, which signals to another group do not reach either.
    let _ = rustix::process::setsid();
}

/// The supervisor's work: reads servers from `input`, and ends the ones that are left at its end.
///
/// # Errors
/// When it cannot say on `output` that it is ready, or a server does not end.
pub fn supervise(input: impl BufRead, mut output: impl Write) -> Result<(), ServerError> {
    let pipe = |source: io::Error| ServerError::File { path: PathBuf::from("standard output"), source };
    writeln!(output, "{READY}").and_then(|()| output.flush()).map_err(pipe)?;
    let mut servers: Vec<OrphanHandle> = Vec::new();
    // An unreadable pipe is treated as its end.
    for line in input.lines().map_while(Result::ok) {
        if let Some(server) = line.strip_prefix(ADD).and_then(OrphanHandle::parse) {
            servers.push(server);
        } else if let Some(mark) = line.strip_prefix(TAKE).and_then(ProcessMark::parse) {
            servers.retain(|server| server.mark != mark);
        }
    }
    // Each is tried, whatever happens to the others.
    let ended: Vec<Result<usize, ServerError>> = servers.iter().map(|server| server.end(GRACE)).collect();
    ended.into_iter().try_for_each(|ended| ended.map(|_| ()))
}

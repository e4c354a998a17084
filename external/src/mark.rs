//! The mark of a server: a variable in its environment, by which it and all processes that it
//! starts are found.

use std::{
    collections::HashSet,
    fs, thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    ServerError,
    process_table::{all, with_descendants},
};

/// The variable that marks a server and its descendants.
pub(crate) const MARK: &str = "SPECTUNE_SERVER";
/// Python programs that set their title write it over their environment, and so over the mark,
/// unless this variable is set.
pub(crate) const KEEP_ENVIRONMENT: (&str, &str) = ("SPT_NOENV", "1");
/// Polling interval while processes end.
const LOOK: Duration = Duration::from_millis(20);
/// Time for a process to replace its program.
const LONGEST_REPLACEMENT: Duration = Duration::from_secs(2);
/// Consecutive looks that show arguments and no environment: the process has none.
const LOOKS_AT_BARE: usize = 3;
/// Time for processes to disappear after SIGKILL: a driver frees a GPU's memory first.
pub(crate) const AFTER_KILL: Duration = Duration::from_secs(30);

/// The mark of a server, unique to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessMark(String);

impl ProcessMark {
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

    /// The marked processes and what they have started, without this one.
    pub fn processes(&self) -> Vec<u32> {
        let entry = format!("{MARK}={}", self.0);
        let others: Vec<u32> = all().into_iter().filter(|pid| *pid != std::process::id()).collect();
        let deadline = Instant::now() + LONGEST_REPLACEMENT;
        let bears =
            |pid: &&u32| environment(**pid, deadline).split(|byte| *byte == 0).any(|one| one == entry.as_bytes());
        let marked: HashSet<u32> = others.iter().filter(bears).copied().collect();
        if marked.is_empty() { Vec::new() } else { with_descendants(marked, &others) }
    }

    /// Whether no marked process is left. One look may miss a process whose parent ends after it
    /// has listed them.
    pub(crate) fn has_ended(&self) -> bool {
        let none = || self.processes().is_empty();
        none() && {
            thread::sleep(LOOK);
            none()
        }
    }

    /// Ends the marked processes: SIGTERM, `grace`, SIGKILL. Returns once none is left.
    ///
    /// # Errors
    /// When some do not end after SIGKILL.
    pub fn end(&self, grace: Duration) -> Result<(), ServerError> {
        self.signal(Signal::TERM);
        if wait(grace, || self.has_ended()) {
            return Ok(());
        }
        // New processes may start between listing and killing.
        let deadline = Instant::now() + AFTER_KILL;
        while Instant::now() < deadline {
            self.signal(Signal::KILL);
            if wait(Duration::from_millis(200), || self.has_ended()) {
                return Ok(());
            }
        }
        Err(ServerError::Unkillable { pids: self.processes() })
    }

    pub(crate) fn signal(&self, signal: Signal) {
        for pid in self.processes().into_iter().filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            // A process that has just ended is the expected case.
            let _ = kill_process(pid, signal);
        }
    }
}

/// The environment of a process; empty if it has ended, or is another user's. A process that is
/// replacing its program shows none for a moment, and is waited for until `deadline`: it may be
/// marked.
fn environment(pid: u32, deadline: Instant) -> Vec<u8> {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let look = || ProcessView {
        environment: read("environ"),
        has_arguments: !read("cmdline").is_empty(),
        has_program: fs::read_link(format!("/proc/{pid}/exe")).is_ok(),
    };
    settled(look, deadline)
}

/// What a process shows at one moment. Threads of the kernel and ended processes have no program;
/// within `exec` there is a program, and neither arguments nor an environment yet.
struct ProcessView {
    environment: Vec<u8>,
    has_arguments: bool,
    has_program: bool,
}

/// The environment that looks at a process agree on.
fn settled(mut look: impl FnMut() -> ProcessView, deadline: Instant) -> Vec<u8> {
    let mut bare = 0;
    loop {
        let now = look();
        if !now.environment.is_empty() || !now.has_program {
            return now.environment;
        }
        // One look is not at one moment: the environment may have been read within `exec` and the
        // arguments after it.
        bare = if now.has_arguments { bare + 1 } else { 0 };
        if bare == LOOKS_AT_BARE || Instant::now() > deadline {
            return Vec::new();
        }
        thread::sleep(Duration::from_millis(1));
    }
}

impl Default for ProcessMark {
    fn default() -> Self {
        Self::new()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_replaces_its_program_is_waited_for() {
        let far = Instant::now() + Duration::from_secs(3600);
        let shows = |environment: &str, has_arguments: bool| ProcessView {
            environment: environment.as_bytes().to_vec(),
            has_arguments,
            has_program: true,
        };
        let of = |looks: Vec<ProcessView>| {
            let mut looks = looks.into_iter();
            let environment = settled(|| looks.next().expect("no further look is needed"), far);
            (environment, looks.len())
        };
        // Within `exec`, then read on both sides of its end.
        assert_eq!(of(vec![shows("", false), shows("", true), shows("A=b", true)]), (b"A=b".to_vec(), 0));
        // Of a process without an environment it is known that it has no mark.
        let bare = || shows("", true);
        assert_eq!(of(vec![bare(), bare(), shows("", false), bare(), bare(), bare(), bare()]), (Vec::new(), 1));
        assert_eq!(of(vec![ProcessView { has_program: false, ..bare() }, bare()]), (Vec::new(), 1));
        let within = || shows("", false);
        assert_eq!(settled(within, Instant::now()), Vec::<u8>::new(), "at the deadline");
    }

    #[test]
    fn a_mark_is_digits_and_dashes() {
        let mark = ProcessMark::new();
        assert_eq!(ProcessMark::parse(mark.as_str()), Some(mark));
        for text in ["", "a=b", "12\0", &"1".repeat(64)] {
            assert_eq!(ProcessMark::parse(text), None, "{text:?}");
        }
    }
}

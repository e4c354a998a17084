//! SIGINT, SIGTERM and SIGHUP, from the first moment of a command to its end.
//!
//! Until a command polls [`polled`], a signal ends the process with exit code 130: nothing is half
//! done then, since files are written atomically. After that the first signal sets the flag, and
//! the command ends by itself with what it has finished. A later signal ends the process at once,
//! and so does the end of a time that the command may set; the supervisor then ends its servers.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use schemas::quoting::quoted;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level,
};

use crate::{exit::Exit, terminal};

/// Two signals within this time are one request: `timeout` and some service managers signal a
/// process and then its group.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// Set by the first signal.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Time after the first signal until the user learns what a second one does.
const UNTIL_HINT: Duration = Duration::from_secs(2);
static STATE: Mutex<InterruptState> =
    Mutex::new(InterruptState { reaction: Reaction::End, advice: None, patience: None });

struct InterruptState {
    reaction: Reaction,
    /// What the user can do next.
    advice: Option<String>,
    /// Time after the first signal until the process is ended, if the command has not ended by
    /// itself.
    patience: Option<Duration>,
}

/// What a signal does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reaction {
    /// Ends the process.
    End,
    /// Sets the flag.
    SetFlag,
    /// Nothing: another part of the program handles signals.
    Nothing,
}

/// Handles signals from now on.
///
/// # Errors
/// When the system refuses handlers.
pub fn listen() -> anyhow::Result<()> {
    let mut handled = vec![SIGINT, SIGTERM];
    // `nohup` ignores it, so that a sweep survives the end of a session.
    if !is_ignored(SIGHUP) {
        handled.push(SIGHUP);
    }
    let mut signals = Signals::new(handled).context("cannot handle Ctrl-C and SIGTERM")?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut first = None;
            signals.forever().for_each(|_| receive(&mut first));
        })
        .context("cannot handle Ctrl-C and SIGTERM")?;
    Ok(())
}

fn receive(first: &mut Option<Instant>) {
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    match (state.reaction, first.as_ref()) {
        (Reaction::Nothing, _) => {}
        (Reaction::SetFlag, None) => {
            *first = Some(Instant::now());
            INTERRUPTED.store(true, Relaxed);
            let patience = state.patience;
            thread::spawn(move || wait(patience));
        }
        (Reaction::SetFlag, Some(first)) if first.elapsed() < ONE_REQUEST => {}
        (Reaction::End | Reaction::SetFlag, _) => end(&state),
    }
}

fn end(state: &InterruptState) -> ! {
    let advice = state.advice.as_ref().map_or_else(String::new, |advice| format!("; {advice}"));
    terminal::note(&format!("interrupted{advice}"));
    // Without destructors: other threads still run.
    low_level::exit(Exit::Interrupted as i32)
}

/// Waits for the end of the process after the first signal.
fn wait(patience: Option<Duration>) {
    let Some(patience) = patience else {
        thread::sleep(UNTIL_HINT);
        return terminal::note("stopping after the current step; a second Ctrl-C ends it at once");
    };
    thread::sleep(patience);
    end(&STATE.lock().unwrap_or_else(PoisonError::into_inner));
}

/// The flag that the first signal sets. The caller polls it, so that signals no longer end the
/// process at once.
pub fn polled() -> &'static AtomicBool {
    react(Reaction::SetFlag);
    &INTERRUPTED
}

/// Leaves signals to another part of the program.
pub fn leave() {
    react(Reaction::Nothing);
}

/// The advice to run this program again with some words, quoted for a shell.
pub fn go_on(words: &str) -> String {
    let program = std::env::args_os().next();
    let program = program.map_or_else(|| "spectune".into(), |program| quoted(&program.to_string_lossy()));
    format!("continue with: {program} {words}")
}

/// What the user can do after an interrupt that ends the process at once.
pub fn advise(advice: String) {
    STATE.lock().unwrap_or_else(PoisonError::into_inner).advice = Some(advice);
}

/// Ends the process this long after the first signal, if the command has not ended by itself: it
/// may wait for something that does not answer.
pub fn wait_at_most(patience: Duration) {
    STATE.lock().unwrap_or_else(PoisonError::into_inner).patience = Some(patience);
}

fn react(reaction: Reaction) {
    STATE.lock().unwrap_or_else(PoisonError::into_inner).reaction = reaction;
}

/// Whether the process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status, signal)
}

fn ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tspectune\nSigBlk:\t0000000000000003\nSigIgn:\t0000000000001001\n";
        assert!(ignored(status, SIGHUP));
        assert!(!ignored(status, SIGINT) && !ignored(status, SIGTERM) && !ignored("", SIGHUP));
    }
}

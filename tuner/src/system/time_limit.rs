//! A limit of time for work that waits for servers: they may start slowly, or never answer.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How often the limit is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// The time since a moment, and its limit.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimit<'a> {
    /// When time began to count, if it does yet.
    begun: &'a OnceLock<Instant>,
    seconds: Option<f64>,
    /// Set when the user requests a stop.
    interrupted: &'a AtomicBool,
}

/// Why work should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The user requested it.
    Interrupted,
    /// The time is used up.
    Time,
}

impl<'a> TimeLimit<'a> {
    /// A limit of time that counts from [`begin`](Self::begin) on; `None` for no limit.
    pub fn new(seconds: Option<f64>, interrupted: &'a AtomicBool, begun: &'a OnceLock<Instant>) -> Self {
        Self { begun, seconds, interrupted }
    }

    /// The same, counting from now on, unless it does already.
    pub fn begin(self) -> Self {
        self.begun.get_or_init(Instant::now);
        self
    }

    /// Whether to stop, and why.
    pub fn over(&self) -> Option<Over> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Some(Over::Interrupted);
        }
        self.left().is_some_and(|left| left.is_zero()).then_some(Over::Time)
    }

    /// The time that is left; `None` if there is no limit.
    pub fn left(&self) -> Option<Duration> {
        // More seconds than a duration can hold are no limit.
        let limit = Duration::try_from_secs_f64(self.seconds?).ok()?;
        let gone = self.begun.get().map_or(Duration::ZERO, Instant::elapsed);
        Some(limit.saturating_sub(gone))
    }

    /// The limit in words.
    pub fn words(&self) -> String {
        let seconds = self.seconds.unwrap_or_default();
        if seconds < 120.0 { format!("{seconds} s") } else { format!("{:.0} min", seconds / 60.0) }
    }

    /// Does work that ends soon after the flag that it gets is set, which is at the limit, or when
    /// the user requests a stop.
    pub fn bound<T>(&self, work: impl FnOnce(&AtomicBool) -> T) -> T {
        let (stop, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let watching = scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    if self.over().is_some() {
                        return stop.store(true, Ordering::Relaxed);
                    }
                    // Parked, so that the end of the work need not wait for the next look.
                    thread::park_timeout(LOOK);
                }
            });
            let _end = End { ended: &ended, watching: watching.thread().clone() };
            work(&stop)
        })
    }
}

/// Ends the watching thread with the work, also if that panics.
struct End<'a> {
    ended: &'a AtomicBool,
    watching: thread::Thread,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.watching.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_stopped(flag: &AtomicBool) {
        while !flag.load(Ordering::Relaxed) {
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    #[test]
    fn work_is_stopped_by_the_limit_or_by_the_user_and_ends_by_itself_otherwise() {
        let (user, idle) = (AtomicBool::new(true), AtomicBool::new(false));
        let clocks = [const { OnceLock::new() }; 4];
        let limit = TimeLimit::new(Some(0.0), &idle, &clocks[0]).begin();
        limit.bound(until_stopped);
        assert_eq!(limit.over(), Some(Over::Time));
        let limit = TimeLimit::new(Some(1e9), &user, &clocks[1]).begin();
        limit.bound(until_stopped);
        assert_eq!(limit.over(), Some(Over::Interrupted));
        let limit = TimeLimit::new(None, &idle, &clocks[2]).begin();
        assert_eq!((limit.bound(|_| 7), limit.over(), limit.left()), (7, None, None));
        assert_eq!(TimeLimit::new(Some(1200.0), &idle, &clocks[3]).words(), "20 min");
        assert_eq!(TimeLimit::new(Some(1e-9), &idle, &clocks[3]).over(), None, "it does not count yet");
    }
}

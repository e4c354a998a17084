//! Progress of a simulation: a bar on a terminal, elsewhere a line from time to time.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;

use crate::{interrupt, progress, terminal};

/// Time between two lines where there is no terminal: a short simulation prints none.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Progress that is shown until it is dropped.
pub struct SimulationProgress {
    /// What a step is.
    counts: &'static str,
    bar: Option<ProgressBar>,
    begin: Instant,
    last_line: Instant,
}

impl SimulationProgress {
    /// Progress of this many steps, each of which is one of `counts`.
    pub fn new(all: usize, counts: &'static str) -> Self {
        let bar = progress::bar(all, "{bar:32} {pos}/{len} {prefix}  {elapsed} elapsed, {eta} left");
        if let Some(bar) = &bar {
            bar.set_prefix(counts);
        }
        let now = Instant::now();
        Self { counts, bar, begin: now, last_line: now }
    }

    /// Shows that this many of all steps are done. Returns whether to continue: false after Ctrl-C.
    pub fn goes_on(&mut self, done: usize, all: usize) -> bool {
        match &self.bar {
            Some(bar) => bar.set_position(done as u64),
            None if self.last_line.elapsed() >= BETWEEN_LINES => {
                self.last_line = Instant::now();
                terminal::note(&line(done, all, self.counts, self.begin.elapsed()));
            }
            None => {}
        }
        !interrupt::polled().load(Relaxed)
    }
}

impl Drop for SimulationProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(done: usize, all: usize, counts: &str, elapsed: Duration) -> String {
    let left = match done {
        0 => String::new(),
        _ => format!(", about {:.0} s left", elapsed.as_secs_f64() * (all.saturating_sub(done)) as f64 / done as f64),
    };
    format!("{done} of {all} {counts} after {:.0} s{left}", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_estimates_the_rest_once_something_is_done() {
        assert_eq!(
            line(10, 40, "simulations", Duration::from_secs(5)),
            "10 of 40 simulations after 5 s, about 15 s left"
        );
        assert_eq!(line(0, 40, "simulations", Duration::from_secs(5)), "0 of 40 simulations after 5 s");
    }
}

//! Progress: a bar on a terminal, one line per trial elsewhere.

use std::{collections::HashMap, time::Instant};

use indicatif::ProgressBar;
use tuner::{
    configuration::{Configuration, Load},
    record::{Outcome, Record, Trial},
    statistics::median,
    strategy::Planned,
    sweep::Progress,
};

use crate::terminal;

/// Minimum number of trials of this run for estimating the remaining time from their mean.
const ENOUGH: usize = 3;

/// Progress of a running sweep.
#[derive(Debug, Default)]
pub struct Bar {
    bar: Option<ProgressBar>,
    /// Number of trials in the journal.
    done: usize,
    planned: Option<Planned>,
    /// Start of the first trial of this run, and the number of trials finished since.
    begun: Option<Instant>,
    ran: usize,
    /// Result of the last trial, with its configuration.
    last: String,
    /// Output tokens per second of each trial of this run.
    rates: HashMap<Load, HashMap<Configuration, Vec<f64>>>,
}

impl Bar {
    /// Removes the bar from the terminal.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Number of trials in the journal.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Replaces the progress bar, on a terminal.
    fn show(&mut self, steps: usize, template: &str) {
        self.finish();
        self.bar = terminal::bar(steps, template);
    }

    /// Progress of a sweep: out of this many trials, or of at most this many.
    fn place(&self) -> String {
        match self.planned {
            Some(Planned { trials, exact: true }) => format!("{}/{trials}", self.done),
            Some(Planned { trials, exact: false }) => format!("{} of at most {trials}", self.done),
            None => self.done.to_string(),
        }
    }

    /// The remaining time, estimated from the trials of this run.
    fn left(&self) -> Option<String> {
        let (planned, begun) = (self.planned?, self.begun?);
        let seconds = left(begun.elapsed().as_secs_f64(), self.ran, planned.trials.saturating_sub(self.done))?;
        let word = if planned.exact { "about" } else { "at most" };
        Some(format!("{word} {} left", rounded(seconds)))
    }

    /// The configuration with the largest median of this run under a load, as words.
    fn best(&self, load: Load) -> String {
        let medians = self.rates.get(&load).into_iter().flatten();
        let medians = medians.filter_map(|(configuration, rates)| Some((configuration, median(rates.clone())?)));
        let best = medians.max_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or_else(String::new, |(configuration, rate)| format!(" · best {configuration} at {rate:.0} tokens/s"))
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(terminal::wrapped_for_stderr(text)),
            None => terminal::note(text),
        }
    }
}

/// Seconds for the remaining trials, from the mean of the finished ones; `None` while there are too few.
fn left(elapsed: f64, ran: usize, remaining: usize) -> Option<f64> {
    (ran >= ENOUGH && remaining > 0).then(|| elapsed / ran as f64 * remaining as f64)
}

/// Rounded seconds with a unit, as exact as an estimate is.
fn rounded(seconds: f64) -> String {
    match seconds {
        _ if seconds < 10.0 => "10 s".into(),
        _ if seconds < 90.0 => format!("{:.0} s", (seconds / 10.0).ceil() * 10.0),
        _ => reports::duration(seconds),
    }
}

impl Progress for Bar {
    fn planned(&mut self, planned: Planned, done: usize) {
        (self.planned, self.done) = (Some(planned), done);
        self.show(planned.trials, "{bar:12} {prefix}, {elapsed} elapsed{wide_msg}");
        let place = self.place();
        if let Some(bar) = &self.bar {
            bar.set_prefix(place);
            bar.set_position(done as u64);
        }
    }

    fn preparing(&mut self, what: &str, steps: usize) {
        self.show(steps, "{bar:12} {percent:>3}%, {elapsed} elapsed  {wide_msg}");
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None => self.say(what),
        }
    }

    fn prepared(&mut self, steps: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(steps as u64);
        }
    }

    fn started(&mut self, trial: &Trial) {
        self.begun.get_or_insert_with(Instant::now);
        if let Some(bar) = &self.bar {
            let left = self.left().map_or_else(String::new, |left| format!(", {left}"));
            let best = self.best(trial.load);
            bar.set_message(format!("{left}  now {}, {}{best}{}", trial.configuration, trial.load, self.last));
        }
    }

    fn finished(&mut self, record: &Record) {
        self.done += 1;
        self.ran += 1;
        let Trial { configuration, load, repeat } = &record.trial;
        let head = format!("[{}] {configuration}, {load}, repeat {}", self.place(), repeat + 1);
        match (&record.outcome, &self.bar) {
            (Outcome::Failed { reason, .. }, _) => self.say(&format!("{head}: failed: {reason}")),
            (Outcome::Measured(figures), None) => {
                let accept = match configuration.is_off() {
                    true => String::new(),
                    false => format!(", accept length {:.2}", figures.accept_length),
                };
                let left = self.left().map_or_else(String::new, |left| format!(", {left}"));
                self.say(&format!("{head}: {:.1} tokens/s{accept}{left}", figures.output_tokens_per_s));
            }
            (Outcome::Measured(figures), Some(_)) => {
                self.last = format!(" · last {configuration}: {:.0} tokens/s", figures.output_tokens_per_s);
            }
        }
        if let Outcome::Measured(figures) = &record.outcome {
            let of_load = self.rates.entry(*load).or_default();
            of_load.entry(configuration.clone()).or_default().push(figures.output_tokens_per_s);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.done as u64);
            bar.set_prefix(self.place());
        }
    }

    fn more(&mut self, trials: usize) {
        let Some(planned) = &mut self.planned else { return };
        // Trials of an interrupted run are among them.
        planned.trials = planned.trials.max(self.done) + trials;
        if let Some(bar) = &self.bar {
            bar.set_length(planned.trials as u64);
        }
    }

    fn note(&mut self, text: &str) {
        self.say(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_once_it_is_known_and_is_never_nothing() {
        assert_eq!(left(1.0, 0, 40), None);
        assert_eq!(left(5.0, 2, 40), None);
        assert_eq!(left(6.0, 3, 40), Some(80.0));
        assert_eq!(left(6.0, 3, 0), None);
        let words = [0.01, 12.0, 80.0, 300.0].map(rounded);
        assert_eq!(words, ["10 s", "20 s", "80 s", "5 min"].map(String::from));
    }
}

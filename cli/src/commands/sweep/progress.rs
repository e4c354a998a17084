//! Progress: a bar on a terminal, one line per trial elsewhere.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use indicatif::ProgressBar;
use schemas::version::EngineVersion;
use tuner::{
    TunerError,
    statistics::median,
    strategy::Planned,
    sweep::SweepProgress,
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{Measurement, Outcome, Record, Trial},
    },
};

use super::CheckVersion;
use crate::terminal;

/// Minimum number of trials of this run for estimating the remaining time from their mean.
const ENOUGH: usize = 3;

/// Progress of a running sweep.
#[derive(Default)]
pub struct Bar<'a> {
    bar: Option<ProgressBar>,
    check_version: Option<&'a CheckVersion<'a>>,
    /// The words of the command, if it has its own.
    words: Option<fn(&str) -> String>,
    /// Number of trials in the journal.
    done: usize,
    planned: Option<Planned>,
    pace: TrialPace,
    /// Start of the running trial.
    begun: Option<Instant>,
    /// Reasons that were printed, with the configuration that failed; of several drafts, once for
    /// each draft.
    failed: HashSet<(Option<Configuration>, String, String)>,
    /// Result of the last trial, with its configuration.
    last: String,
    /// Output tokens per second of each trial of this run.
    rates: HashMap<TrialLoad, HashMap<Configuration, Vec<f64>>>,
}

impl<'a> Bar<'a> {
    /// With a check of the engine's version, and messages in the words of a command.
    pub fn checking(check_version: Option<&'a CheckVersion<'a>>, words: fn(&str) -> String) -> Self {
        Self { check_version, words: Some(words), ..Self::default() }
    }

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
        self.bar = crate::progress::bar(steps, template);
    }

    /// Progress of a sweep: out of this many trials, or of at most this many.
    fn place(&self) -> String {
        match self.planned {
            Some(Planned { trials, exact: true }) => format!("{}/{trials}", self.done),
            Some(Planned { trials, exact: false }) => format!("{} of at most {trials}", self.done),
            None => self.done.to_string(),
        }
    }

    /// The remaining time, estimated from the trials and starts of this run.
    fn left(&self) -> Option<String> {
        let planned = self.planned?;
        let left = self.pace.left(planned.trials.saturating_sub(self.done))?;
        let word = if planned.exact { "about" } else { "at most" };
        let starts = match self.pace.starts_left {
            1 => "1 more start".into(),
            starts => format!("{starts} more starts"),
        };
        let time = rounded(left.seconds);
        Some(match (left.without_trials, self.pace.starts_left) {
            (true, _) => format!("{word} {time} for {starts}, without the trials"),
            (false, 0) => format!("{word} {time} left"),
            (false, _) => format!("{word} {time} left, {starts} included"),
        })
    }

    /// The configuration with the largest median of this run under a load, as words.
    fn best(&self, load: TrialLoad) -> String {
        let medians = self.rates.get(&load).into_iter().flatten();
        let medians = medians.filter_map(|(configuration, rates)| Some((configuration, median(rates.clone())?)));
        let best = medians.max_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or_else(String::new, |(configuration, rate)| format!(" · best {configuration} at {rate:.0} tokens/s"))
    }

    fn say(&self, text: &str) {
        let text = self.words.map_or_else(|| text.to_owned(), |words| words(text));
        match &self.bar {
            Some(bar) => bar.println(terminal::wrapped_for_stderr(&text)),
            None => terminal::note(&text),
        }
    }
}

/// What trials and starts of this run took so far.
#[derive(Debug, Default)]
struct TrialPace {
    /// Seconds of the trials that were measured, starts excluded, and their number.
    trial_seconds: f64,
    trials: usize,
    /// Seconds of the starts of servers, and their number.
    start_seconds: f64,
    starts: usize,
    /// Starts that are expected, at most.
    starts_left: usize,
    /// Seconds of starts during the running trial.
    start_seconds_now: f64,
}

/// A remaining time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TimeLeft {
    seconds: f64,
    /// Whether only starts are in it, since too few trials have run.
    without_trials: bool,
}

impl TrialPace {
    fn started(&mut self, seconds: f64) {
        self.start_seconds += seconds;
        self.start_seconds_now += seconds;
        self.starts += 1;
        self.starts_left = self.starts_left.saturating_sub(1);
    }

    /// A trial has ended after this many seconds, starts included.
    fn ended(&mut self, seconds: f64, measured: bool) {
        let starts = std::mem::take(&mut self.start_seconds_now);
        if measured {
            self.trial_seconds += (seconds - starts).max(0.0);
            self.trials += 1;
        }
    }

    /// The time of the remaining trials from the mean of the measured ones, and of the remaining
    /// starts likewise; `None` while neither is known.
    fn left(&self, trials: usize) -> Option<TimeLeft> {
        if trials == 0 {
            return None;
        }
        let mean = |seconds: f64, number: usize| (number > 0).then(|| seconds / number as f64);
        let starts = mean(self.start_seconds, self.starts).unwrap_or(0.0) * self.starts_left as f64;
        match mean(self.trial_seconds, self.trials).filter(|_| self.trials >= ENOUGH) {
            Some(each) => Some(TimeLeft { seconds: each * trials as f64 + starts, without_trials: false }),
            None => (starts > 0.0).then_some(TimeLeft { seconds: starts, without_trials: true }),
        }
    }
}

/// Rounded seconds with a unit, as exact as an estimate is.
fn rounded(seconds: f64) -> String {
    match seconds {
        _ if seconds < 10.0 => "10 s".into(),
        _ if seconds < 90.0 => format!("{:.0} s", (seconds / 10.0).ceil() * 10.0),
        _ => reports::duration(seconds),
    }
}

/// Output tokens per second, as the table and the report of the sweep show them.
fn rate(figures: &Measurement) -> f64 {
    figures.compared().output_tokens_per_s
}

/// The result of a trial in a line.
fn result(configuration: &Configuration, figures: &Measurement) -> String {
    let accept = match configuration.is_off() {
        true => String::new(),
        false => format!(", accept length {:.2}", figures.accept_length),
    };
    format!("{:.1} tokens/s{accept}", rate(figures))
}

/// What a printed reason is about.
fn key(configuration: &Configuration, reason: &str) -> (Option<Configuration>, String, String) {
    let draft = configuration.draft.clone();
    (draft.is_empty().then(|| configuration.clone()), draft, reason.to_owned())
}

impl SweepProgress for Bar<'_> {
    fn engine_known(&mut self, version: Option<EngineVersion>) -> Result<(), TunerError> {
        self.finish();
        version.zip(self.check_version).map_or(Ok(()), |(version, check)| check(version))
    }

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

    fn starts_left(&mut self, starts: usize) {
        self.pace.starts_left = starts;
    }

    fn server_started(&mut self, seconds: f64) {
        let is_first = self.pace.starts == 0;
        self.pace.started(seconds);
        if is_first {
            let left = self.left().map_or_else(String::new, |left| format!("; {left}"));
            self.say(&format!("the first server was ready after {seconds:.0} s{left}"));
        }
    }

    fn started(&mut self, trial: &Trial) {
        // What came before is no part of the trial.
        self.pace.start_seconds_now = 0.0;
        self.begun = Some(Instant::now());
        if let Some(bar) = &self.bar {
            let left = self.left().map_or_else(String::new, |left| format!(", {left}"));
            let best = self.best(trial.load);
            bar.set_message(format!("{left}  now {}, {}{best}{}", trial.configuration, trial.load, self.last));
        }
    }

    fn finished(&mut self, record: &Record) {
        self.done += 1;
        let seconds = self.begun.take().map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        self.pace.ended(seconds, matches!(record.outcome, Outcome::Measured(_)));
        let Trial { configuration, load, repeat } = &record.trial;
        let head = format!("[{}] {configuration}, {load}, repeat {}", self.place(), repeat + 1);
        match (&record.outcome, &self.bar) {
            (Outcome::Failed { reason, .. }, _) if self.failed.insert(key(configuration, reason)) => {
                self.say(&format!("{head}: failed: {reason}"));
            }
            (Outcome::Failed { .. }, None) => self.say(&format!("{head}: failed for the same reason")),
            (Outcome::Failed { .. }, Some(_)) => {}
            (Outcome::Measured(figures), None) => {
                let left = self.left().map_or_else(String::new, |left| format!(", {left}"));
                self.say(&format!("{head}: {}{left}", result(configuration, figures)));
            }
            (Outcome::Measured(figures), Some(_)) => {
                self.last = format!(" · last {configuration}: {:.0} tokens/s", rate(figures));
            }
        }
        if let Outcome::Measured(figures) = &record.outcome {
            let of_load = self.rates.entry(*load).or_default();
            of_load.entry(configuration.clone()).or_default().push(rate(figures));
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
    use tuner::trials::record::Steady;

    use super::*;

    #[test]
    fn what_is_left_is_reported_once_it_is_known_and_is_never_nothing() {
        let pace = |trial_seconds, trials| TrialPace { trial_seconds, trials, ..TrialPace::default() };
        let seconds = |pace: TrialPace, trials| pace.left(trials).map(|left| left.seconds);
        assert_eq!(seconds(pace(0.0, 0), 40), None);
        assert_eq!(seconds(pace(5.0, 2), 40), None);
        assert_eq!(seconds(pace(6.0, 3), 40), Some(80.0));
        assert_eq!(seconds(pace(6.0, 3), 0), None);
        let words = [0.01, 12.0, 80.0, 300.0].map(rounded);
        assert_eq!(words, ["10 s", "20 s", "80 s", "5 min"].map(String::from));
    }

    #[test]
    fn a_line_has_the_throughput_of_the_table_without_stalls() {
        let wall = Measurement { output_tokens_per_s: 80.0, accept_length: 2.5, ..Measurement::default() };
        let steady = Steady { output_tokens_per_s: 100.0, ..wall.by_wall_clock() };
        let figures = Measurement { steady: Some(steady), ..wall.clone() };
        let chain = Configuration::from_shape("3,1,4".parse().expect("a shape"));
        assert_eq!(result(&chain, &figures), "100.0 tokens/s, accept length 2.50");
        assert_eq!(result(&chain, &wall), "80.0 tokens/s, accept length 2.50", "of a server");
    }

    #[test]
    fn a_known_version_is_checked_and_its_error_ends_the_sweep() {
        let old: EngineVersion = "0.5.6".parse().expect("a version");
        let check = |version: EngineVersion| match version == old {
            true => Err(TunerError::Configuration(format!("errors in {version}"))),
            false => Ok(()),
        };
        let known = |version: Option<&str>, check: Option<&CheckVersion<'_>>| {
            let version = version.map(|text| text.parse().expect("a version"));
            Bar::checking(check, str::to_owned).engine_known(version).map_err(|error| error.to_string())
        };
        assert_eq!(known(Some("0.5.23"), Some(&check)), Ok(()));
        assert!(known(Some("0.5.6"), Some(&check)).is_err_and(|error| error.contains("errors in 0.5.6")));
        assert_eq!(known(None, Some(&check)), Ok(()), "the engine does not tell it");
        assert_eq!(known(Some("0.5.6"), None), Ok(()), "nothing checks it");
    }

    #[test]
    fn starts_of_servers_renew_the_remaining_time_and_are_no_part_of_a_trial() {
        let mut pace = TrialPace { starts_left: 6, ..TrialPace::default() };
        pace.started(40.0);
        assert_eq!(pace.left(30), Some(TimeLeft { seconds: 200.0, without_trials: true }));
        pace.start_seconds_now = 0.0;
        pace.ended(2.0, true);
        pace.ended(2.0, true);
        pace.started(20.0);
        pace.ended(22.0, true);
        // A rejected configuration does not run.
        pace.ended(0.0, false);
        assert_eq!(pace.left(10), Some(TimeLeft { seconds: 10.0 * 2.0 + 4.0 * 30.0, without_trials: false }));
    }
}

//! A progress bar on a terminal, a line a trial elsewhere.

use indicatif::ProgressBar;
use tuner::{
    record::{Outcome, Record, Trial},
    strategy::Planned,
    sweep::Progress,
};

use crate::terminal;

/// What a sweep shows while it runs.
#[derive(Debug, Default)]
pub struct Bar {
    bar: Option<ProgressBar>,
    done: usize,
    planned: Option<Planned>,
}

impl Bar {
    /// Leaves the terminal clean.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Trials that are in the journal.
    pub fn done(&self) -> usize {
        self.done
    }

    /// A bar in the place of the one before, on a terminal.
    fn show(&mut self, steps: usize, template: &str) {
        self.finish();
        self.bar = terminal::bar(steps, template);
    }

    /// Where a sweep is: of so many trials, or of so many at most.
    fn place(&self) -> String {
        match self.planned {
            Some(Planned { trials, exact: true }) => format!("[{}/{trials}]", self.done),
            Some(Planned { trials, exact: false }) => format!("[{} of at most {trials}]", self.done),
            None => format!("[{}]", self.done),
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => terminal::note(text),
        }
    }
}

impl Progress for Bar {
    fn planned(&mut self, planned: Planned, done: usize) {
        (self.planned, self.done) = (Some(planned), done);
        // Fewer may do: then the time that is left is not known.
        let left = if planned.exact { ", {eta} left" } else { "" };
        self.show(planned.trials, &format!("{{bar:32}} {{pos}}/{{len}}  {{elapsed}} gone{left}  {{msg}}"));
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
        }
    }

    fn preparing(&mut self, what: &str, steps: usize) {
        self.show(steps, "{bar:32} {percent:>3}%  {elapsed} gone  {msg}");
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
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}, {}", trial.configuration, trial.load));
        }
    }

    fn finished(&mut self, record: &Record) {
        self.done += 1;
        let Trial { configuration, load, repeat } = &record.trial;
        let head = format!("{} {configuration}, {load}, repeat {}", self.place(), repeat + 1);
        match (&record.outcome, &self.bar) {
            (Outcome::Failed { reason }, _) => self.say(&format!("{head}: failed: {reason}")),
            (Outcome::Measured(figures), None) => self.say(&format!(
                "{head}: {:.1} tokens/s, accept length {:.2}",
                figures.output_tokens_per_s, figures.accept_length
            )),
            (Outcome::Measured(_), Some(_)) => {}
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.done as u64);
        }
    }

    fn note(&mut self, text: &str) {
        self.say(text);
    }
}

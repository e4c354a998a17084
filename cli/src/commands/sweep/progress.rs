//! A progress bar on a terminal, a line a trial elsewhere.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tuner::{
    record::{Outcome, Record, Trial},
    sweep::Progress,
};

use crate::terminal;

/// What a sweep shows while it runs.
#[derive(Debug, Default)]
pub struct Bar {
    bar: Option<ProgressBar>,
    done: usize,
    planned: usize,
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

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => terminal::note(text),
        }
    }
}

impl Progress for Bar {
    fn planned(&mut self, trials: usize, done: usize) {
        (self.planned, self.done) = (trials, done);
        if stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(trials as u64), ProgressDrawTarget::stderr());
            // The template is ours and valid; a default bar would do as well.
            if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len}  {elapsed} gone, {eta} left  {msg}") {
                bar.set_style(style);
            }
            bar.set_position(done as u64);
            self.bar = Some(bar);
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
        let head = format!("[{}/{}] {configuration}, {load}, repeat {}", self.done, self.planned, repeat + 1);
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

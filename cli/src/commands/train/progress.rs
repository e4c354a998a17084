//! Progress: a bar on a terminal, and lines for evaluations and notes.

use indicatif::ProgressBar;
use schemas::training_record::{CurvePoint, Evaluation};
use training::{AnswerProgress, TrainProgress};

use crate::terminal;

/// Progress of a training run.
#[derive(Default)]
pub struct ShownProgress {
    bar: Option<ProgressBar>,
    /// Unit of the bar's steps.
    counts: &'static str,
    begun: bool,
}

impl ShownProgress {
    /// Removes the bar from the terminal.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Shows an event.
    pub fn show(&mut self, progress: TrainProgress<'_>) {
        match progress {
            TrainProgress::Answers(answers) => self.answers(answers),
            TrainProgress::Note(words) => self.say(&words),
            TrainProgress::Steps { steps, point } => self.steps(steps, point),
            TrainProgress::Evaluated { evaluation, best } => self.say(&words(evaluation, best)),
            TrainProgress::Judging => {
                self.finish();
                self.say("comparing the chosen checkpoint with the previous head on the judging prompts");
            }
        }
    }

    fn answers(&mut self, AnswerProgress { done, all, tokens, seconds }: AnswerProgress) {
        if all == 0 {
            return;
        }
        if !self.begun {
            self.begun = true;
            self.say(&format!("the target answers {all} prompts"));
        }
        self.count("answers", all, done, format!("{:.0} tokens/s", tokens as f64 / seconds.max(1e-9)));
        if done == all {
            self.finish();
            self.say(&format!("answered: {tokens} tokens, {:.0} tokens/s", tokens as f64 / seconds.max(1e-9)));
        }
    }

    fn steps(&mut self, steps: usize, point: &CurvePoint) {
        let first = |values: &[f64]| values.first().copied().unwrap_or_default();
        let text = format!(
            "loss {:.3}, agreement {:.1}%, {:.0} tokens/s",
            first(&point.loss),
            first(&point.agreement) * 100.0,
            point.rows_per_s
        );
        if self.bar.is_none() {
            self.say(&format!("step {}/{steps}: {text}", point.step));
        }
        self.count("steps", steps, point.step, text);
    }

    fn count(&mut self, counts: &'static str, all: usize, done: usize, message: String) {
        if self.bar.is_none() || self.counts != counts {
            self.finish();
            self.counts = counts;
            self.bar =
                crate::progress::bar(all, "{bar:32} {pos}/{len} {prefix}  {elapsed} elapsed, {eta} left  {wide_msg}");
        }
        if let Some(bar) = &self.bar {
            bar.set_prefix(counts);
            bar.set_position(done as u64);
            bar.set_message(message);
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(terminal::wrapped_for_stderr(text)),
            None => terminal::note(text),
        }
    }
}

fn words(evaluation: &Evaluation, best: bool) -> String {
    let general = evaluation.general_loss.map_or_else(String::new, |loss| {
        let length = evaluation.general_accept_length.unwrap_or_default();
        format!(", general prompts: loss {loss:.3}, accept length {length:.3}")
    });
    let place = match evaluation.step {
        0 => "before".to_owned(),
        step => format!("step {step}"),
    };
    let best = if best { "   best so far" } else { "" };
    format!("{place}: accept length {:.3}, loss {:.3}{general}{best}", evaluation.accept_length, evaluation.loss)
}

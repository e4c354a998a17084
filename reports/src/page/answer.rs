//! The answer for one batch size: what to run, and how sure that is.

use schemas::{
    export::{Exported, Form, Tuning, export},
    launch::quoted,
    tree::TreeShape,
};
use serde::Serialize;
use tuner::selection::{Interval, Verdict};

use crate::{
    batch::Batch,
    columns,
    figures::{self, MISSING},
    section::Section,
};

/// The answer for one batch size.
#[derive(Serialize)]
pub struct Answer {
    /// Requests kept running together.
    pub batch_size: usize,
    /// What to run: a triple, or `no speculation`.
    pub winner: String,
    /// The triple with its names; empty without one.
    pub shape: String,
    /// What was found, in a sentence.
    pub verdict: String,
    /// The verdict in a word, for colours: `pays`, `same`, `loses` or `unknown`.
    pub mood: &'static str,
    /// Output tokens a second.
    pub throughput: String,
    /// Its interval.
    pub throughput_range: String,
    /// Output tokens a second for one user.
    pub speed: String,
    /// Accept length.
    pub accept_length: String,
    /// Gain over no speculation.
    pub gain: Gain,
    /// Gain over the engine's default.
    pub gain_over_default: Gain,
    /// Texts to paste.
    pub launches: Vec<Launch>,
}

/// A gain with its interval.
#[derive(Serialize)]
pub struct Gain {
    /// The median.
    pub text: String,
    /// The ends of the interval, or why there are none.
    pub range: String,
}

/// A text to paste.
#[derive(Serialize)]
pub struct Launch {
    /// For which engine.
    pub engine: &'static str,
    /// The text.
    pub text: String,
    /// What must be known beside it.
    pub notes: Vec<String>,
}

impl Answer {
    /// The answer for a batch size.
    pub fn new(batch: &Batch, section: &Section<'_>) -> Self {
        let winner = batch.winner();
        let (verdict, mood) = verdict(batch);
        let throughput = winner.and_then(|winner| winner.ranked.output_tokens_per_s);
        let quantity = |value: Option<f64>| value.map_or(MISSING.into(), figures::quantity);
        let is_off = winner.is_some_and(|winner| winner.ranked.configuration.shape.is_off());
        let is_default = winner
            .zip(batch.engine_default())
            .is_some_and(|(winner, other)| winner.ranked.configuration.shape == other.ranked.configuration.shape);
        Self {
            batch_size: batch.batch_size,
            winner: winner.map_or(MISSING.into(), columns::name),
            shape: winner.filter(|_| !is_off).map_or(String::new(), |winner| {
                let TreeShape { num_steps, topk, num_draft_tokens } = winner.ranked.configuration.shape;
                format!("num_steps {num_steps} · topk {topk} · num_draft_tokens {num_draft_tokens}")
            }),
            verdict,
            mood,
            throughput: quantity(throughput.map(|figure| figure.median)),
            throughput_range: throughput
                .filter(|figure| figure.low < figure.high)
                .map_or(String::new(), |figure| format!("95% interval {}", figures::range(figure, figures::quantity))),
            speed: quantity(winner.and_then(|winner| Some(winner.ranked.tokens_per_s_per_user?.median))),
            accept_length: quantity(winner.and_then(|winner| winner.ranked.accept_length)),
            gain: match winner {
                Some(_) if is_off => Gain::same("it is no speculation"),
                Some(_) if batch.baseline().is_none() => Gain::unknown("no speculation was not measured"),
                Some(winner) => Gain::new(winner.ranked.speedup, winner.ranked.repeats),
                None => Gain::unknown("nothing was measured"),
            },
            gain_over_default: match winner {
                Some(_) if is_default => Gain::same("it is the engine's default"),
                Some(_) if batch.engine_default().is_none() => Gain::unknown("the default was not measured"),
                Some(winner) => Gain::new(batch.over_default, winner.ranked.repeats),
                None => Gain::unknown("nothing was measured"),
            },
            launches: winner
                .map_or_else(Vec::new, |winner| launches(winner.ranked.configuration.shape, batch.batch_size, section)),
        }
    }
}

/// The texts to paste: whole launches where a tuned file tells the models, else the shape's flags alone.
fn launches(shape: TreeShape, batch_size: usize, section: &Section<'_>) -> Vec<Launch> {
    let tuned = section.sweeps.iter().find_map(|sweep| Some((sweep, sweep.tuned.as_ref()?)));
    let Some((sweep, tuned)) = tuned else {
        return if shape.is_off() { Vec::new() } else { vec![bare(shape)] };
    };
    // The card is about this batch size alone, whatever the table says of others.
    let tuning = Tuning { table: vec![(batch_size, shape)], ..Tuning::from(tuned) };
    let exports = [("SGLang", Form::Sglang), ("slime", Form::Slime)].into_iter().filter_map(|(engine, form)| {
        let Exported { text, notes } = export(&tuning, form, Some(batch_size), None).ok()?;
        Some(Launch { engine, text, notes })
    });
    let path = format!("{}/tuned.toml", sweep.name.trim_end_matches('/'));
    let own = Launch {
        engine: "spectune",
        text: format!("spectune serve {}\n", quoted(&path)),
        notes: vec!["follows the whole table: the tree shape changes with the running batch".into()],
    };
    exports.chain([own]).collect()
}

fn bare(shape: TreeShape) -> Launch {
    let TreeShape { num_steps, topk, num_draft_tokens } = shape;
    Launch {
        engine: "SGLang",
        text: format!(
            "--speculative-num-steps {num_steps} --speculative-eagle-topk {topk} --speculative-num-draft-tokens {num_draft_tokens}\n"
        ),
        notes: vec!["the sweep has written no tuned file yet, so the models' flags are not known here".into()],
    }
}

/// What was found, in a sentence, and the mood that goes with it.
fn verdict(batch: &Batch) -> (String, &'static str) {
    let Some(winner) = batch.winner() else {
        return if batch.measured().next().is_some() {
            ("Nothing can be chosen: the repeats of every configuration differ too much.".into(), "unknown")
        } else {
            ("No trial succeeded at this batch size.".into(), "unknown")
        };
    };
    match batch.verdict {
        Verdict::Unknown => (
            "The best of those measured. No speculation was not measured, so whether speculation pays is not known."
                .into(),
            "unknown",
        ),
        Verdict::DoesNotPay => does_not_pay(batch),
        Verdict::Pays if winner.ranked.repeats < 2 => (
            "Faster than no speculation in its only repeat: without further repeats the noise is not known.".into(),
            "same",
        ),
        Verdict::Pays => (format!("Speculation pays here.{}", ties(batch)), "pays"),
    }
}

/// Why the chosen configuration need not be the first of the ranking.
fn ties(batch: &Batch) -> String {
    match batch.measured().filter(|entry| entry.ranked.tied_with_best && !entry.chosen).count() {
        0 => String::new(),
        1 => " One other cannot be told apart from it and is less simple.".into(),
        others => format!(" {others} others cannot be told apart from it and are less simple."),
    }
}

fn does_not_pay(batch: &Batch) -> (String, &'static str) {
    let best = batch.best_speculating();
    let speedup = best.and_then(|best| Some((best, best.ranked.speedup?)));
    match speedup {
        Some((best, _)) if best.ranked.tied_with_best => (
            format!(
                "Speculation does not pay here: no significant difference between {} and no speculation, and the simpler way wins.",
                best.ranked.configuration.shape
            ),
            "same",
        ),
        Some((best, _)) if best.ranked.too_noisy => (
            format!(
                "Speculation does not pay here as far as can be told: the repeats of {} differ too much to choose it.",
                best.ranked.configuration.shape
            ),
            "same",
        ),
        Some((best, speedup)) => (
            format!(
                "Speculation does not pay here: the best speculating configuration, {}, is at {} of no speculation.",
                best.ranked.configuration.shape,
                figures::ratio(speedup.median)
            ),
            "loses",
        ),
        None => ("Speculation does not pay here.".into(), "loses"),
    }
}

impl Gain {
    fn new(ratio: Option<Interval>, repeats: usize) -> Self {
        let Some(ratio) = ratio else { return Self::unknown("no common repeat") };
        let range = match repeats {
            0 | 1 => "one repeat, no interval".into(),
            _ => format!("95% interval {}", figures::gain_range(ratio)),
        };
        Self { text: figures::gain(ratio.median), range }
    }

    fn same(why: &str) -> Self {
        Self { text: "±0%".into(), range: why.to_owned() }
    }

    fn unknown(why: &str) -> Self {
        Self { text: MISSING.into(), range: why.to_owned() }
    }
}

//! The answer for one load: what to run, and how sure that is.

mod launches;

use serde::Serialize;
use tuner::selection::{Disturbance, Interval, Verdict};

use crate::{
    columns,
    figures::{self, MISSING},
    names,
    race::{Entry, Race},
    section::Section,
};

use self::launches::Launch;

/// The answer for one load.
#[derive(Serialize)]
pub struct Answer {
    /// How requests came.
    pub load: String,
    /// Where the race stands on the page.
    pub anchor: String,
    /// What to run.
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
    /// Output tokens a second of the requests that kept the limits; empty without limits.
    pub goodput: String,
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

impl Answer {
    /// The answer for a load; `anchor` is where its race stands on the page.
    pub fn new(race: &Race, section: &Section<'_>, anchor: String) -> Self {
        let winner = race.winner();
        let (verdict, mood) = verdict(race);
        let throughput = winner.and_then(|winner| winner.ranked.output_tokens_per_s);
        let goodput = winner.and_then(|winner| winner.ranked.goodput_tokens_per_s);
        let quantity = |value: Option<f64>| value.map_or(MISSING.into(), figures::quantity);
        let is_off = winner.is_some_and(Entry::is_off);
        Self {
            load: names::heading(race.load),
            anchor,
            winner: winner.map_or(MISSING.into(), columns::name),
            shape: winner.filter(|_| !is_off).map_or(String::new(), triple),
            verdict,
            mood,
            throughput: quantity(throughput.map(|figure| figure.median)),
            throughput_range: throughput.filter(|figure| figure.low < figure.high).map_or(String::new(), |figure| {
                format!("{} {}", figures::interval_name(figure), figures::range(figure, figures::quantity))
            }),
            goodput: goodput.map_or(String::new(), |figure| figures::quantity(figure.median)),
            speed: quantity(winner.and_then(|winner| Some(winner.ranked.tokens_per_s_per_user?.median))),
            accept_length: quantity(winner.and_then(|winner| winner.ranked.accept_length)),
            gain: over_no_speculation(race),
            gain_over_default: over_default(race),
            launches: winner
                .map_or_else(Vec::new, |winner| launches::launches(&winner.ranked.configuration, race.load, section)),
        }
    }
}

/// The winner's tree in words; empty for a table, whose rows its name has.
fn triple(winner: &Entry) -> String {
    let configuration = &winner.ranked.configuration;
    if !configuration.table.is_empty() {
        return "the tree changes with the running batch".into();
    }
    let schemas::tree::TreeShape { num_steps, topk, num_draft_tokens } = configuration.shape;
    format!("num_steps {num_steps} · topk {topk} · num_draft_tokens {num_draft_tokens}")
}

fn over_no_speculation(race: &Race) -> Gain {
    match race.winner() {
        Some(_) if race.baseline().is_some_and(|baseline| baseline.chosen) => Gain::same("it is no speculation"),
        Some(_) if race.baseline().is_none() => Gain::unknown("no speculation was not measured"),
        Some(winner) => Gain::new(winner.ranked.speedup, winner.ranked.repeats),
        None => Gain::unknown("nothing was measured"),
    }
}

fn over_default(race: &Race) -> Gain {
    match (race.winner(), race.engine_default()) {
        (None, _) => Gain::unknown("nothing was measured"),
        (Some(_), None) => Gain::unknown("the default was not measured"),
        (Some(_), Some(default)) if default.chosen => Gain::same("it is the engine's default"),
        (Some(winner), Some(_)) => Gain::new(race.over_default, winner.ranked.repeats),
    }
}

/// What was found, in a sentence or two, and the mood that goes with it.
fn verdict(race: &Race) -> (String, &'static str) {
    if race.winner().is_none() {
        return if race.measured().next().is_some() {
            ("Nothing can be chosen: the repeats of every configuration differ too much.".into(), "unknown")
        } else {
            ("No trial succeeded under this load.".into(), "unknown")
        };
    }
    let (mut words, mood) = match race.verdict {
        Verdict::NotCompared => (
            "The best of those measured. No speculation was not measured, so whether speculation pays is not known."
                .into(),
            "unknown",
        ),
        Verdict::Pays => (format!("Speculation pays here.{}", ties(race)), "pays"),
        Verdict::DoesNotPay => does_not_pay(race),
        Verdict::Tie => (
            "No difference from no speculation is found, and gains of more than 5% are excluded: the simpler way is chosen."
                .into(),
            "same",
        ),
        Verdict::CannotTell(doubt) => (
            format!("Whether speculation pays is {}. No speculation is chosen, since nothing is shown to beat it.", doubt.words()),
            "unknown",
        ),
    };
    if let Some(busy) = busy_machine(race) {
        words.push_str(&busy);
    }
    if race.keeps_up {
        words = format!(
            "Every configuration keeps up with this load, which does not tell them apart; latency is compared. {words}"
        );
    }
    if let Some(default) = no_difference_from_default(race) {
        words.push_str(&default);
    }
    if race.simulated() {
        words.push_str(" Acceptance was simulated: the times are real, the texts are not.");
    }
    (words, mood)
}

/// Where the interval of the winner against the default includes no difference, that is said: the default does as well.
fn no_difference_from_default(race: &Race) -> Option<String> {
    let default = race.engine_default().filter(|default| !default.chosen)?;
    let Interval { low, high, .. } = race.over_default?;
    let repeated = race.winner().is_some_and(|winner| winner.ranked.repeats > 1);
    (repeated && low <= 1.0 && 1.0 <= high)
        .then(|| format!(" No significant difference from the engine's default, {}.", default.ranked.configuration))
}

/// Why the chosen configuration need not be the first of the ranking.
fn ties(race: &Race) -> String {
    match race.measured().filter(|entry| entry.ranked.tied_with_best && !entry.chosen).count() {
        0 => String::new(),
        1 => " One other cannot be told apart from it and is less simple.".into(),
        others => format!(" {others} others cannot be told apart from it and are less simple."),
    }
}

/// Shares of stalled time from which on it is said.
const FELT_STALL: f64 = 0.05;

/// What the machine did beside, where that matters.
fn busy_machine(race: &Race) -> Option<String> {
    let Disturbance { trials, left_out, stalled_share, wall_speedup, .. } = race.disturbance;
    let stalled = stalled_share.filter(|share| *share > FELT_STALL);
    if stalled.is_none() && left_out == 0 && wall_speedup.is_none() {
        return None;
    }
    let mut words = " The machine was busy with other things".to_owned();
    if let Some(share) = stalled {
        words +=
            &format!(": steps stalled for {} of the time, which is left out of the figures", figures::share(share));
    }
    if left_out > 0 {
        words += &format!("; {left_out} of {trials} trials stalled throughout and are left out");
    }
    if let Some(wall) = wall_speedup {
        words +=
            &format!("; by the wall clock the best that speculates was at {} of no speculation", figures::ratio(wall));
    }
    Some(words + ".")
}

fn does_not_pay(race: &Race) -> (String, &'static str) {
    let best = race.best_speculating();
    let words = match best.and_then(|best| Some((best, best.ranked.speedup?))) {
        Some((best, speedup)) => format!(
            "Speculation does not pay here: the best speculating configuration, {}, is at {} of no speculation.",
            best.ranked.configuration,
            figures::ratio(speedup.median)
        ),
        None => "Speculation does not pay here.".into(),
    };
    (words, "loses")
}

impl Gain {
    fn new(ratio: Option<Interval>, repeats: usize) -> Self {
        let Some(ratio) = ratio else { return Self::unknown("no common repeat") };
        let range = match repeats {
            0 | 1 => "one repeat, no range".into(),
            _ => format!("{} {}", figures::interval_name(ratio), figures::gain_range(ratio)),
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

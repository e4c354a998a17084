//! The answer for one load: what to run, and how certain that is.

mod launches;
mod verdict;

use serde::Serialize;
use tuner::results::selection::{Interval, RangeKind};

use crate::{
    columns,
    figures::{self, MISSING},
    names,
    race::{Race, RaceEntry},
    section::Section,
};

use self::launches::AnswerLaunch;
pub use self::{
    launches::{FlagRemarks, flag_remarks},
    verdict::notes,
};

/// The answer for one load.
#[derive(Serialize)]
pub struct Answer {
    /// How requests arrived.
    pub load: String,
    /// Anchor of the race on the page.
    pub anchor: String,
    /// The configuration to run.
    pub winner: String,
    /// The tree with the names of its numbers; empty without one.
    pub shape: String,
    /// The verdict in a sentence.
    pub verdict: String,
    /// Category of the verdict, for colours: `pays`, `same`, `loses` or `unknown`.
    pub mood: &'static str,
    /// Significant disturbances of the trials.
    pub disturbance: Option<String>,
    /// The engine and the device that were measured.
    pub measured: String,
    /// Output tokens per second.
    pub throughput: String,
    /// Its interval.
    pub throughput_range: String,
    /// Output tokens per second of the requests within the limits; empty without limits.
    pub goodput: String,
    /// Output tokens per second for one user.
    pub speed: String,
    /// Accept length; empty without speculation.
    pub accept_length: String,
    /// Gain over no speculation.
    pub gain: Gain,
    /// Gain over the engine's default.
    pub gain_over_default: Gain,
    /// Launch commands for each engine.
    pub launches: Vec<AnswerLaunch>,
}

/// A gain with its interval.
#[derive(Serialize)]
pub struct Gain {
    /// The median.
    pub text: String,
    /// The bounds of the interval, or the reason why there are none.
    pub range: String,
}

impl Answer {
    /// The answer for a load; `anchor` is its race's anchor on the page.
    pub fn new(race: &Race, section: &Section<'_>, anchor: String) -> Self {
        let winner = race.winner();
        let (verdict, mood) = verdict::verdict(race);
        let throughput = winner.and_then(|winner| winner.ranked.output_tokens_per_s);
        let goodput = winner.and_then(|winner| winner.ranked.goodput_tokens_per_s);
        let quantity = |value: Option<f64>| value.map_or(MISSING.into(), figures::quantity);
        let is_off = winner.is_some_and(RaceEntry::is_off);
        Self {
            load: names::heading(race.load),
            anchor,
            winner: winner.map_or(MISSING.into(), columns::name),
            shape: match winner {
                Some(_) if is_off && mood == "unknown" => "until something is shown to be faster".into(),
                Some(winner) if !is_off => triple(winner),
                _ => String::new(),
            },
            verdict,
            mood,
            disturbance: verdict::disturbance(race),
            measured: format!("measured: {} on {}", section.engine(), section.fingerprint.device_name),
            throughput: quantity(throughput.map(|figure| figure.median)),
            throughput_range: throughput.filter(|figure| figure.low < figure.high).map_or(String::new(), |figure| {
                let repeats = winner.map_or(0, |winner| winner.ranked.repeats);
                format!("{} {}", figures::interval_name(figure, repeats), figures::range(figure, figures::quantity))
            }),
            goodput: goodput.map_or(String::new(), |figure| figures::quantity(figure.median)),
            speed: quantity(winner.and_then(|winner| Some(winner.ranked.tokens_per_s_per_user?.median))),
            accept_length: if is_off {
                String::new()
            } else {
                quantity(winner.and_then(|winner| winner.ranked.accept_length))
            },
            gain: over_no_speculation(race),
            gain_over_default: over_default(race),
            launches: winner
                .map_or_else(Vec::new, |winner| launches::launches(&winner.ranked.configuration, race.load, section)),
        }
    }
}

/// The winner's tree in words; for a table, only that it varies.
fn triple(winner: &RaceEntry) -> String {
    let configuration = &winner.ranked.configuration;
    if !configuration.table.is_empty() {
        return "the tree changes with the running batch".into();
    }
    let schemas::tree::TreeShape { num_steps, topk, num_draft_tokens, row_budget } = configuration.shape;
    let budget = row_budget.map_or_else(String::new, |rows| format!(" · {rows} verified rows per request"));
    format!("num_steps {num_steps} · topk {topk} · num_draft_tokens {num_draft_tokens}{budget}")
}

fn over_no_speculation(race: &Race) -> Gain {
    match race.winner() {
        Some(_) if race.baseline().is_some_and(|baseline| baseline.chosen) => Gain::same("it runs without speculation"),
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

impl Gain {
    fn new(ratio: Option<Interval>, repeats: usize) -> Self {
        let Some(ratio) = ratio else { return Self::unknown("no common repeat") };
        let name = figures::interval_name(ratio, repeats);
        let range = match ratio.kind {
            RangeKind::Single => name,
            _ if ratio.high > verdict::LARGEST_END => "repeats do not bound it yet".into(),
            _ => format!("{name} {}", figures::gain_range(ratio)),
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

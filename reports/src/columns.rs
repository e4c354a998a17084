//! The columns of a ranking: a single list for all formats of the report.

use schemas::sweep::Metric;
use tuner::{
    results::selection::{Interval, Ranked},
    trials::record::CandidateRole,
};

use crate::{
    figures::{self, MISSING},
    race::{Race, RaceEntry},
};

/// One figure of a configuration.
pub struct Column {
    /// Name in machine-readable tables.
    pub key: &'static str,
    /// Heading.
    pub heading: &'static str,
    /// Short heading.
    pub short: &'static str,
    /// Unit; empty for none.
    pub unit: &'static str,
    /// Its definition, in one sentence.
    pub meaning: &'static str,
    /// Priority for being dropped if there is too little room: the largest goes first.
    pub expendable: u8,
    /// Whether it is omitted if no configuration of a race has it.
    pub optional: bool,
    /// Formats the figure.
    pub write: fn(f64) -> String,
    /// Reads the figure.
    pub figure: fn(&RaceEntry) -> FigureColumn,
}

/// A figure of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FigureColumn {
    /// Not measured.
    Missing,
    /// A value of unknown spread.
    Value(f64),
    /// A median with its interval.
    Interval(Interval),
}

/// All columns in the order in which they are shown.
pub const COLUMNS: &[Column] = &[
    Column {
        key: "speedup",
        heading: "speed-up",
        short: "speed-up",
        unit: "",
        meaning: "the objective relative to no speculation, compared within each repeat: median over the pairs; above 1 is better; the ranking is in this order",
        expendable: 0,
        optional: false,
        write: figures::ratio,
        figure: |entry| interval(&entry.ranked, |ranked| ranked.speedup),
    },
    Column {
        key: "output_tokens_per_s",
        heading: "throughput",
        short: "tok/s",
        unit: "tok/s",
        meaning: crate::definitions::THROUGHPUT,
        expendable: 0,
        optional: false,
        write: figures::quantity,
        figure: |entry| interval(&entry.ranked, |ranked| ranked.output_tokens_per_s),
    },
    Column {
        key: "goodput_tokens_per_s",
        heading: "goodput",
        short: "goodput",
        unit: "tok/s",
        meaning: "output tokens per second of the requests within the objective's limits",
        expendable: 0,
        optional: true,
        write: figures::quantity,
        figure: |entry| interval(&entry.ranked, |ranked| ranked.goodput_tokens_per_s),
    },
    Column {
        key: "tokens_per_s_per_user",
        heading: "one user",
        short: "/user",
        unit: "tok/s",
        meaning: "output tokens per second as one request sees it after its first token: median over requests",
        expendable: 3,
        optional: false,
        write: figures::quantity,
        figure: |entry| interval(&entry.ranked, |ranked| ranked.tokens_per_s_per_user),
    },
    Column {
        key: "latency_ms",
        heading: "latency",
        short: "latency",
        unit: "ms",
        meaning: "from submission to the last token: median over requests",
        expendable: 4,
        optional: false,
        write: figures::quantity,
        figure: |entry| interval(&entry.ranked, |ranked| ranked.latency_ms),
    },
    Column {
        key: "time_to_first_token_ms",
        heading: "first token",
        short: "TTFT",
        unit: "ms",
        meaning: "from submission to the first token: median over requests",
        expendable: 5,
        optional: false,
        write: figures::quantity,
        figure: |entry| interval(&entry.ranked, |ranked| ranked.time_to_first_token_ms),
    },
    Column {
        key: "inter_token_ms",
        heading: "inter-token",
        short: "ITL",
        unit: "ms",
        meaning: "mean time between output tokens of a request after its first one: median over requests",
        expendable: 5,
        optional: true,
        write: figures::quantity,
        figure: |entry| value(entry.inter_token_ms),
    },
    Column {
        key: "accept_length",
        heading: "accept length",
        short: "accept",
        unit: "",
        meaning: crate::definitions::ACCEPT_LENGTH,
        expendable: 1,
        optional: false,
        write: figures::quantity,
        figure: |entry| value(entry.ranked.accept_length),
    },
    Column {
        key: "round_ms",
        heading: "round",
        short: "round",
        unit: "ms",
        meaning: "wall time of a round of the whole running batch: median over rounds",
        expendable: 2,
        optional: false,
        write: figures::quantity,
        figure: |entry| interval(&entry.ranked, |ranked| ranked.round_ms),
    },
    Column {
        key: "tokens_per_joule",
        heading: "tokens per joule",
        short: "tok/J",
        unit: "",
        meaning: "output tokens per joule that the GPU used, prefill included: median over repeats",
        expendable: 6,
        optional: true,
        write: figures::quantity,
        figure: |entry| value(entry.tokens_per_joule),
    },
    Column {
        key: "retractions",
        heading: "retractions",
        short: "retr.",
        unit: "",
        meaning: "times that a request was put back because the KV cache was full, and prefilled again: median over repeats",
        expendable: 2,
        optional: true,
        write: figures::quantity,
        figure: |entry| value(entry.retractions),
    },
    Column {
        key: "draft_wait_ms",
        heading: "waiting for drafts",
        short: "wait",
        unit: "ms",
        meaning: crate::definitions::DRAFT_WAIT,
        expendable: 5,
        optional: true,
        write: figures::quantity,
        figure: |entry| value(entry.draft_wait_ms),
    },
    Column {
        key: "draft_ms",
        heading: "draft",
        short: "draft",
        unit: "ms",
        meaning: "the draft's steps in a round",
        expendable: 6,
        optional: false,
        write: figures::quantity,
        figure: |entry| value(entry.split.and_then(|split| split.draft)),
    },
    Column {
        key: "verify_ms",
        heading: "verify",
        short: "verify",
        unit: "ms",
        meaning: "the target's pass over the tree in a round",
        expendable: 7,
        optional: false,
        write: figures::quantity,
        figure: |entry| value(entry.split.map(|split| split.verify)),
    },
    Column {
        key: "extend_ms",
        heading: "extend",
        short: "extend",
        unit: "ms",
        meaning: "the extension of the draft's cache in a round",
        expendable: 8,
        optional: false,
        write: figures::quantity,
        figure: |entry| value(entry.split.and_then(|split| split.extend)),
    },
];

/// The columns of a race: all except optional ones without a measurement.
pub fn for_race(race: &Race) -> Vec<&'static Column> {
    let entries = || race.measured().chain(race.measured_probes());
    let known = |column: &Column| entries().any(|entry| (column.figure)(entry).value().is_some());
    COLUMNS.iter().filter(|column| !column.optional || known(column)).collect()
}

fn interval(ranked: &Ranked, of: fn(&Ranked) -> Option<Interval>) -> FigureColumn {
    of(ranked).map_or(FigureColumn::Missing, FigureColumn::Interval)
}

fn value(value: Option<f64>) -> FigureColumn {
    value.map_or(FigureColumn::Missing, FigureColumn::Value)
}

impl FigureColumn {
    /// The value or the median.
    pub fn value(self) -> Option<f64> {
        match self {
            Self::Missing => None,
            Self::Value(value) => Some(value),
            Self::Interval(interval) => Some(interval.median),
        }
    }

    /// The interval, if known.
    pub fn interval(self) -> Option<Interval> {
        if let Self::Interval(interval) = self { Some(interval) } else { None }
    }
}

impl Column {
    /// Whether it is one of the main figures under a metric, shown where there is little room.
    pub fn is_main(&self, metric: Metric) -> bool {
        let main = ["speedup", "output_tokens_per_s", "tokens_per_s_per_user", "accept_length"];
        self.is_ranked_by(metric) || main.contains(&self.key)
    }

    /// Whether it is the figure of a metric.
    pub fn is_ranked_by(&self, metric: Metric) -> bool {
        self.key
            == match metric {
                Metric::Throughput | Metric::Pareto => "output_tokens_per_s",
                Metric::Goodput => "goodput_tokens_per_s",
                Metric::Latency => "latency_ms",
            }
    }

    /// The formatted figure of an entry.
    pub fn text(&self, entry: &RaceEntry) -> String {
        (self.figure)(entry).value().map_or(MISSING.into(), self.write)
    }

    /// The formatted bounds of the interval; empty if it has no length or is unknown.
    pub fn range(&self, entry: &RaceEntry) -> Option<String> {
        let interval = (self.figure)(entry).interval()?;
        (interval.low < interval.high).then(|| figures::range(interval, self.write))
    }

    /// Heading and unit.
    pub fn title(&self) -> String {
        if self.unit.is_empty() { self.heading.into() } else { format!("{} ({})", self.heading, self.unit) }
    }
}

/// The name of a configuration.
pub fn name(entry: &RaceEntry) -> String {
    entry.ranked.configuration.to_string()
}

/// Remarks on a configuration.
pub fn badges(entry: &RaceEntry) -> Vec<&'static str> {
    let mut badges = Vec::new();
    if entry.chosen {
        badges.push(if entry.kept { "kept: undecided" } else { "chosen" });
    }
    if entry.ranked.role == CandidateRole::EngineDefault {
        badges.push("engine's default");
    }
    if entry.ranked.role == CandidateRole::Current {
        badges.push("runs now");
    }
    if entry.ranked.role == CandidateRole::Probe {
        badges.push("probe");
    }
    if entry.ranked.tied_with_best && !entry.chosen && entry.rank.is_some() {
        badges.push("≈ tie");
    }
    // Whether the chosen one may be beaten is the verdict's business.
    if entry.ranked.too_noisy && !entry.chosen {
        badges.push("too noisy");
    }
    if entry.ranked.left_out > 0 && entry.ranked.left_out == entry.ranked.repeats {
        badges.push("every repeat excluded");
    }
    if entry.simulated {
        badges.push("simulated acceptance");
    }
    badges
}

//! Writes `report.json`: the ranking and its trials, for programs.

use schemas::sweep::Metric;
use serde::Serialize;
use tuner::{
    prediction::guide::Guide,
    results::selection::{Disturbance, Interval, Ranked, SpeculationVerdict},
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{Exclusion, Fingerprint, Record},
    },
};

use crate::{
    comparison::RunComparison,
    definitions,
    error::ReportError,
    importance::Importance,
    order, page,
    race::{Noise, Race, RaceEntry, RaceSplit},
    section::{self, Section},
};

/// Format version, incremented when readers of older reports must change.
const VERSION: u32 = 5;

#[derive(Serialize)]
struct Data<'a> {
    format: &'static str,
    version: u32,
    generator: String,
    figures: &'static str,
    definitions: Vec<DataDefinition>,
    sections: Vec<SectionData<'a>>,
    comparison: Option<ComparisonData<'a>>,
}

#[derive(Serialize)]
struct DataDefinition {
    word: &'static str,
    meaning: &'static str,
}

#[derive(Serialize)]
struct SectionData<'a> {
    fingerprint: &'a Fingerprint,
    sweeps: Vec<&'a str>,
    races: Vec<RaceData<'a>>,
    /// Predictions made before the measurements.
    guide: Option<&'a Guide>,
    importance: Vec<ImportanceData>,
    trials: Vec<TrialData<'a>>,
}

/// A record of the journal with what the report makes of it.
#[derive(Serialize)]
struct TrialData<'a> {
    #[serde(flatten)]
    record: &'a Record,
    /// The throughput that is compared, without stalls; the record's `outcome` has the one by the
    /// wall clock.
    output_tokens_per_s: Option<f64>,
    wall_output_tokens_per_s: Option<f64>,
    excluded: Option<Exclusion>,
}

#[derive(Serialize)]
struct RaceData<'a> {
    load: TrialLoad,
    /// The metric of the ranking.
    metric: Metric,
    /// Whether every configuration keeps up with the load, so that latency was compared.
    keeps_up: bool,
    chosen: Option<&'a Configuration>,
    verdict: SpeculationVerdict,
    disturbance: Disturbance,
    /// Warnings about the figures, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// What it is ranked by, in words.
    order: String,
    entries: Vec<EntryData<'a>>,
    /// Measured only to learn costs, not ranked.
    probes: Vec<EntryData<'a>>,
}

#[derive(Serialize)]
struct EntryData<'a> {
    rank: Option<usize>,
    #[serde(flatten)]
    ranked: &'a Ranked,
    parts_of_round_ms: Option<DataParts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_wait_ms: Option<f64>,
    accepted_by_position: &'a [f64],
    /// Of the repeats that count.
    repeats_output_tokens_per_s: Vec<f64>,
    spread: Option<f64>,
    failed_repeats: Vec<FailedRepeat<'a>>,
}

#[derive(Serialize)]
struct FailedRepeat<'a> {
    /// From one.
    repeat: usize,
    reason: &'a str,
}

/// Shares of the variance of the objective's logarithm.
#[derive(Serialize)]
struct ImportanceData {
    load: TrialLoad,
    figures: &'static str,
    configurations: usize,
    shares: Vec<ShareData>,
}

#[derive(Serialize)]
struct ShareData {
    parameter: String,
    share: f64,
}

#[derive(Serialize)]
struct ComparisonData<'a> {
    first: &'a str,
    second: &'a str,
    differing: Vec<DifferenceData<'a>>,
    rows: Vec<ComparedData<'a>>,
}

#[derive(Serialize)]
struct DifferenceData<'a> {
    what: &'static str,
    first: &'a str,
    second: &'a str,
}

#[derive(Serialize)]
struct ComparedData<'a> {
    load: TrialLoad,
    configuration: &'a Configuration,
    first_output_tokens_per_s: Option<Interval>,
    second_output_tokens_per_s: Option<Interval>,
    ratio: Interval,
    repeats: usize,
    verdict: &'static str,
}

#[derive(Serialize)]
struct DataParts {
    draft: Option<f64>,
    verify: f64,
    extend: Option<f64>,
    /// The sum of the parts in ms, if they were timed separately from the trials.
    apart: Option<f64>,
    remark: Option<&'static str>,
}

/// The report's data as JSON.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn json(sections: &[Section<'_>], comparison: Option<&RunComparison<'_>>) -> Result<String, ReportError> {
    let data = Data {
        format: "spectune-report",
        version: VERSION,
        generator: concat!("spectune ", env!("CARGO_PKG_VERSION")).to_owned(),
        figures: "measured, except for everything under \"guide\", which is predicted",
        definitions: definitions::terms(section::loads(sections))
            .map(|(word, meaning)| DataDefinition { word, meaning })
            .collect(),
        sections: sections.iter().map(section).collect(),
        comparison: comparison.map(compared),
    };
    Ok(serde_json::to_string(&data)?)
}

fn section<'a>(section: &'a Section<'a>) -> SectionData<'a> {
    SectionData {
        fingerprint: section.fingerprint,
        sweeps: section.sweeps.iter().map(|sweep| sweep.name.as_str()).collect(),
        races: section.races.iter().map(race).collect(),
        guide: section.guide,
        importance: section.importances().into_iter().map(importance).collect(),
        trials: section.records.iter().map(|(_, record)| trial(section, record)).collect(),
    }
}

fn trial<'a>(section: &Section<'_>, record: &'a Record) -> TrialData<'a> {
    TrialData {
        record,
        output_tokens_per_s: record.measurement().map(|trial| trial.compared().output_tokens_per_s),
        wall_output_tokens_per_s: record.measurement().map(|trial| trial.output_tokens_per_s),
        excluded: section.exclusion(record),
    }
}

fn entry(entry: &RaceEntry) -> EntryData<'_> {
    EntryData {
        rank: entry.rank,
        ranked: &entry.ranked,
        parts_of_round_ms: entry.split.map(|RaceSplit { draft, verify, extend, apart }| DataParts {
            draft,
            verify,
            extend,
            apart,
            remark: apart.map(|_| definitions::PARTS_APART),
        }),
        draft_wait_ms: entry.draft_wait_ms,
        accepted_by_position: &entry.positions,
        repeats_output_tokens_per_s: entry.noise.as_ref().map_or_else(Vec::new, Noise::counted),
        spread: entry.noise.as_ref().and_then(|noise| noise.spread),
        failed_repeats: entry
            .failures
            .iter()
            .map(|(repeat, reason)| FailedRepeat { repeat: *repeat, reason })
            .collect(),
    }
}

fn race(race: &Race) -> RaceData<'_> {
    RaceData {
        load: race.load,
        metric: race.metric,
        keeps_up: race.keeps_up,
        chosen: race.chosen.as_ref(),
        verdict: race.verdict,
        disturbance: race.disturbance,
        notes: page::notes(race),
        order: order::words(race),
        entries: race.entries.iter().map(entry).collect(),
        probes: race.probes.iter().map(entry).collect(),
    }
}

fn importance((race, importance): (&Race, Importance)) -> ImportanceData {
    let Importance { predicted, configurations, shares } = importance;
    ImportanceData {
        load: race.load,
        figures: if predicted { "predicted" } else { "measured" },
        configurations,
        shares: shares.into_iter().map(|(parameter, share)| ShareData { parameter, share }).collect(),
    }
}

fn compared<'a>(comparison: &'a RunComparison<'a>) -> ComparisonData<'a> {
    let [first, second] = comparison.names;
    let differing = comparison.differing.iter().map(|(what, first, second)| DifferenceData { what, first, second });
    let rows = comparison.rows.iter().map(|row| ComparedData {
        load: row.load,
        configuration: &row.configuration,
        first_output_tokens_per_s: row.throughput[0],
        second_output_tokens_per_s: row.throughput[1],
        ratio: row.ratio,
        repeats: row.repeats,
        verdict: row.verdict(),
    });
    ComparisonData { first, second, differing: differing.collect(), rows: rows.collect() }
}

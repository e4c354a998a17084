//! The trials and the ranking as data frames, and their CSV and Parquet encodings.

mod comparison;
pub mod meanings;
mod predictions;

use polars_core::prelude::*;
use polars_io::prelude::*;
use tuner::trials::{
    configuration::TrialLoad,
    record::{CandidateRole, Exclusion, Fingerprint, Measurement, Record, TrialSpread, VALUES_FOR_P90, VALUES_FOR_P99},
};

use crate::{
    columns::COLUMNS,
    error::ReportError,
    race::{Race, RaceEntry},
    section::Section,
};

pub use self::{comparison::comparison, predictions::predictions};

/// A column and its figure of a trial.
type OfTrial = (&'static str, fn(&Measurement) -> Option<f64>);

const TRIAL_FIGURES: &[OfTrial] = &[
    ("output_tokens_per_s", |trial| Some(trial.compared().output_tokens_per_s)),
    ("tokens_per_s_per_user", |trial| Some(trial.compared().tokens_per_s_per_user)),
    ("goodput_tokens_per_s", |trial| trial.compared().goodput_tokens_per_s),
    ("elapsed_s", |trial| Some(trial.compared().elapsed_s)),
    ("wall_output_tokens_per_s", |trial| Some(trial.output_tokens_per_s)),
    ("wall_tokens_per_s_per_user", |trial| Some(trial.tokens_per_s_per_user)),
    ("wall_goodput_tokens_per_s", |trial| trial.goodput_tokens_per_s),
    ("wall_elapsed_s", |trial| Some(trial.elapsed_s)),
    ("stalled_share", |trial| Some(trial.stalls?.of_time)),
    ("accept_length", |trial| Some(trial.accept_length)),
    ("retractions", |trial| trial.retractions.map(|count| count as f64)),
    ("counted_share", |trial| Some(trial.counted_share())),
    ("mean_batch", Measurement::mean_running_batch),
    ("cached_share", |trial| trial.cached_share),
    ("tokens_per_joule", Measurement::tokens_per_joule),
    ("in_time", |trial| trial.in_time),
    ("offered_per_s", |trial| Some(trial.arrivals.as_ref()?.offered_per_s)),
    ("served_per_s", Measurement::served_per_s),
    ("unserved_at_last", |trial| Some(trial.arrivals.as_ref()?.unserved_at_last as f64)),
    ("apart_round_ms", |trial| Some(trial.parts_apart?.round_ms.median)),
    ("apart_draft_ms", |trial| Some(trial.parts_apart?.draft_ms?.median)),
    ("apart_verify_ms", |trial| Some(trial.parts_apart?.verify_ms.median)),
    ("apart_extend_ms", |trial| Some(trial.parts_apart?.extend_ms?.median)),
];

/// A column and its spread of a trial.
type SpreadOfTrial = (&'static str, fn(&Measurement) -> Option<TrialSpread>);

/// Spreads over the trial's rounds.
const ROUND_SPREADS: &[SpreadOfTrial] = &[
    ("round_ms", |trial| Some(trial.round_ms)),
    ("draft_ms", |trial| trial.draft_ms),
    ("verify_ms", |trial| trial.verify_ms),
    ("extend_ms", |trial| trial.extend_ms),
    ("draft_wait_ms", |trial| trial.draft_wait_ms),
];

/// Spreads over the trial's requests.
const REQUEST_SPREADS: &[SpreadOfTrial] = &[
    ("inter_token_ms", |trial| trial.compared().inter_token_ms),
    ("time_to_first_token_ms", |trial| Some(trial.compared().time_to_first_token_ms)),
    ("latency_ms", |trial| Some(trial.compared().latency_ms)),
    ("wall_inter_token_ms", |trial| trial.inter_token_ms),
    ("wall_time_to_first_token_ms", |trial| Some(trial.time_to_first_token_ms)),
    ("wall_latency_ms", |trial| Some(trial.latency_ms)),
];

/// A column and its field of a fingerprint.
type OfFingerprint = (&'static str, fn(&Fingerprint) -> &str);

const FINGERPRINT: &[OfFingerprint] = &[
    ("device", |print| &print.device),
    ("device_name", |print| &print.device_name),
    ("driver", |print| &print.driver),
    ("engine", |print| &print.engine),
    ("settings", |print| &print.settings),
    ("target", |print| &print.target),
    ("draft", |print| &print.draft),
    ("workload", |print| &print.workload),
];

/// Number of values of a spread in a record that does not contain it.
type UnknownFrame = fn(&Measurement) -> usize;
const VALUES_OF_ROUNDS: UnknownFrame = |trial| usize::try_from(trial.rounds).unwrap_or(usize::MAX);
const VALUES_OF_REQUESTS: UnknownFrame = |trial| trial.requests;

/// A column suffix and its value of a spread of this many values.
type OfSpread = (&'static str, fn(TrialSpread, usize) -> Option<f64>);

const SPREAD_ENDS: &[OfSpread] = &[
    ("min", |spread, _| Some(spread.min)),
    ("median", |spread, _| Some(spread.median)),
    ("p90", |spread, count| (count >= VALUES_FOR_P90).then_some(spread.p90)),
    ("p99", |spread, count| (count >= VALUES_FOR_P99).then_some(spread.p99)),
    ("max", |spread, _| Some(spread.max)),
];

/// A trial with its section and sweep.
struct TrialRow<'a> {
    /// Number of the section, from one.
    section: usize,
    sweep: &'a str,
    record: &'a Record,
    excluded: Option<Exclusion>,
}

/// One row per trial, including failed ones.
///
/// # Errors
/// When the frame cannot be built.
pub fn trials(sections: &[Section<'_>]) -> Result<DataFrame, ReportError> {
    let rows: Vec<TrialRow<'_>> =
        sections.iter().zip(1..).flat_map(|(section, number)| rows_of(number, section)).collect();
    let text = |name: &str, of: &dyn Fn(&Record) -> String| {
        Column::new(name.into(), rows.iter().map(|row| of(row.record)).collect::<Vec<_>>())
    };
    let number = |name: &str, of: fn(&Record) -> Option<u64>| {
        Column::new(name.into(), rows.iter().map(|row| of(row.record)).collect::<Vec<_>>())
    };
    let figure = |name: &str, of: &dyn Fn(&Measurement) -> Option<f64>| {
        Column::new(name.into(), rows.iter().map(|row| of(row.record.measurement()?)).collect::<Vec<_>>())
    };
    let histogram = |name: &str, of: fn(&Measurement) -> &[u64]| {
        let joined = |row: &TrialRow<'_>| Some(joined(of(row.record.measurement()?)));
        Column::new(name.into(), rows.iter().map(joined).collect::<Vec<_>>())
    };
    let mut columns = vec![
        Column::new("section".into(), rows.iter().map(|row| row.section as u64).collect::<Vec<_>>()),
        Column::new("sweep".into(), rows.iter().map(|row| row.sweep).collect::<Vec<_>>()),
        text("id", &|record| record.id.clone()),
        text("load", &|record| record.trial.load.to_string()),
        number("batch_size", |record| batch_size(record.trial.load)),
        Column::new(
            "request_rate".into(),
            rows.iter().map(|row| request_rate(row.record.trial.load)).collect::<Vec<_>>(),
        ),
        text("configuration", &|record| record.trial.configuration.to_string()),
        number("num_steps", |record| Some(record.trial.configuration.shape.num_steps as u64)),
        number("topk", |record| Some(record.trial.configuration.shape.topk as u64)),
        number("num_draft_tokens", |record| Some(record.trial.configuration.shape.num_draft_tokens as u64)),
        text("role", &|record| role(record.role).to_owned()),
        number("repeat", |record| Some(record.trial.repeat as u64)),
        text("host", &|record| record.origin.host.clone()),
        number("finished_at", |record| Some(record.finished_at)),
        text("status", &|record| if record.failure().is_some() { "failed".into() } else { "measured".into() }),
        Column::new("reason".into(), rows.iter().map(|row| row.record.failure()).collect::<Vec<_>>()),
        Column::new("excluded".into(), rows.iter().map(|row| row.excluded.map(Exclusion::name)).collect::<Vec<_>>()),
        Column::new(
            "excluded_because".into(),
            rows.iter().map(|row| row.excluded.map(Exclusion::words)).collect::<Vec<_>>(),
        ),
        number("requests", |record| Some(record.measurement()?.requests as u64)),
        number("output_tokens", |record| Some(record.measurement()?.output_tokens)),
        number("rounds", |record| Some(record.measurement()?.rounds)),
    ];
    columns.extend(TRIAL_FIGURES.iter().map(|(name, of)| figure(name, of)));
    for (spreads, unknown) in [(ROUND_SPREADS, VALUES_OF_ROUNDS), (REQUEST_SPREADS, VALUES_OF_REQUESTS)] {
        for (name, spread) in spreads {
            for (end, of) in SPREAD_ENDS {
                let value = |trial: &Measurement| of(spread(trial)?, spread(trial)?.count_or(unknown(trial)));
                columns.push(figure(&format!("{name}_{end}"), &value));
            }
        }
    }
    // Only sweeps of several drafts name them.
    if rows.iter().any(|row| !row.record.trial.configuration.draft.is_empty()) {
        columns.push(text("draft_name", &|record| record.trial.configuration.draft.clone()));
    }
    columns.push(histogram("accept_histogram", |trial| &trial.accept_histogram));
    columns.push(histogram("running_batch", |trial| &trial.running_batch));
    let simulated = |row: &TrialRow<'_>| row.record.measurement().map(|trial| trial.simulated);
    columns.push(Column::new("simulated".into(), rows.iter().map(simulated).collect::<Vec<_>>()));
    columns.extend(FINGERPRINT.iter().map(|(name, of)| text(name, &|record| of(&record.fingerprint).to_owned())));
    frame("trials", columns)
}

fn rows_of<'a>(number: usize, section: &'a Section<'_>) -> impl Iterator<Item = TrialRow<'a>> {
    let row = move |(sweep, record): &(usize, &'a Record)| TrialRow {
        section: number,
        sweep: &section.sweeps[*sweep].name,
        record,
        excluded: section.exclusion(record),
    };
    section.records.iter().map(row)
}

/// Number of the section, the load and the configuration.
type RankingRow<'a> = (usize, &'a Race, &'a RaceEntry);

/// One row per configuration and load, in the order of the ranking; probes last.
///
/// # Errors
/// When the frame cannot be built.
pub fn ranking(sections: &[Section<'_>]) -> Result<DataFrame, ReportError> {
    let rows: Vec<RankingRow<'_>> = sections
        .iter()
        .enumerate()
        .flat_map(|(number, section)| section.races.iter().map(move |race| (number + 1, race)))
        .flat_map(|(number, race)| race.entries.iter().chain(&race.probes).map(move |entry| (number, race, entry)))
        .collect();
    let number = |name: &str, of: &dyn Fn(&RankingRow<'_>) -> Option<u64>| {
        Column::new(name.into(), rows.iter().map(of).collect::<Vec<_>>())
    };
    let words = |name: &str, of: &dyn Fn(&RankingRow<'_>) -> String| {
        Column::new(name.into(), rows.iter().map(of).collect::<Vec<_>>())
    };
    let flag = |name: &str, of: fn(&RaceEntry) -> bool| {
        Column::new(name.into(), rows.iter().map(|row| of(row.2)).collect::<Vec<_>>())
    };
    let figure = |name: String, of: &dyn Fn(&RaceEntry) -> Option<f64>| {
        Column::new(name.into(), rows.iter().map(|row| of(row.2)).collect::<Vec<_>>())
    };
    let mut columns = vec![
        number("section", &|row| Some(row.0 as u64)),
        words("load", &|row| row.1.load.to_string()),
        number("batch_size", &|row| batch_size(row.1.load)),
        Column::new("request_rate".into(), rows.iter().map(|row| request_rate(row.1.load)).collect::<Vec<_>>()),
        number("rank", &|row| row.2.rank.map(|rank| rank as u64)),
        words("configuration", &|row| row.2.ranked.configuration.to_string()),
        number("num_steps", &|row| Some(row.2.ranked.configuration.shape.num_steps as u64)),
        number("topk", &|row| Some(row.2.ranked.configuration.shape.topk as u64)),
        number("num_draft_tokens", &|row| Some(row.2.ranked.configuration.shape.num_draft_tokens as u64)),
        Column::new("role".into(), rows.iter().map(|row| role(row.2.ranked.role)).collect::<Vec<_>>()),
        flag("chosen", |entry| entry.chosen),
        flag("tied_with_best", |entry| entry.ranked.tied_with_best),
        flag("too_noisy", |entry| entry.ranked.too_noisy),
        flag("simulated", |entry| entry.simulated),
        flag("parts_apart", |entry| entry.split.is_some_and(|split| split.apart.is_some())),
        number("repeats", &|row| Some(row.2.ranked.repeats as u64)),
        number("excluded_repeats", &|row| Some(row.2.ranked.left_out as u64)),
    ];
    for column in COLUMNS {
        columns.push(figure(column.key.to_owned(), &|entry| (column.figure)(entry).value()));
        if rows.iter().any(|row| (column.figure)(row.2).interval().is_some()) {
            let end = |of: fn(tuner::results::selection::Interval) -> f64| {
                move |entry: &RaceEntry| (column.figure)(entry).interval().map(of)
            };
            columns.push(figure(format!("{}_low", column.key), &end(|interval| interval.low)));
            columns.push(figure(format!("{}_high", column.key), &end(|interval| interval.high)));
        }
    }
    columns.extend(RANKING_FIGURES.iter().map(|(name, of)| figure((*name).to_owned(), of)));
    if rows.iter().any(|row| !row.2.ranked.configuration.draft.is_empty()) {
        columns.push(words("draft_name", &|row| row.2.ranked.configuration.draft.clone()));
    }
    columns.push(figure("spread".into(), &|entry| entry.noise.as_ref()?.spread));
    columns.push(Column::new(
        "accept_histogram".into(),
        rows.iter().map(|row| joined(&row.2.ranked.accept_histogram)).collect::<Vec<_>>(),
    ));
    columns
        .push(Column::new("failure".into(), rows.iter().map(|row| row.2.ranked.failure.clone()).collect::<Vec<_>>()));
    frame("ranking", columns)
}

/// A column and its value of an entry.
type FigureFrame = (&'static str, fn(&RaceEntry) -> Option<f64>);

/// Figures of the ranking in addition to [`COLUMNS`].
const RANKING_FIGURES: &[FigureFrame] = &[
    ("wall_output_tokens_per_s", |entry| Some(entry.ranked.wall_tokens_per_s?.median)),
    ("requests", |entry| Some(entry.ranked.first_token?.count as f64)),
    ("mean_batch", |entry| entry.mean_batch),
    ("cached_share", |entry| entry.cached_share),
    ("time_to_first_token_ms_p90", |entry| entry.ranked.first_token?.p90),
    ("time_to_first_token_ms_p99", |entry| entry.ranked.first_token?.p99),
    ("time_to_first_token_ms_max", |entry| Some(entry.ranked.first_token?.max)),
    ("inter_token_ms_p90", |entry| entry.ranked.inter_token?.p90),
    ("inter_token_ms_p99", |entry| entry.ranked.inter_token?.p99),
    ("inter_token_ms_max", |entry| Some(entry.ranked.inter_token?.max)),
    ("in_time", |entry| entry.ranked.in_time),
    ("offered_per_s", |entry| Some(entry.ranked.request_rate?.offered)),
    ("served_per_s", |entry| Some(entry.ranked.request_rate?.served)),
    ("unserved_at_last", |entry| Some(entry.ranked.request_rate?.unserved)),
    ("stalled_share", |entry| entry.ranked.stalled_share),
];

fn role(role: CandidateRole) -> &'static str {
    match role {
        CandidateRole::Candidate => "candidate",
        CandidateRole::NoSpeculation => "no_speculation",
        CandidateRole::EngineDefault => "engine_default",
        CandidateRole::Current => "current",
        CandidateRole::Probe => "probe",
    }
}

/// A frame as CSV with a header line.
///
/// # Errors
/// When it cannot be encoded.
pub fn csv(frame: &mut DataFrame) -> Result<Vec<u8>, ReportError> {
    let mut bytes = Vec::new();
    let written = CsvWriter::new(&mut bytes).include_header(true).finish(frame);
    written.map(|()| bytes).map_err(|source| ReportError::Table { table: "as CSV", source })
}

/// A frame as Parquet.
///
/// # Errors
/// When it cannot be encoded.
#[cfg(feature = "parquet")]
pub fn parquet(frame: &mut DataFrame) -> Result<Vec<u8>, ReportError> {
    let mut bytes = Vec::new();
    // A few kilobytes: compression would only require support in readers.
    let written = ParquetWriter::new(&mut bytes).with_compression(ParquetCompression::Uncompressed).finish(frame);
    written.map(|_| bytes).map_err(|source| ReportError::Table { table: "as Parquet", source })
}

fn frame(table: &'static str, columns: Vec<Column>) -> Result<DataFrame, ReportError> {
    DataFrame::new_infer_height(columns).map_err(|source| ReportError::Table { table, source })
}

/// Number of running requests of a closed loop; `None` for an open loop.
fn batch_size(load: TrialLoad) -> Option<u64> {
    load.batch_size().map(|size| size as u64)
}

/// Requests per second; `None` unless requests arrive at a rate.
fn request_rate(load: TrialLoad) -> Option<f64> {
    if let TrialLoad::RequestRate(rate) = load { Some(rate.0) } else { None }
}

fn joined(histogram: &[u64]) -> String {
    histogram.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

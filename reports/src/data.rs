//! `report.json`: the ranking and the trials behind it, for programs.

use serde::Serialize;
use tuner::{
    record::{Fingerprint, Record},
    selection::Ranked,
};

use crate::{
    batch::{Batch, Noise, Split},
    definitions,
    error::ReportError,
    section::Section,
};

/// Rises when a reader of an older report must change.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Data<'a> {
    format: &'static str,
    version: u32,
    generator: String,
    figures: &'static str,
    definitions: Vec<Definition>,
    sections: Vec<SectionData<'a>>,
}

#[derive(Serialize)]
struct Definition {
    word: &'static str,
    meaning: &'static str,
}

#[derive(Serialize)]
struct SectionData<'a> {
    fingerprint: &'a Fingerprint,
    sweeps: Vec<&'a str>,
    batches: Vec<BatchData<'a>>,
    trials: Vec<&'a Record>,
}

#[derive(Serialize)]
struct BatchData<'a> {
    batch_size: usize,
    chosen: Option<schemas::tree::TreeShape>,
    entries: Vec<EntryData<'a>>,
}

#[derive(Serialize)]
struct EntryData<'a> {
    rank: Option<usize>,
    #[serde(flatten)]
    ranked: &'a Ranked,
    parts_of_round_ms: Option<Parts>,
    accepted_by_position: &'a [f64],
    repeats_output_tokens_per_s: &'a [f64],
    spread: Option<f64>,
    failed_repeats: &'a [String],
}

#[derive(Serialize)]
struct Parts {
    draft: f64,
    verify: f64,
    extend: f64,
}

/// The report's data as JSON.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn json(sections: &[Section<'_>]) -> Result<String, ReportError> {
    let data = Data {
        format: "spectune-report",
        version: VERSION,
        generator: concat!("spectune ", env!("CARGO_PKG_VERSION")).to_owned(),
        figures: "measured",
        definitions: definitions::DEFINITIONS.iter().map(|(word, meaning)| Definition { word, meaning }).collect(),
        sections: sections.iter().map(section).collect(),
    };
    Ok(serde_json::to_string(&data)?)
}

fn section<'a>(section: &'a Section<'a>) -> SectionData<'a> {
    SectionData {
        fingerprint: section.fingerprint,
        sweeps: section.sweeps.iter().map(|sweep| sweep.name.as_str()).collect(),
        batches: section.batches.iter().map(batch).collect(),
        trials: section.records.iter().map(|(_, record)| *record).collect(),
    }
}

fn batch(batch: &Batch) -> BatchData<'_> {
    let entries = batch.entries.iter().map(|entry| EntryData {
        rank: entry.rank,
        ranked: &entry.ranked,
        parts_of_round_ms: entry.split.map(|Split { draft, verify, extend }| Parts { draft, verify, extend }),
        accepted_by_position: &entry.positions,
        repeats_output_tokens_per_s: entry.noise.as_ref().map_or(&[], |Noise { repeats, .. }| repeats),
        spread: entry.noise.as_ref().and_then(|noise| noise.spread),
        failed_repeats: &entry.failures,
    });
    BatchData { batch_size: batch.batch_size, chosen: batch.chosen, entries: entries.collect() }
}

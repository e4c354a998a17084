//! The report as a reader sees it: texts only, in the order in which they are shown. The templates add nothing.

mod answer;
mod table;

use serde::Serialize;

use crate::{
    charts::{self, Chart},
    columns::COLUMNS,
    definitions,
    error::ReportError,
    figures,
    input::Sweep,
    section::Section,
};

pub use answer::Answer;

/// The whole page.
#[derive(Serialize)]
pub struct Page {
    version: &'static str,
    kind: &'static str,
    warnings: Vec<String>,
    definitions: Vec<Pair>,
    columns: Vec<Heading>,
    sections: Vec<SectionPage>,
}

/// A section: what was measured under one fingerprint.
#[derive(Serialize)]
struct SectionPage {
    number: usize,
    heading: String,
    answers: Vec<Answer>,
    fingerprint: Vec<Pair>,
    sweeps: Vec<SweepFacts>,
    trials: String,
    charts: Vec<ChartPage>,
    batches: Vec<BatchPage>,
}

/// A batch size.
#[derive(Serialize)]
struct BatchPage {
    batch_size: usize,
    anchor: String,
    rows: Vec<table::Row>,
    failed: Vec<table::Failed>,
    charts: Vec<ChartPage>,
    noise: table::NoiseTable,
}

#[derive(Serialize)]
struct ChartPage {
    name: String,
    title: String,
    caption: String,
    wide: String,
    narrow: String,
}

#[derive(Serialize)]
struct SweepFacts {
    name: String,
    facts: Vec<Pair>,
    notices: Vec<String>,
}

#[derive(Serialize)]
struct Pair {
    label: String,
    value: String,
}

#[derive(Serialize)]
struct Heading {
    title: String,
    meaning: &'static str,
}

impl Page {
    /// The page of these sections.
    ///
    /// # Errors
    /// When a chart cannot be drawn.
    pub fn new(sections: &[Section<'_>], sweeps: &[Sweep]) -> Result<Self, ReportError> {
        let pages: Result<Vec<_>, _> =
            sections.iter().enumerate().map(|(place, section)| SectionPage::new(place + 1, section)).collect();
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            kind: definitions::KIND,
            warnings: warnings(sections, sweeps),
            definitions: definitions::DEFINITIONS.iter().map(|(label, value)| Pair::new(label, value)).collect(),
            columns: COLUMNS.iter().map(|column| Heading { title: column.title(), meaning: column.meaning }).collect(),
            sections: pages?,
        })
    }

    /// Every chart with its file name.
    pub fn charts(&self) -> impl Iterator<Item = (String, &str)> {
        let many = self.sections.len() > 1;
        self.sections.iter().flat_map(move |section| {
            let charts = section.charts.iter().chain(section.batches.iter().flat_map(|batch| &batch.charts));
            charts.map(move |chart| {
                let prefix = if many { format!("section-{}-", section.number) } else { String::new() };
                (format!("{prefix}{}.svg", chart.name), chart.wide.as_str())
            })
        })
    }
}

/// What a reader must know before anything else.
fn warnings(sections: &[Section<'_>], sweeps: &[Sweep]) -> Vec<String> {
    let mut warnings = Vec::new();
    if sections.is_empty() {
        warnings.push("No trial has finished yet: there is nothing to rank.".to_owned());
    }
    if sections.len() > 1 {
        warnings.push(format!(
            "These trials have {} different fingerprints (device, engine, models or workload). Each is a section of its own: they are not ranked against each other.",
            sections.len()
        ));
    }
    for section in sections {
        if section.sweeps.iter().any(|sweep| sweep.metric() != section.metric) {
            warnings.push(format!(
                "The sweeps of {} on {} have different objectives; all are ranked by that of {}.",
                section.fingerprint.engine, section.fingerprint.device_name, section.sweeps[0].name
            ));
        }
    }
    // Shards of one plan each know the whole of it: what counts is what they hold together.
    for section in sections {
        let finished = section.records.len();
        let planned = section.sweeps.iter().filter_map(|sweep| sweep.planned).max();
        if let Some(planned) = planned.filter(|planned| finished < *planned) {
            let names: Vec<&str> = section.sweeps.iter().map(|sweep| sweep.name.as_str()).collect();
            warnings.push(format!(
                "{}: {finished} of {planned} planned trials have finished; the ranking may change when the rest is in.",
                names.join(", ")
            ));
        }
    }
    for sweep in sweeps {
        let finished = sweep.records.len();
        if finished == 0 {
            let planned = sweep.planned.map_or(String::new(), |planned| format!(" of {planned} planned"));
            warnings.push(format!("{}: the journal holds no finished trial{planned}.", sweep.name));
        }
        warnings.extend(sweep.notices.iter().map(|notice| format!("{}: {notice}", sweep.name)));
    }
    warnings
}

impl SectionPage {
    fn new(number: usize, section: &Section<'_>) -> Result<Self, ReportError> {
        let print = section.fingerprint;
        let facts = [
            ("device", &print.device),
            ("device name", &print.device_name),
            ("driver", &print.driver),
            ("engine", &print.engine),
            ("target", &print.target),
            ("draft", &print.draft),
            ("workload", &print.workload),
            ("settings", &print.settings),
        ];
        let mut fingerprint: Vec<Pair> = facts
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(label, value)| Pair::new(label, value))
            .collect();
        let units = if print.device.starts_with("cuda") { "multiprocessors" } else { "threads" };
        fingerprint.insert(2.min(fingerprint.len()), Pair::new(units, &print.units.to_string()));
        let (measured, failed) = section.counts();
        let mut trials = format!("{} measured", figures::counted(measured, "trial", "trials"));
        if failed > 0 {
            trials.push_str(&format!(", {failed} failed"));
        }
        let batches: Result<Vec<_>, ReportError> = section
            .batches
            .iter()
            .map(|batch| {
                Ok(BatchPage {
                    batch_size: batch.batch_size,
                    anchor: format!("section-{number}-batch-{}", batch.batch_size),
                    rows: table::rows(batch),
                    failed: table::failed(batch),
                    charts: pages(charts::of_batch(batch)?),
                    noise: table::noise(batch),
                })
            })
            .collect();
        Ok(Self {
            number,
            heading: format!("{} on {}", print.engine, print.device_name),
            answers: section.batches.iter().map(|batch| Answer::new(batch, section)).collect(),
            fingerprint,
            sweeps: section.sweeps.iter().map(|sweep| SweepFacts::new(sweep)).collect(),
            trials,
            charts: pages(charts::of_section(section)?),
            batches: batches?,
        })
    }
}

fn pages(charts: Vec<Chart>) -> Vec<ChartPage> {
    let page = |Chart { name, title, caption, wide, narrow }| ChartPage { name, title, caption, wide, narrow };
    charts.into_iter().map(page).collect()
}

impl SweepFacts {
    fn new(sweep: &Sweep) -> Self {
        Self {
            name: sweep.name.clone(),
            facts: sweep.facts().iter().map(|(label, value)| Pair::new(label, value)).collect(),
            notices: sweep.notices.clone(),
        }
    }
}

impl Pair {
    fn new(label: &str, value: &str) -> Self {
        Self { label: label.to_owned(), value: value.to_owned() }
    }
}

//! The input of a report.

mod facts;
mod folder;

use schemas::{
    sweep::{Metric, SweepFile},
    tuned::TunedFile,
};
use tuner::{
    prediction::guide::Guide,
    trials::{journal::JournalHeader, record::Record},
};

/// One or several sweeps. Shards and resumed parts of one sweep may be several entries: equal
/// trials count once.
#[derive(Clone, Debug, Default)]
pub struct ReportInput {
    /// In display order.
    pub sweeps: Vec<Sweep>,
    /// Whether to compare two sweeps regardless of their differences; two that differ in one
    /// respect are always compared.
    pub compare: bool,
}

/// The journal of a sweep folder and the folder's other files.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// The folder as the user wrote it.
    pub name: String,
    /// The journal's records.
    pub records: Vec<Record>,
    /// The journal's header, if known: the sweep file, the shard, the number of planned trials.
    pub header: Option<JournalHeader>,
    /// The tuned file of the folder, if it exists: the source of launch commands.
    pub tuned: Option<TunedFile>,
    /// The guide of a guided sweep, made before it measured.
    pub guide: Option<Guide>,
    /// Messages that must be shown before the figures, such as a damaged line of the journal.
    pub notices: Vec<String>,
}

impl Sweep {
    /// Its notices, prefixed with its name.
    pub fn named_notices(&self) -> impl Iterator<Item = String> {
        self.notices.iter().map(|notice| format!("{}: {notice}", self.name))
    }

    /// The sweep file, if known: describes what was measured and the metric.
    pub fn file(&self) -> Option<&SweepFile> {
        self.header.as_ref().map(|header| &header.file)
    }

    /// Whether its prompts are random tokens.
    pub fn has_random_prompts(&self) -> bool {
        self.file().is_some_and(|file| file.workload.random.is_some())
    }

    /// Number of planned trials, if known.
    pub fn planned(&self) -> Option<usize> {
        self.header.as_ref().map(|header| header.planned).filter(|planned| *planned > 0)
    }

    /// The metric of the sweep.
    pub fn metric(&self) -> Metric {
        self.file().map_or(Metric::default(), |file| file.objective.metric)
    }
}

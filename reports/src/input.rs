//! What a report is made from.

mod facts;
mod folder;

use schemas::{
    sweep::{Metric, SweepFile},
    tuned::TunedFile,
};
use tuner::{guide::Guide, journal::Header, record::Record};

/// One or several sweeps. Shards and resumed parts of one sweep may come as several: equal trials count once.
#[derive(Clone, Debug, Default)]
pub struct ReportInput {
    /// In the order in which they are to be shown.
    pub sweeps: Vec<Sweep>,
    /// Compare two sweeps whatever they differ in; two that differ in one thing are compared in any case.
    pub compare: bool,
}

/// The journal of one sweep folder with the other files of the folder.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// The folder as the user wrote it.
    pub name: String,
    /// The journal's rows.
    pub records: Vec<Record>,
    /// The journal's first line, where known: the sweep file, the shard, how many trials were planned.
    pub header: Option<Header>,
    /// The tuned file of the folder, if it exists: the source of the flags to paste.
    pub tuned: Option<TunedFile>,
    /// What a guided sweep knew before it measured.
    pub guide: Option<Guide>,
    /// What a reader must know before the figures, such as a damaged line of the journal.
    pub notices: Vec<String>,
}

impl Sweep {
    /// Its notices, each with its name, to be said among others.
    pub fn named_notices(&self) -> impl Iterator<Item = String> {
        self.notices.iter().map(|notice| format!("{}: {notice}", self.name))
    }

    /// The sweep file, where known: says what was measured and what counts as better.
    pub fn file(&self) -> Option<&SweepFile> {
        self.header.as_ref().map(|header| &header.file)
    }

    /// Trials that were planned, where known.
    pub fn planned(&self) -> Option<usize> {
        self.header.as_ref().map(|header| header.planned).filter(|planned| *planned > 0)
    }

    /// What counts as better.
    pub fn metric(&self) -> Metric {
        self.file().map_or(Metric::default(), |file| file.objective.metric)
    }
}

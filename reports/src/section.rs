//! Sorts trials into sections: only trials with the same fingerprint are ranked together.

mod plan;
mod words;

use std::collections::BTreeSet;

use schemas::sweep::Metric;
use tuner::{
    guide::Guide,
    merge,
    record::{Fingerprint, Record},
    selection,
};

pub use self::{plan::Plan, words::labels};
use crate::{
    agreement::{self, Agreement},
    importance::{self, Importance},
    input::Sweep,
    race::Race,
};

/// Everything that was measured under one fingerprint.
pub struct Section<'a> {
    /// What all of it has in common.
    pub fingerprint: &'a Fingerprint,
    /// The sweeps that it comes from.
    pub sweeps: Vec<&'a Sweep>,
    /// Finished trials, each once, with the place of its sweep in [`sweeps`](Self::sweeps).
    pub records: Vec<(usize, &'a Record)>,
    /// What counts as better: the first sweep's word.
    pub metric: Metric,
    /// The guide of a guided sweep, if it was made for this fingerprint.
    pub guide: Option<&'a Guide>,
    /// The ranking of each load, ascending.
    pub races: Vec<Race>,
    /// How much of what was planned has finished.
    pub plans: Vec<Plan<'a>>,
}

/// Sorts the trials of all sweeps by fingerprint, in the order in which fingerprints first come up. Trials are pooled by the rule by
/// which folders are merged: a report of shards is that of the merged sweep.
pub fn sections(sweeps: &[Sweep]) -> Vec<Section<'_>> {
    let all: Vec<(usize, &Record)> = sweeps
        .iter()
        .enumerate()
        .flat_map(|(place, sweep)| sweep.records.iter().map(move |record| (place, record)))
        .collect();
    let records: Vec<&Record> = all.iter().map(|(_, record)| *record).collect();
    let mut sections: Vec<(&Fingerprint, Vec<(usize, &Record)>)> = Vec::new();
    for at in merge::pooled(&records) {
        let (place, record) = all[at];
        match sections.iter_mut().find(|(fingerprint, _)| **fingerprint == record.fingerprint) {
            Some((_, records)) => records.push((place, record)),
            None => sections.push((&record.fingerprint, vec![(place, record)])),
        }
    }
    sections.into_iter().map(|(fingerprint, records)| Section::new(fingerprint, records, sweeps)).collect()
}

impl<'a> Section<'a> {
    fn new(fingerprint: &'a Fingerprint, mut records: Vec<(usize, &'a Record)>, input: &'a [Sweep]) -> Self {
        let mut places: Vec<usize> = records.iter().map(|(place, _)| *place).collect();
        places.sort_unstable();
        places.dedup();
        // A single journal has the order already, and among trials of one second its own.
        if places.len() > 1 {
            records.sort_by_key(|(_, record)| (record.finished_at, record.id.as_str()));
        }
        let records: Vec<(usize, &Record)> =
            records.into_iter().map(|(place, record)| (places.partition_point(|of| *of < place), record)).collect();
        let all: Vec<&Record> = records.iter().map(|(_, record)| *record).collect();
        let sweeps: Vec<&Sweep> = places.into_iter().map(|place| &input[place]).collect();
        let metric = sweeps.first().map_or(Metric::default(), |sweep| sweep.metric());
        let rankings = selection::rank(all.iter().copied(), metric);
        let races = rankings.into_iter().map(|ranking| Race::new(ranking, &all)).collect();
        let guides = sweeps.iter().filter_map(|sweep| sweep.guide.as_ref());
        let guide = guides.into_iter().find(|guide| guide.fingerprint == *fingerprint);
        let plans = plan::plans(input, fingerprint);
        Self { fingerprint, sweeps, records, metric, guide, races, plans }
    }

    /// What was predicted, by load, for the loads that have a race.
    pub fn agreements(&self) -> Vec<Agreement<'_>> {
        self.races.iter().filter_map(|race| self.agreement(race)).collect()
    }

    /// What was predicted under the load of a race.
    pub fn agreement(&self, race: &Race) -> Option<Agreement<'_>> {
        agreement::of(self.guide?, race, race.metric)
    }

    /// Which parameters matter, by load.
    pub fn importances(&self) -> Vec<(&Race, Importance)> {
        let of = |race: &'_ Race| importance::of(self.guide, race, race.metric);
        self.races.iter().filter_map(|race| Some((race, of(race)?))).collect()
    }

    /// What is to be said of trials that several folders measured, if there are any.
    pub fn pooling(&self) -> Option<String> {
        let journals: BTreeSet<&str> = self.records.iter().map(|(_, record)| record.origin.journal.as_str()).collect();
        let trials: BTreeSet<&str> = self.records.iter().map(|(_, record)| record.id.as_str()).collect();
        let more = self.records.len() - trials.len();
        (journals.len() > 1 && more > 0).then(|| {
            format!(
                "{} journals are pooled: {more} trials were measured in more than one of them and count as further repeats. \
                 Each configuration is compared with no speculation of its own journal.",
                journals.len()
            )
        })
    }

    /// Whether a trial made acceptance up.
    pub fn simulated(&self) -> bool {
        self.races.iter().any(Race::simulated)
    }

    /// Trials that were measured, and trials that failed.
    pub fn counts(&self) -> (usize, usize) {
        let measured = self.records.iter().filter(|(_, record)| record.measurement().is_some()).count();
        (measured, self.records.len() - measured)
    }
}

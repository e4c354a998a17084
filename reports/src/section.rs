//! Sorts trials into sections: only trials with the same fingerprint are ranked together.

mod plan;
mod words;

use std::collections::BTreeSet;

use schemas::sweep::Metric;
use tuner::{
    prediction::guide::Guide,
    results::selection::{self, Comparison},
    sweep::merge,
    trials::{
        configuration::TrialLoad,
        record::{Exclusion, Fingerprint, Record},
    },
};

pub use self::{plan::ReportPlan, words::labels};
use crate::{
    agreement::{self, Agreement},
    figures,
    importance::{self, Importance},
    input::Sweep,
    race::Race,
};

/// All measurements under one fingerprint.
pub struct Section<'a> {
    /// The common fingerprint.
    pub fingerprint: &'a Fingerprint,
    /// The sweeps that it comes from.
    pub sweeps: Vec<&'a Sweep>,
    /// Finished trials without duplicates, with the index of their sweep in
    /// [`sweeps`](Self::sweeps).
    pub records: Vec<(usize, &'a Record)>,
    /// The metric, from the first sweep.
    pub metric: Metric,
    /// The guide of a guided sweep, if it has this fingerprint.
    pub guide: Option<&'a Guide>,
    /// The races, by load in ascending order.
    pub races: Vec<Race>,
    /// Progress of the plans.
    pub plans: Vec<ReportPlan<'a>>,
}

/// Groups the trials of all sweeps by fingerprint, in order of first appearance. Trials are pooled
/// by the same rule as in merging, so a report of shards equals that of the merged sweep.
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

/// The loads of some sections, in order.
pub fn loads(sections: &[Section<'_>]) -> Vec<TrialLoad> {
    sections.iter().flat_map(|section| &section.races).map(|race| race.load).collect()
}

impl<'a> Section<'a> {
    fn new(fingerprint: &'a Fingerprint, mut records: Vec<(usize, &'a Record)>, input: &'a [Sweep]) -> Self {
        let mut places: Vec<usize> = records.iter().map(|(place, _)| *place).collect();
        places.sort_unstable();
        places.dedup();
        // A single journal is already ordered, and keeps its order among trials of the same second,
        // as it does when several are merged.
        if places.len() > 1 {
            let shard = |place: usize| input[place].header.as_ref().and_then(|header| header.shard);
            let shard = |place: usize| shard(place).map(|shard| (shard.count, shard.index));
            records.sort_by_key(|(place, record)| (record.finished_at, &record.origin, shard(*place)));
        }
        let records: Vec<(usize, &Record)> =
            records.into_iter().map(|(place, record)| (places.partition_point(|of| *of < place), record)).collect();
        let all: Vec<&Record> = records.iter().map(|(_, record)| *record).collect();
        let sweeps: Vec<&Sweep> = places.into_iter().map(|place| &input[place]).collect();
        let metric = sweeps.first().map_or(Metric::default(), |sweep| sweep.metric());
        // What one of the sweeps looked at after every repeat must hold at every look.
        let looks = sweeps.iter().filter_map(|sweep| sweep.file()).map(|file| Comparison::from_sweep(file).looks).max();
        let comparison = Comparison { metric, looks: looks.unwrap_or_default() };
        let rankings = selection::rank(all.iter().copied(), comparison);
        let looks = comparison.looks;
        let mut races: Vec<Race> = rankings.into_iter().map(|ranking| Race::new(ranking, &all, looks)).collect();
        // An interrupted search may have only probed a load.
        let loads: BTreeSet<TrialLoad> = all.iter().map(|record| record.trial.load).collect();
        let unranked: Vec<TrialLoad> =
            loads.into_iter().filter(|load| races.iter().all(|race| race.load != *load)).collect();
        races.extend(unranked.into_iter().map(|load| Race::unranked(load, metric, &all, looks)));
        races.sort_by_key(|race| race.load);
        let guides = sweeps.iter().filter_map(|sweep| sweep.guide.as_ref());
        let guide = guides.into_iter().find(|guide| guide.fingerprint == *fingerprint);
        let plans = plan::plans(input, fingerprint);
        Self { fingerprint, sweeps, records, metric, guide, races, plans }
    }

    /// The predictions of all loads that have a race.
    pub fn agreements(&self) -> Vec<Agreement<'_>> {
        self.races.iter().filter_map(|race| self.agreement(race)).collect()
    }

    /// The predictions under the load of a race.
    pub fn agreement(&self, race: &Race) -> Option<Agreement<'_>> {
        agreement::compute(self.guide?, race, race.metric)
    }

    /// Parameter importance by load.
    pub fn importances(&self) -> Vec<(&Race, Importance)> {
        let of = |race: &'_ Race| importance::compute(self.guide, race, race.metric);
        self.races.iter().filter_map(|race| Some((race, of(race)?))).collect()
    }

    /// A remark on trials that several folders measured, if there are any.
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

    /// Whether acceptance was simulated in any trial.
    pub fn simulated(&self) -> bool {
        self.races.iter().any(Race::simulated)
    }

    /// Number of measured trials and of failed trials.
    pub fn counts(&self) -> (usize, usize) {
        let measured = self.records.iter().filter(|(_, record)| record.measurement().is_some()).count();
        (measured, self.records.len() - measured)
    }

    /// The same in words, with the number of excluded ones:
    /// `51 trials, 1 of them excluded, 2 failed`.
    pub fn counted(&self) -> String {
        let (measured, failed) = self.counts();
        let excluded = self.records.iter().filter(|(_, record)| self.exclusion(record).is_some()).count();
        let mut words = figures::counted(measured, "trial", "trials");
        if excluded > 0 {
            words.push_str(&format!(", {} of them excluded", figures::count(excluded as u64)));
        }
        if failed > 0 {
            words.push_str(&format!(", {} failed", figures::count(failed as u64)));
        }
        words
    }

    /// Why a trial takes no part in the comparisons of its load, if it does not.
    pub fn exclusion(&self, record: &Record) -> Option<Exclusion> {
        self.races.iter().find(|race| race.load == record.trial.load)?.exclusion(record)
    }
}

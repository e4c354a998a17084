//! Progress: how many of the planned trials have finished.

use std::collections::HashSet;

use tuner::{
    sweep::merge,
    trials::{journal::JournalHeader, record::Fingerprint},
};

use crate::input::Sweep;

/// The plan of one sweep, in one folder or in several shards.
pub struct ReportPlan<'a> {
    /// Names of the folders.
    pub names: Vec<&'a str>,
    /// Number of finished trials, without duplicates.
    pub finished: usize,
    /// Number of planned trials; never 0.
    pub planned: usize,
}

/// The plans of all sweeps with a fingerprint, in the order of the sweeps; sweeps without a fixed
/// plan are omitted.
pub fn plans<'a>(sweeps: &'a [Sweep], fingerprint: &Fingerprint) -> Vec<ReportPlan<'a>> {
    let headed = |sweep: &'a Sweep| Some((sweep, sweep.header.as_ref()?));
    let mut groups: Vec<Vec<(&Sweep, &JournalHeader)>> = Vec::new();
    for (sweep, header) in sweeps.iter().filter_map(headed).filter(|(_, header)| header.fingerprint == *fingerprint) {
        match groups.iter_mut().find(|group| group.iter().any(|(_, other)| other.sweep == header.sweep)) {
            Some(group) => group.push((sweep, header)),
            None => groups.push(vec![(sweep, header)]),
        }
    }
    let plan = |group: Vec<(&'a Sweep, &JournalHeader)>| {
        let trials = group.iter().flat_map(|(sweep, _)| &sweep.records);
        ReportPlan {
            names: group.iter().map(|(sweep, _)| sweep.name.as_str()).collect(),
            finished: trials.map(|record| &record.id).collect::<HashSet<_>>().len(),
            planned: merge::plan::known(&group.iter().map(|(_, header)| *header).collect::<Vec<_>>()),
        }
    };
    groups.into_iter().map(plan).filter(|plan| plan.planned > 0).collect()
}

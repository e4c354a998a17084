//! What to run in place of the configuration that runs now.
//!
//! A verdict compares with no speculation. Whoever has a launch asks another question: is something
//! faster than *it*? The answer may be known while the verdict is not, when the launch is so slow
//! that both speculation and none beat it.

use super::{
    Comparison, LoadRanking, Looks, Ranked, baselines, cells, choice, off_row, race, scores, starts::Starts,
    uneven::Sides,
};
use crate::{
    statistics::Interval,
    trials::{configuration::Configuration, record::Record},
};

/// A configuration that is shown to be better than the one that runs now.
#[derive(Clone, Debug, PartialEq)]
pub struct Replacement {
    /// What to run: the chosen one if it is shown to be better, else the simplest of those that tie
    /// with the best.
    pub configuration: Configuration,
    /// The objective relative to what runs now: 1.5 is 50% better. It holds for all configurations
    /// together.
    pub over_current: Interval,
}

/// What is shown to be better than `current` under the load of a ranking of these records; `None`
/// if nothing is, if differences between starts of servers may explain it, or if the wall clock
/// contradicts it ([`Ranked::refuted`]).
pub fn replacement<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    ranking: &LoadRanking,
    current: &Configuration,
    comparison: impl Into<Comparison>,
) -> Option<Replacement> {
    let looks = comparison.into().looks;
    let metric = ranking.metric;
    let race = race(records, ranking.load, looks);
    let scores = scores(&cells(&race, metric), off_row(&race), metric, looks);
    let via = baselines(&race);
    let row_of = |wanted: &Configuration| race.keys().position(|one| *one == wanted);
    let now = row_of(current)?;
    let sides = Sides { race: &race, metric, excluded: &ranking.excluded };

    let others = ranking.entries.iter().filter(|entry| entry.repeats > 0 && entry.configuration != *current);
    // All others count here: any of them could have replaced the current one.
    let comparisons = others.clone().count();
    let better: Vec<(usize, &Ranked, Interval)> = others
        .filter_map(|entry| {
            let row = row_of(&entry.configuration)?;
            let over = scores.lead(row, now, &via)?.interval(comparisons);
            let is_better = over.coverage > 0.0 && over.low > 1.0 && !sides.refutes_lead([row, now]);
            is_better.then_some((row, entry, over))
        })
        .collect();

    // The sweep's own choice comes first, so that both reports name the same configuration.
    let chosen = better.iter().find(|(_, entry, _)| Some(&entry.configuration) == ranking.chosen.as_ref());
    let simplest = || {
        let (best, ..) = better.first()?;
        let ties = |row: usize| choice::replaces(&scores, row, *best, &via, comparisons);
        better.iter().filter(|(row, ..)| ties(*row)).min_by_key(|(_, entry, _)| entry.configuration.complexity())
    };
    let (row, entry, over_current) = chosen.or_else(simplest)?;
    let starts = Starts::from_pair(&race, *row, now, metric).filter(|_| looks == Looks::PlannedStarts);
    let may_be_starts = starts.is_some_and(|starts| starts.explain_lead(over_current.median.ln()));
    (!may_be_starts).then(|| Replacement { configuration: entry.configuration.clone(), over_current: *over_current })
}

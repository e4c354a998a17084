//! Repeats after the plan: for trials that were excluded because something disturbed them, to
//! confirm a choice in a second start of its server, and, if the sweep asks for it, until every
//! open comparison is decided.
//!
//! Each further repeat is decided from the records of the repeats before it alone, so a resumed
//! sweep asks for the same trials.

use schemas::sweep::{Search, Until};

use super::{Experiment, SearchStop, StopReason, TrialRunner, listed::interleaved};
use crate::{
    results::selection::{INDIFFERENT, LoadRanking, MOST_REPEATS, Ranked, SpeculationVerdict, Uncertainty},
    space::Candidate,
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{CandidateRole, Trial},
    },
};

/// Maximum number of configurations that are repeated before the next look while it is open whether
/// speculation pays: the best so far. Their repeats also say how far repeats depend on each other,
/// which then closes others.
const MOST_AT_ONCE: usize = 4;

/// Measures the further repeats. `ended` is why the plan ended.
pub fn run(
    search: &Search,
    experiment: &Experiment,
    ended: StopReason,
    bench: &mut dyn TrialRunner,
) -> Result<StopReason, SearchStop> {
    let until_decided = search.until == Until::Decided;
    let step = step(experiment);
    let mut first = experiment.repeats;
    loop {
        let requested = Further { search, experiment, first }.requested(bench);
        let still_open = until_decided && requested.iter().any(|(_, open, _)| *open);
        let entrants: Vec<(TrialLoad, Vec<Candidate>)> =
            requested.into_iter().map(|(load, _, all)| (load, all)).collect();
        if entrants.iter().all(|(_, all)| all.is_empty()) || first >= MOST_REPEATS {
            return Ok(match (until_decided, still_open) {
                (false, _) => ended,
                (true, false) => StopReason::Decided,
                (true, true) => StopReason::Undecided,
            });
        }
        let trials = ordered(experiment, &entrants, first..first + step);
        bench.more(trials.len());
        for trial in trials {
            match bench.measure(&trial) {
                Ok(_) => {}
                // The plan is complete; what the budget does not allow is missing from the further
                // repeats only.
                Err(SearchStop::Stop(StopReason::TrialBudget | StopReason::TimeBudget)) if !until_decided => {
                    return Ok(ended);
                }
                Err(stop) => return Err(stop),
            }
        }
        first += step;
    }
}

/// Repeats from `first` on.
struct Further<'a> {
    search: &'a Search,
    experiment: &'a Experiment,
    first: usize,
}

impl Further<'_> {
    /// For each load, whether a comparison is open, and the configurations to measure, no
    /// speculation among them.
    fn requested(&self, bench: &dyn TrialRunner) -> Vec<(TrialLoad, bool, Vec<Candidate>)> {
        let of_load = |load: &TrialLoad| {
            // Later repeats are of an interrupted run: with them a resumed sweep would decide
            // otherwise than the first.
            let before = bench.history().iter().filter(|record| record.trial.repeat < self.first).cloned();
            let before: Vec<_> = before.collect();
            let Some(ranking) = self.experiment.standing(&before, *load) else { return (*load, false, Vec::new()) };
            let open = if self.search.until == Until::Decided { open(&ranking) } else { Vec::new() };
            let mut requested = open.clone();
            requested.extend(self.unconfirmed(&ranking));
            if self.first < self.experiment.repeats + self.search.remeasure * step(self.experiment) {
                requested.extend(incomplete(&ranking, self.experiment.repeats));
            }
            let entrants = self.experiment.entrants.iter();
            let is_off = |one: &Candidate| one.role == CandidateRole::NoSpeculation && !requested.is_empty();
            let all = entrants.filter(|one| requested.contains(&one.configuration) || is_off(one)).cloned();
            (*load, !open.is_empty(), all.collect())
        };
        self.experiment.loads.iter().map(of_load).collect()
    }

    /// The configuration that the verdict is about, if all its repeats are of one start of a
    /// server.
    fn unconfirmed(&self, ranking: &LoadRanking) -> Option<Configuration> {
        let is_due = self.search.confirm && self.first == self.experiment.repeats;
        let rests_on_starts = matches!(
            ranking.verdict,
            SpeculationVerdict::Pays
                | SpeculationVerdict::DoesNotPay
                | SpeculationVerdict::CannotTell(Uncertainty::StartsDiffer)
        );
        let starts = ranking.starts.as_ref().filter(|starts| is_due && rests_on_starts && starts.of_subject == 1);
        starts.map(|starts| starts.subject.clone())
    }
}

/// Repeats between two looks: a start of a server is worth as many as in the plan.
fn step(experiment: &Experiment) -> usize {
    if experiment.restarts { experiment.repeats.max(1) } else { 1 }
}

/// Configurations that have fewer repeats than the plan, because some were excluded.
fn incomplete(ranking: &LoadRanking, repeats: usize) -> Vec<Configuration> {
    let lacks = |entry: &&Ranked| entry.left_out > 0 && entry.repeats - entry.left_out.min(entry.repeats) < repeats;
    ranking.entries.iter().filter(lacks).map(|entry| entry.configuration.clone()).collect()
}

/// The configurations of comparisons that more repeats may decide: whether speculation pays; and if
/// it does, whether the chosen configuration is as fast as the best, which is less simple.
pub fn open(ranking: &LoadRanking) -> Vec<Configuration> {
    let measured = || ranking.entries.iter().filter(|entry| entry.repeats > 0);
    let named = |entry: &Ranked| entry.configuration.clone();
    match ranking.verdict {
        SpeculationVerdict::CannotTell(_) => {
            // Only those that may still gain more than is negligible keep the answer open.
            let may_gain =
                |entry: &&Ranked| entry.speedup.is_none_or(|ends| ends.coverage == 0.0 || ends.high.ln() > INDIFFERENT);
            measured()
                .filter(|entry| !entry.configuration.is_off())
                .filter(may_gain)
                .map(named)
                .take(MOST_AT_ONCE)
                .collect()
        }
        SpeculationVerdict::Pays => {
            // Entries are sorted, best first.
            let best = measured().next().map(named);
            let unclear = |chosen: &&Ranked| {
                chosen.against_best.is_some_and(|ratio| ratio.coverage == 0.0 || ratio.low.ln() < -INDIFFERENT)
                    && chosen.against_best.is_some_and(|ratio| ratio.high >= 1.0)
            };
            let chosen = ranking.winner().filter(unclear).map(named);
            chosen.into_iter().flat_map(|chosen| [Some(chosen), best.clone()]).flatten().collect()
        }
        SpeculationVerdict::DoesNotPay
        | SpeculationVerdict::Tie
        | SpeculationVerdict::AllFailed
        | SpeculationVerdict::NotCompared => Vec::new(),
    }
}

/// The trials of some repeats: interleaved, or one start after the other.
fn ordered(
    experiment: &Experiment,
    entrants: &[(TrialLoad, Vec<Candidate>)],
    repeats: std::ops::Range<usize>,
) -> Vec<Trial> {
    if !experiment.restarts {
        return entrants.iter().flat_map(|(load, all)| interleaved(all, &[*load], repeats.clone())).collect();
    }
    let of = |one: &Candidate| -> Vec<Trial> {
        let loads = entrants.iter().filter(|(_, all)| all.contains(one)).map(|(load, _)| *load);
        let loads: Vec<TrialLoad> = loads.collect();
        let each = |repeat: usize| {
            let configuration = one.configuration.clone();
            let trial = move |load| Trial { configuration: configuration.clone(), load, repeat };
            loads.clone().into_iter().map(trial).collect::<Vec<_>>()
        };
        repeats.clone().flat_map(each).collect()
    };
    experiment.entrants.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests;

//! The choice of a race, and the verdict on it.

use super::{
    Ranked, SpeculationVerdict, Uncertainty,
    scores::{Lead, Scores},
};
use crate::trials::record::CandidateRole;

/// Negligible differences (one percent), in logarithms: of two configurations that differ by less
/// the simpler one is taken, and neither is worth more repeats.
pub const INDIFFERENT: f64 = 0.01;
/// The smallest gain worth finding, in logarithms: if it is excluded, there is a tie with no
/// speculation.
pub const WORTHWHILE: f64 = 0.05;
/// A configuration that may be slower than the best by this much does not tie, even if the
/// difference is not significant. In logarithms.
const WIDE: f64 = 0.15;
/// What a simpler configuration that ties with the best may be measured to be slower, in
/// logarithms.
const GIVEN_UP: f64 = 0.02;
/// Scatter of single scores above which an undecided race is blamed on noise, not on the number of
/// repeats.
const NOISY: f64 = 0.04;
/// Share of stalled time, and of excluded trials, above which the machine is the reason.
const BUSY: f64 = 0.05;

/// A race; its entries are rows of the scores.
pub struct Judge<'a> {
    /// The scores by row and block.
    pub scores: &'a Scores,
    /// The row of no speculation with the sweep file's settings.
    pub off: Option<usize>,
    /// The rows of no speculation and of the engine's default, through which rows without a common
    /// block are compared.
    pub via: Vec<usize>,
}

/// How one row compares with no speculation.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Its lead over no speculation; `None` for no speculation itself and without a pair.
    pub over_off: Option<Lead>,
    /// Its sort key: the lead over no speculation as it is shown (the median over pairs), so that
    /// the order is that of the printed figures; 0 for no speculation itself; negative infinity
    /// without a pair.
    pub place: f64,
}

impl Judge<'_> {
    /// The standing of every row.
    pub fn standings(&self, rows: usize) -> Vec<Standing> {
        let standing = |row: usize| {
            let over_off = self.off.filter(|off| *off != row).and_then(|off| self.scores.lead(row, off, &self.via));
            let place =
                if self.off == Some(row) { 0.0 } else { over_off.map_or(f64::NEG_INFINITY, |lead| lead.median) };
            Standing { over_off, place }
        };
        (0..rows).map(standing).collect()
    }

    /// Number of rows that may be the best: the number of comparisons among which chance may pick a
    /// winner. The best is compared at the level of all rows, since chance may have picked it among
    /// all of them.
    pub fn contenders(&self, standings: &[Standing]) -> usize {
        let leads = || standings.iter().filter_map(|standing| standing.over_off);
        let Some(best) = leads().max_by(|a, b| a.median.total_cmp(&b.median)) else { return 1 };
        // Entries below the best one's interval could not be chosen, and do not widen the others.
        let least = best.ends(leads().count()).map_or(best.median, |(low, _)| low);
        leads().filter(|lead| lead.median >= least).count().max(1)
    }
}

/// Marks the rows that tie with the best, each compared directly with it.
pub fn tie(entries: &mut [(usize, &mut Ranked)], judge: &Judge<'_>, comparisons: usize) {
    let Some(best) = entries.first().map(|(row, _)| *row) else { return };
    for (row, entry) in entries {
        if *row == best {
            entry.tied_with_best = true;
            continue;
        }
        let Some(lead) = judge.scores.lead(*row, best, &judge.via) else { continue };
        entry.against_best = Some(lead.interval(comparisons));
        let relation = relation(&lead, comparisons);
        entry.tied_with_best = relation == PairRelation::Tied;
        entry.too_noisy = relation == PairRelation::Unclear;
    }
}

/// How a row compares with a better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairRelation {
    /// Significantly worse.
    Behind,
    /// No significant difference.
    Tied,
    /// No significant difference, but it may be much slower.
    Unclear,
}

/// The relation that follows from a lead, which is seldom above 0.
pub fn relation(lead: &Lead, comparisons: usize) -> PairRelation {
    match lead.ends(comparisons) {
        // Without a known scatter, only a negligible difference counts as a tie.
        None if lead.median >= -INDIFFERENT => PairRelation::Tied,
        None => PairRelation::Behind,
        Some((_, high)) if high < 0.0 && lead.median < -INDIFFERENT => PairRelation::Behind,
        Some((low, _)) if low < -WIDE => PairRelation::Unclear,
        Some(_) => PairRelation::Tied,
    }
}

/// Chooses a row of the measured entries, best first, and the verdict on speculation. `all_failed`
/// says whether speculation was tried and failed in every trial.
pub fn choose(
    entries: &[(usize, &Ranked)],
    all_failed: bool,
    judge: &Judge<'_>,
    comparisons: usize,
    blame: &Blame,
) -> (Option<usize>, SpeculationVerdict) {
    let simplest = |rows: Vec<&(usize, &Ranked)>| {
        rows.into_iter().min_by_key(|(_, entry)| entry.configuration.complexity()).map(|(row, _)| *row)
    };
    let off = entries.iter().find(|(_, entry)| entry.role == CandidateRole::NoSpeculation).map(|(row, _)| *row);
    let speculating: Vec<&(usize, &Ranked)> =
        entries.iter().filter(|(_, entry)| !entry.configuration.is_off()).collect();
    // Without both sides there is no verdict, only a fastest configuration.
    if off.is_none() || speculating.is_empty() {
        let tied = entries.iter().filter(|(_, entry)| entry.tied_with_best).collect();
        let verdict = if speculating.is_empty() && all_failed {
            SpeculationVerdict::AllFailed
        } else {
            SpeculationVerdict::NotCompared
        };
        return (simplest(tied), verdict);
    }
    let ends = |entry: &Ranked| {
        entry.speedup.filter(|speedup| speedup.coverage > 0.0).map(|speedup| (speedup.low.ln(), speedup.high.ln()))
    };
    let proven: Vec<&(usize, &Ranked)> =
        speculating.iter().copied().filter(|(_, entry)| ends(entry).is_some_and(|(low, _)| low > 0.0)).collect();
    // Entries are sorted, so the first that is proven leads the others; a simpler one that ties
    // replaces it.
    if let Some((best, _)) = proven.first() {
        let ties = |(row, _): &&&(usize, &Ranked)| replaces(judge.scores, *row, *best, &judge.via, comparisons);
        return (simplest(proven.iter().filter(ties).copied().collect()), SpeculationVerdict::Pays);
    }
    let all: Vec<Option<(f64, f64)>> = speculating.iter().map(|(_, entry)| ends(entry)).collect();
    let has_pairs = speculating.iter().any(|(_, entry)| entry.speedup.is_some());
    (off, decided(&all).unwrap_or_else(|| SpeculationVerdict::CannotTell(blame.uncertainty(has_pairs))))
}

/// Whether a simpler row may be chosen in place of the best: it ties with it and is measured to be
/// hardly slower. Each is compared with the best itself, never with another that ties with it.
pub fn replaces(scores: &Scores, row: usize, best: usize, via: &[usize], comparisons: usize) -> bool {
    let ties = |lead: Lead| relation(&lead, comparisons) == PairRelation::Tied && lead.median >= -GIVEN_UP;
    row == best || scores.lead(row, best, via).is_some_and(ties)
}

/// The verdict that follows from the ends of the leads of speculating configurations over no
/// speculation; `None` if they decide nothing. Ends that are unknown exclude nothing.
pub fn decided(leads: &[Option<(f64, f64)>]) -> Option<SpeculationVerdict> {
    let all_below = |most: f64| leads.iter().all(|ends| ends.is_some_and(|(_, high)| high < most));
    match () {
        () if leads.iter().flatten().any(|(low, _)| *low > 0.0) => Some(SpeculationVerdict::Pays),
        () if all_below(0.0) => Some(SpeculationVerdict::DoesNotPay),
        () if all_below(WORTHWHILE) => Some(SpeculationVerdict::Tie),
        () => None,
    }
}

/// Possible reasons why a race is undecided.
pub struct Blame {
    /// Maximum number of repeats of a configuration; of starts, where these are what counts.
    pub repeats: usize,
    /// Share of stalled time: median over trials; `None` if no trial recorded it, as with servers.
    pub stalled: Option<f64>,
    /// Share of excluded trials.
    pub left_out: f64,
    /// Relative deviation of single scores, if known.
    pub deviation: Option<f64>,
    /// Whether consecutive repeats resemble each other.
    pub dependent: bool,
}

impl Blame {
    fn uncertainty(&self, has_pairs: bool) -> Uncertainty {
        // Repeats that are far slower than others have many causes; only stalls show that it is the
        // machine.
        let busy = self.stalled.is_some_and(|stalled| stalled > BUSY || self.left_out > BUSY);
        match self.deviation {
            _ if !has_pairs && busy => Uncertainty::BusyMachine,
            _ if !has_pairs => Uncertainty::NoPair,
            // One repeat has no scatter; everything below judges the scatter.
            None if self.repeats < 2 => Uncertainty::OneRepeat,
            Some(_) if self.dependent => Uncertainty::Dependent,
            Some(deviation) if deviation > NOISY && busy => Uncertainty::BusyMachine,
            Some(deviation) if deviation > NOISY => Uncertainty::Noise,
            _ => Uncertainty::FewRepeats,
        }
    }
}

//! Stalls of two sides of a comparison: whether a verdict or a choice rests on removing more of one
//! side.
//!
//! Stalls are found by comparing steps, so work that differs from step to step may be taken for
//! stalls, and a long step hides more of a disturbance than a short one. Both happen in every
//! repeat, while a disturbance from outside hits the trials of both sides by chance.

use schemas::sweep::Metric;

use super::{
    ConfigurationRace, ExcludedTrial, Ranked, RankedPlace, SpeculationVerdict, Uncertainty, UnevenStalls, WallRival,
    choice::{Judge, PairRelation, WORTHWHILE, relation},
};
use crate::{statistics::median, trials::record::Record};

/// Difference of the stalled shares of two sides from which on removing stalls may favour one of
/// them.
const UNEVEN: f64 = 0.05;
/// Repeats of five in which one side stalls for more of its time, if that is not by chance…
const OF_FIVE: usize = 4;
/// …by more than this share of the time.
const CLEAR: f64 = 0.5 * UNEVEN;

/// The trials that are compared.
pub(super) struct Sides<'a> {
    pub race: &'a ConfigurationRace<'a>,
    pub metric: Metric,
    pub excluded: &'a [ExcludedTrial],
}

impl Sides<'_> {
    /// The choice and the verdict, unless it rests on removing more stalls of one side than of the
    /// other in nearly every repeat, and the wall clock says something else.
    pub fn confirmed(
        &self,
        chosen: Option<usize>,
        verdict: SpeculationVerdict,
        off: Option<usize>,
    ) -> (Option<usize>, SpeculationVerdict) {
        let Some(off) = off else { return (chosen, verdict) };
        let contradicts = |row: usize, wall: f64| match verdict {
            SpeculationVerdict::Pays => chosen == Some(row) && wall <= 1.0,
            SpeculationVerdict::DoesNotPay => wall >= 1.0,
            SpeculationVerdict::Tie => wall.ln() >= WORTHWHILE,
            SpeculationVerdict::CannotTell(_) | SpeculationVerdict::AllFailed | SpeculationVerdict::NotCompared => {
                false
            }
        };
        let speculating = self.race.keys().enumerate().filter(|(_, configuration)| !configuration.is_off());
        let is_contradicted = speculating
            .map(|(row, _)| row)
            .any(|row| self.uneven([row, off]).is_some_and(|uneven| contradicts(row, uneven.wall_speedup)));
        if is_contradicted {
            (Some(off), SpeculationVerdict::CannotTell(Uncertainty::UnevenStalls))
        } else {
            (chosen, verdict)
        }
    }

    /// Marks the rows whose lead over no speculation the wall clock contradicts in the same way, and
    /// those that it puts above a choice that speculates.
    pub fn mark(
        &self,
        entries: &mut [(usize, Ranked)],
        (off, chosen): (Option<usize>, Option<usize>),
        judge: &Judge<'_>,
        comparisons: usize,
    ) {
        let chosen = chosen.filter(|row| self.race.keys().nth(*row).is_some_and(|one| !one.is_off()));
        for (row, entry) in entries.iter_mut().filter(|(_, entry)| !entry.configuration.is_off()) {
            entry.refuted = off.is_some_and(|off| self.refutes_lead([*row, off]));
            let is_worse = |chosen: usize| {
                let lead = judge.scores.lead(*row, chosen, &judge.via);
                lead.is_some_and(|lead| relation(&lead, comparisons) == PairRelation::Behind)
            };
            let rival = |chosen: usize| {
                let UnevenStalls { speculating: stalled, no_speculation: chosen_stalled, wall_speedup: over_chosen } =
                    self.uneven([*row, chosen])?;
                // As for verdicts: a tie is contradicted by a difference that is worth finding.
                let least = if is_worse(chosen) { 0.0 } else { WORTHWHILE };
                (over_chosen.ln() >= least).then_some(WallRival { stalled, chosen_stalled, over_chosen })
            };
            entry.wall_rival = chosen.filter(|chosen| chosen != row).and_then(rival);
        }
    }

    /// Whether the wall clock contradicts that a row is better than another, and one of the two
    /// stalled for more of its time in nearly every repeat.
    pub fn refutes_lead(&self, rows: [usize; 2]) -> bool {
        self.uneven(rows).is_some_and(|uneven| uneven.wall_speedup <= 1.0)
    }

    /// The stalls of two rows, if one stalled for more of its time in nearly every repeat.
    fn uneven(&self, rows: [usize; 2]) -> Option<UnevenStalls> {
        self.stalls(rows).filter(|_| self.is_in_most_repeats(rows))
    }

    /// The lead of one row over another by the wall clock, stalls included, as a ratio; `None`
    /// without a pair, and for an open loop, where the wall clock is what is compared anyway.
    pub fn wall_speedup(&self, rows: [usize; 2]) -> Option<f64> {
        self.race.values().nth(rows[0])?.first()?.record.trial.load.batch_size()?;
        let score = |record: &Record| record.measurement()?.wall_score(self.metric).map(f64::ln);
        median(self.differences(rows, score)).map(f64::exp)
    }

    /// The stalls of two rows, the second without speculation or the one that the first is compared
    /// with, if their shares differ by more than [`UNEVEN`] and are removed from the figures.
    pub fn stalls(&self, rows: [usize; 2]) -> Option<UnevenStalls> {
        let share = |row: usize| {
            let shares: Vec<f64> = self.counted(row).filter_map(|one| removed(one.record)).collect();
            (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
        };
        let (speculating, no_speculation) = (share(rows[0])?, share(rows[1])?);
        if (speculating - no_speculation).abs() <= UNEVEN {
            return None;
        }
        Some(UnevenStalls { speculating, no_speculation, wall_speedup: self.wall_speedup(rows)? })
    }

    /// Whether the same row stalled for more of its time in nearly every repeat.
    fn is_in_most_repeats(&self, rows: [usize; 2]) -> bool {
        let differences = self.differences(rows, removed);
        let most = |is_beyond: fn(&f64) -> bool| {
            5 * differences.iter().filter(|one| is_beyond(one)).count() >= OF_FIVE * differences.len()
        };
        !differences.is_empty() && (most(|one| *one > CLEAR) || most(|one| *one < -CLEAR))
    }

    /// The trials of a row that are not excluded.
    fn counted(&self, row: usize) -> impl Iterator<Item = &RankedPlace<'_>> {
        let trials = self.race.values().nth(row).into_iter().flatten();
        trials.filter(|one| !self.excluded.iter().any(|excluded| excluded.is_of(one.record)))
    }

    /// The differences of a figure of two rows, within their common blocks.
    fn differences(&self, [row, over]: [usize; 2], figure: impl Fn(&Record) -> Option<f64>) -> Vec<f64> {
        let pairs = self.counted(row).filter_map(|one| {
            let other = self.counted(over).find(|other| other.block == one.block)?;
            Some(figure(one.record)? - figure(other.record)?)
        });
        pairs.collect()
    }
}

/// The share of a trial's time that was removed as stalls; `None` if stalls are part of its
/// figures.
fn removed(record: &Record) -> Option<f64> {
    let figures = record.measurement()?;
    figures.steady.and(figures.stalls).map(|stalls| stalls.of_time)
}

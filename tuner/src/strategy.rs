//! Which trials run, and when that is enough.

mod anneal;
mod few_starts;
mod guided;
mod listed;
mod shard;
#[cfg(test)]
mod tests;

use schemas::sweep::{Metric, Search, StrategyName};

pub use self::{
    few_starts::{Found, most_trials as few_starts_trials, rotations, run as few_starts},
    shard::Shard,
};
use crate::{
    TunerError,
    configuration::Load,
    guide::Prediction,
    record::{Record, Role, Trial},
    selection::{Doubt, LoadRanking, Verdict, rank},
    space::Entrant,
};

/// The race of one sweep: every configuration under every load, as often as asked for.
#[derive(Clone, Debug)]
pub struct Race {
    /// The configurations, baselines first.
    pub entrants: Vec<Entrant>,
    /// How requests come.
    pub loads: Vec<Load>,
    /// How often each is measured.
    pub repeats: usize,
    /// What counts as better.
    pub metric: Metric,
    /// Whether every configuration costs a start of the system, so that all its trials run one after the other.
    pub restarts: bool,
}

/// Where trials are measured.
pub trait Bench {
    /// Measures a trial and puts it into the journal, or finds it there.
    ///
    /// # Errors
    /// When a budget is used up, the user wants to stop, or the sweep cannot go on.
    fn measure(&mut self, trial: &Trial) -> Result<&Record, Halt>;

    /// Everything in the journal.
    fn history(&self) -> &[Record];
}

/// Why a search ends before it wants to.
#[derive(Debug)]
pub enum Halt {
    /// For a reason that is no error.
    Stop(StopReason),
    /// The sweep cannot go on.
    Failed(TunerError),
}

/// Why a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Every trial of the plan is measured.
    SpaceExhausted,
    /// As many trials as asked for.
    TrialBudget,
    /// As much time as asked for.
    TimeBudget,
    /// The user wanted to stop.
    Interrupted,
    /// The annealing schedule is at its end.
    Cooled,
    /// Under every load nothing that is not measured is predicted within reach of the best. How sure the choice itself is, the
    /// verdict says.
    Settled,
    /// As [`Settled`](Self::Settled), but for contenders that more repeats did not tell apart.
    StillTied,
}

/// How many trials a search takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Trials, at most.
    pub trials: usize,
    /// Whether it will be just as many.
    pub exact: bool,
}

impl Race {
    /// Trials of the whole space.
    pub fn size(&self) -> usize {
        self.entrants.len() * self.loads.len() * self.repeats
    }

    /// No speculation and the engine's default, with the sweep's own settings.
    pub fn baselines(&self) -> impl Iterator<Item = &Entrant> {
        self.entrants.iter().filter(|one| one.role != Role::Candidate)
    }

    /// The baselines under every load, as often as asked for.
    pub fn baseline_trials(&self) -> Vec<Trial> {
        let baselines: Vec<Entrant> = self.baselines().cloned().collect();
        listed::ordered(self, &baselines)
    }

    /// How it stands under a load; `None` before its first trial.
    pub fn standing(&self, history: &[Record], load: Load) -> Option<LoadRanking> {
        rank(history.iter().filter(|record| record.trial.load == load), self.metric).pop()
    }
}

/// Runs the search that a sweep file names, to its end.
///
/// # Errors
/// As [`Bench::measure`].
pub fn search(
    search: &Search,
    race: &Race,
    predictions: &[Prediction],
    bench: &mut dyn Bench,
) -> Result<StopReason, Halt> {
    let ended = match search.strategy {
        StrategyName::Grid => listed::run(&listed::grid(race), race, bench)?,
        StrategyName::Random => listed::run(&listed::random(search, race), race, bench)?,
        StrategyName::Anneal => anneal::run(search, race, bench)?,
        StrategyName::Guided => return guided::run(search, race, predictions, bench),
    };
    // Without a budget the plan is all that was asked for.
    if search.trials.is_none() && search.seconds.is_none() {
        return Ok(ended);
    }
    match repeat_disturbed(race, bench) {
        // The plan is done all the same.
        Ok(()) | Err(Halt::Stop(StopReason::TrialBudget | StopReason::TimeBudget)) => Ok(ended),
        Err(halt) => Err(halt),
    }
}

/// Where a busy machine is why a race cannot tell, its contenders are measured again together with no speculation, as far as the
/// budget goes.
fn repeat_disturbed(race: &Race, bench: &mut dyn Bench) -> Result<(), Halt> {
    for load in &race.loads {
        let standing = race.standing(bench.history(), *load);
        if standing.is_some_and(|ranking| ranking.verdict == Verdict::CannotTell(Doubt::BusyMachine)) {
            guided::tell_apart(race, *load, bench)?;
        }
    }
    Ok(())
}

/// How many trials the search is going to ask for.
pub fn planned(search: &Search, race: &Race) -> Planned {
    let budget = search.trials.unwrap_or(usize::MAX);
    match search.strategy {
        StrategyName::Grid => Planned { trials: race.size().min(budget), exact: true },
        StrategyName::Random => Planned { trials: listed::random(search, race).len().min(budget), exact: true },
        StrategyName::Anneal => Planned { trials: anneal::most_trials(search, race).min(budget), exact: false },
        StrategyName::Guided => Planned { trials: guided::most_trials(search, race).min(budget), exact: false },
    }
}

/// Refuses a budget after which nothing could be chosen.
///
/// # Errors
/// When it is too small, with the least that is needed.
pub fn check(search: &Search, race: &Race) -> Result<(), TunerError> {
    let fewest = anneal::fewest_trials(race);
    match search.trials {
        Some(trials) if search.strategy == StrategyName::Anneal && trials < fewest => {
            let (loads, repeats) = (race.loads.len(), race.repeats);
            Err(TunerError::Configuration(format!(
                "search.trials is {trials}, and anneal needs {fewest}: the baselines and one configuration more, under \
                 each load ({loads}) as often as search.repeats says ({repeats}); raise it, or lower the others"
            )))
        }
        _ => Ok(()),
    }
}

/// The trials of a list, where they are known beforehand: what a plan can print.
pub fn list(search: &Search, race: &Race) -> Option<Vec<Trial>> {
    let mut trials = match search.strategy {
        StrategyName::Grid => listed::grid(race),
        StrategyName::Random => listed::random(search, race),
        StrategyName::Anneal | StrategyName::Guided => return None,
    };
    trials.truncate(search.trials.unwrap_or(usize::MAX));
    Some(trials)
}

impl StopReason {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::SpaceExhausted => "every trial of the plan is measured",
            Self::TrialBudget => "the budget of trials is used up",
            Self::TimeBudget => "the budget of time is used up",
            Self::Interrupted => "interrupted",
            Self::Cooled => "the annealing schedule is at its end",
            Self::Settled => "nothing unmeasured is predicted within reach of the best",
            Self::StillTied => {
                "nothing unmeasured is predicted within reach of the best, and more repeats did not tell the leaders apart"
            }
        }
    }
}

impl From<TunerError> for Halt {
    fn from(error: TunerError) -> Self {
        Self::Failed(error)
    }
}

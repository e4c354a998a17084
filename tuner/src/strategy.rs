//! Search strategies: which trials run, and when to stop.

mod anneal;
mod few_starts;
mod guided;
mod listed;
mod shard;
#[cfg(test)]
mod tests;

use schemas::sweep::{Metric, Search, StrategyName};

pub use self::few_starts::{Found, most_trials as few_starts_trials, rotations, run as few_starts};
pub use crate::shard::Shard;
use crate::{
    TunerError,
    configuration::Load,
    guide::Prediction,
    record::{Record, Role, Trial},
    selection::{Doubt, LoadRanking, Verdict, rank},
    space::Candidate,
};

/// The experiment of one sweep: every configuration under every load, with the requested repeats.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The configurations, baselines first.
    pub entrants: Vec<Candidate>,
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
pub trait TrialRunner {
    /// Measures a trial and puts it into the journal, or finds it there.
    ///
    /// # Errors
    /// When a budget is used up, the user requests a stop, or the sweep cannot continue.
    fn measure(&mut self, trial: &Trial) -> Result<&Record, SearchStop>;

    /// Everything in the journal.
    fn history(&self) -> &[Record];
}

/// Why a search ends early.
#[derive(Debug)]
pub enum SearchStop {
    /// For a reason that is not an error.
    Stop(StopReason),
    /// The sweep cannot continue.
    Failed(TunerError),
}

/// Why a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Every trial of the plan is measured.
    SpaceExhausted,
    /// The requested number of trials.
    TrialBudget,
    /// The requested time.
    TimeBudget,
    /// The user stopped it.
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

impl Experiment {
    /// Trials of the whole space.
    pub fn size(&self) -> usize {
        self.entrants.len() * self.loads.len() * self.repeats
    }

    /// No speculation and the engine's default, with the sweep's own settings.
    pub fn baselines(&self) -> impl Iterator<Item = &Candidate> {
        self.entrants.iter().filter(|one| one.role != Role::Candidate)
    }

    /// The baselines under every load, with the requested repeats.
    pub fn baseline_trials(&self) -> Vec<Trial> {
        let baselines: Vec<Candidate> = self.baselines().cloned().collect();
        listed::ordered(self, &baselines)
    }

    /// Its ranking under a load; `None` before its first trial.
    pub fn standing(&self, history: &[Record], load: Load) -> Option<LoadRanking> {
        rank(history.iter().filter(|record| record.trial.load == load), self.metric).pop()
    }
}

/// Runs the search that a sweep file names, to its end.
///
/// # Errors
/// As [`TrialRunner::measure`].
pub fn search(
    search: &Search,
    experiment: &Experiment,
    predictions: &[Prediction],
    bench: &mut dyn TrialRunner,
) -> Result<StopReason, SearchStop> {
    let ended = match search.strategy {
        StrategyName::Grid => listed::run(&listed::grid(experiment), experiment, bench)?,
        StrategyName::Random => listed::run(&listed::random(search, experiment), experiment, bench)?,
        StrategyName::Anneal => anneal::run(search, experiment, bench)?,
        StrategyName::Guided => return guided::run(search, experiment, predictions, bench),
    };
    // Without a budget the plan is everything that was requested.
    if search.trials.is_none() && search.seconds.is_none() {
        return Ok(ended);
    }
    match repeat_disturbed(experiment, bench) {
        // The plan is complete anyway.
        Ok(()) | Err(SearchStop::Stop(StopReason::TrialBudget | StopReason::TimeBudget)) => Ok(ended),
        Err(halt) => Err(halt),
    }
}

/// Where a busy machine is why a race cannot tell, its contenders are measured again together with no speculation, as far as the
/// budget goes.
fn repeat_disturbed(experiment: &Experiment, bench: &mut dyn TrialRunner) -> Result<(), SearchStop> {
    for load in &experiment.loads {
        let standing = experiment.standing(bench.history(), *load);
        if standing.is_some_and(|ranking| ranking.verdict == Verdict::CannotTell(Doubt::BusyMachine)) {
            guided::tell_apart(experiment, *load, bench)?;
        }
    }
    Ok(())
}

/// How many trials the search is going to ask for.
pub fn planned(search: &Search, experiment: &Experiment) -> Planned {
    let budget = search.trials.unwrap_or(usize::MAX);
    match search.strategy {
        StrategyName::Grid => Planned { trials: experiment.size().min(budget), exact: true },
        StrategyName::Random => Planned { trials: listed::random(search, experiment).len().min(budget), exact: true },
        StrategyName::Anneal => Planned { trials: anneal::most_trials(search, experiment).min(budget), exact: false },
        StrategyName::Guided => Planned { trials: guided::most_trials(search, experiment).min(budget), exact: false },
    }
}

/// Refuses a budget after which nothing could be chosen.
///
/// # Errors
/// When it is too small, with the least that is needed.
pub fn check(search: &Search, experiment: &Experiment) -> Result<(), TunerError> {
    let fewest = anneal::fewest_trials(experiment);
    match search.trials {
        Some(trials) if search.strategy == StrategyName::Anneal && trials < fewest => {
            let (loads, repeats) = (experiment.loads.len(), experiment.repeats);
            Err(TunerError::Configuration(format!(
                "search.trials is {trials}, and anneal needs {fewest}: the baselines and one configuration more, under \
                 each load ({loads}) as often as search.repeats says ({repeats}); raise it, or lower the others"
            )))
        }
        _ => Ok(()),
    }
}

/// The trials of a list, where they are known beforehand: what a plan can print.
pub fn list(search: &Search, experiment: &Experiment) -> Option<Vec<Trial>> {
    let mut trials = match search.strategy {
        StrategyName::Grid => listed::grid(experiment),
        StrategyName::Random => listed::random(search, experiment),
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
                "nothing unmeasured is predicted within reach of the best, and more repeats did not tell the leaders \
                 apart"
            }
        }
    }
}

impl From<TunerError> for SearchStop {
    fn from(error: TunerError) -> Self {
        Self::Failed(error)
    }
}

//! Search strategies: which trials run, and when to stop.

mod anneal;
mod few_starts;
mod guided;
mod listed;
mod settle;
mod shard;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use schemas::{
    sweep::{Metric, Search, StrategyName},
    tree::TreeShape,
};

pub use self::few_starts::{SearchFindings, most_starts, most_trials as few_starts_trials, rotations};
pub use crate::trials::shard::Shard;
use crate::{
    TunerError,
    prediction::guide::{AcceptanceTable, Prediction},
    results::selection::{Comparison, LoadRanking, Looks, rank},
    space::Candidate,
    trials::{
        configuration::{Configuration, Knobs, TrialLoad},
        record::{CandidateRole, Record, Trial},
    },
};

/// The experiment of one sweep: every configuration under every load, with the requested repeats.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The configurations, baselines first.
    pub entrants: Vec<Candidate>,
    /// How requests arrive.
    pub loads: Vec<TrialLoad>,
    /// Number of repeats of each configuration and load.
    pub repeats: usize,
    /// The metric to optimise.
    pub metric: Metric,
    /// How often results are looked at before measuring ends.
    pub looks: Looks,
    /// Whether every configuration needs a start of the system, so that all its trials run one
    /// after the other.
    pub restarts: bool,
}

/// Measures trials for a strategy.
pub trait TrialRunner {
    /// Measures a trial and appends it to the journal, or returns its record from there.
    ///
    /// # Errors
    /// When a budget is used up, the user requests a stop, or the sweep cannot continue.
    fn measure(&mut self, trial: &Trial) -> Result<&Record, SearchStop>;

    /// All records of the journal.
    fn history(&self) -> &[Record];

    /// The search asks for this many trials in addition to its plan; some of them may be measured
    /// already.
    fn more(&mut self, _trials: usize) {}
}

/// Why a search ends early.
#[derive(Debug)]
pub enum SearchStop {
    /// A regular reason.
    Stop(StopReason),
    /// The sweep cannot continue.
    Failed(TunerError),
}

/// Why a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Every trial of the plan has been measured.
    SpaceExhausted,
    /// The requested number of trials was measured.
    TrialBudget,
    /// A guided search over servers has used its starts.
    StartBudget,
    /// The requested time is used up.
    TimeBudget,
    /// The user stopped it.
    Interrupted,
    /// The annealing schedule has ended.
    Cooled,
    /// Under every load, no unmeasured configuration is predicted to be within reach of the best.
    /// The verdict says how certain the choice itself is.
    Settled,
    /// Every open comparison is decided.
    Decided,
    /// The greatest number of repeats did not decide every comparison.
    Undecided,
    /// As [`Settled`](Self::Settled), but further repeats could not separate some contenders.
    StillTied,
}

/// Number of trials of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Maximum number of trials.
    pub trials: usize,
    /// Whether exactly this many will run.
    pub exact: bool,
}

impl Experiment {
    /// Number of trials of the whole space.
    pub fn size(&self) -> usize {
        self.entrants.len() * self.loads.len() * self.repeats
    }

    /// No speculation and the engine's default, with the sweep file's settings.
    pub fn baselines(&self) -> impl Iterator<Item = &Candidate> {
        self.entrants.iter().filter(|one| one.role != CandidateRole::Candidate)
    }

    /// The baselines under every load, with the requested repeats.
    pub fn baseline_trials(&self) -> Vec<Trial> {
        let baselines: Vec<Candidate> = self.baselines().cloned().collect();
        listed::ordered(self, &baselines)
    }

    /// The combinations of settings other than the sweep file's own.
    pub fn other_settings(&self) -> BTreeSet<&Knobs> {
        self.entrants.iter().map(|one| &one.configuration.knobs).filter(|knobs| !knobs.are_default()).collect()
    }

    /// A draft's shape with each combination of other settings.
    pub fn with_other_settings(&self, shape: TreeShape, draft: &str) -> Vec<Candidate> {
        let of = |one: &&Candidate| {
            let Configuration { knobs, .. } = &one.configuration;
            !knobs.are_default() && one.configuration.shape == shape && one.configuration.draft == draft
        };
        self.entrants.iter().filter(of).cloned().collect()
    }

    /// The ranking under a load; `None` before its first trial.
    pub fn standing(&self, history: &[Record], load: TrialLoad) -> Option<LoadRanking> {
        let comparison = Comparison { metric: self.metric, looks: self.looks };
        // Records of one load give one ranking.
        rank(history.iter().filter(|record| record.trial.load == load), comparison).pop()
    }
}

/// Runs the search of a sweep file to its end.
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
        StrategyName::Guided => guided::run(search, experiment, predictions, bench)?,
    };
    settle::run(search, experiment, ended, bench)
}

/// Runs a guided search on servers to its end, as `few_starts::run`.
///
/// # Errors
/// As [`TrialRunner::measure`].
pub fn few_starts(
    search: &Search,
    experiment: &Experiment,
    acceptance: Option<&AcceptanceTable>,
    tables: &[Configuration],
    found: &mut SearchFindings,
    bench: &mut dyn TrialRunner,
) -> Result<StopReason, SearchStop> {
    let ended = few_starts::run(search, experiment, acceptance, tables, found, bench)?;
    settle::run(search, experiment, ended, bench)
}

/// Number of trials that the search will request.
pub fn planned(search: &Search, experiment: &Experiment) -> Planned {
    let budget = search.trials.unwrap_or(usize::MAX);
    match search.strategy {
        StrategyName::Grid => Planned { trials: experiment.size().min(budget), exact: true },
        StrategyName::Random => Planned { trials: listed::random(search, experiment).len().min(budget), exact: true },
        StrategyName::Anneal => Planned { trials: anneal::most_trials(search, experiment).min(budget), exact: false },
        StrategyName::Guided => Planned { trials: guided::most_trials(search, experiment).min(budget), exact: false },
    }
}

/// Checks that the budget allows a choice.
///
/// # Errors
/// When it is too small; the message gives the minimum.
pub fn check(search: &Search, experiment: &Experiment) -> Result<(), TunerError> {
    let fewest = anneal::fewest_trials(experiment);
    match search.trials {
        Some(trials) if search.strategy == StrategyName::Anneal && trials < fewest => {
            let (loads, repeats) = (experiment.loads.len(), experiment.repeats);
            Err(TunerError::Configuration(format!(
                "search.trials is {trials}, but anneal needs {fewest}: the baselines and one more configuration, with \
                 search.repeats ({repeats}) trials under each load ({loads}); raise search.trials, or lower the others"
            )))
        }
        _ => Ok(()),
    }
}

/// The list of trials, if it is known in advance.
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
    /// As a phrase.
    pub fn words(self) -> &'static str {
        match self {
            Self::SpaceExhausted => "every trial of the plan is measured",
            Self::TrialBudget => "the trial budget is used up",
            Self::StartBudget => "the starts that a guided search allows itself are used up",
            Self::TimeBudget => "the time budget is used up",
            Self::Interrupted => "interrupted",
            Self::Cooled => "the annealing schedule has ended",
            Self::Settled => "no unmeasured configuration is predicted to be within reach of the best",
            Self::Decided => "every open comparison is decided",
            Self::Undecided => "the greatest number of repeats did not decide every comparison",
            Self::StillTied => {
                "no unmeasured configuration is predicted to be within reach of the best, and more repeats did not \
                 separate the leaders"
            }
        }
    }
}

impl From<TunerError> for SearchStop {
    fn from(error: TunerError) -> Self {
        Self::Failed(error)
    }
}

//! Simulated annealing (Kirkpatrick, Gelatt & Vecchi 1983; argmin's solver) over the space of a
//! sweep, load by load: a walk between neighbouring configurations that sometimes accepts a worse
//! one, with falling probability. Each configuration on the walk is measured once; the best of them
//! and the baselines are then measured with the requested repeats.

use std::{cell::RefCell, collections::HashMap};

use argmin::{
    core::{CostFunction, Error, Executor},
    solver::simulatedannealing::{Anneal, SATempFunc, SimulatedAnnealing},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng as _};
use schemas::sweep::Search;

use super::{Experiment, SearchStop, StopReason, TrialRunner, listed::interleaved};
use crate::{
    space::Candidate,
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{CandidateRole, Outcome, Trial},
    },
};

/// Share of the space that the walk may measure, without a budget.
const SHARE: f64 = 0.25;
/// Minimum number of configurations that a walk may measure, if the space has this many.
const SHORTEST: usize = 8;
/// Steps of a walk for each configuration that it may measure: returning to known ones costs
/// nothing.
const STEPS_EACH: usize = 12;
/// The initial temperature, in units of the logarithm of the objective: a step to half the speed is
/// accepted one time in three.
const TEMPERATURE: f64 = 0.6;

/// The walk of one load.
struct AnnealWalk<'a, 'b> {
    experiment: &'a Experiment,
    load: TrialLoad,
    /// Number of configurations that may still be measured.
    left: RefCell<usize>,
    bench: RefCell<&'a mut (dyn TrialRunner + 'b)>,
    known: RefCell<HashMap<usize, f64>>,
    random: RefCell<StdRng>,
    /// Why it was stopped early, if it was.
    halt: RefCell<Option<SearchStop>>,
}

/// Runs the walks, then repeats the configurations that they found.
pub fn run(search: &Search, experiment: &Experiment, bench: &mut dyn TrialRunner) -> Result<StopReason, SearchStop> {
    for load in &experiment.loads {
        walk(search, experiment, *load, bench)?;
    }
    for load in &experiment.loads {
        let finalists = finalists(search, experiment, *load, bench);
        for trial in interleaved(&finalists, &[*load], 0..experiment.repeats) {
            bench.measure(&trial)?;
        }
    }
    Ok(StopReason::Cooled)
}

/// What a search may measure for one load.
struct Means {
    /// Number of configurations that the walk may measure, baselines included.
    walked: usize,
    /// Maximum number of the best configurations that are measured again together with the
    /// baselines.
    finalists: usize,
}

impl Means {
    /// Divides a budget so that the baselines and the choice are measured with the requested
    /// repeats: a choice from single repeats would be left to chance.
    fn from_search(search: &Search, experiment: &Experiment) -> Self {
        let baselines = experiment.baselines().count();
        let (walked, finalists) = match search.trials {
            Some(trials) => {
                let share = trials / experiment.loads.len().max(1);
                let spare = share.saturating_sub(baselines * experiment.repeats);
                // Half of the rest is for new configurations, half for repeats.
                let finalists = (spare / (2 * experiment.repeats).max(1)).clamp(1, search.candidates.max(1));
                (baselines + spare.saturating_sub(finalists * experiment.repeats.saturating_sub(1)), finalists)
            }
            None => (((experiment.entrants.len() as f64 * SHARE) as usize).max(SHORTEST), search.candidates),
        };
        Self { walked: walked.max(baselines + 1).min(experiment.entrants.len()), finalists }
    }
}

/// Maximum number of trials of all walks and of the repeats after them.
pub fn most_trials(search: &Search, experiment: &Experiment) -> usize {
    let Means { walked, finalists } = Means::from_search(search, experiment);
    let finals = (experiment.baselines().count() + finalists) * experiment.repeats.saturating_sub(1);
    experiment.loads.len() * (walked + finals)
}

/// The fewest trials that allow a choice: the baselines and one configuration, with the requested
/// repeats.
pub fn fewest_trials(experiment: &Experiment) -> usize {
    experiment.loads.len() * (experiment.baselines().count() + 1).min(experiment.entrants.len()) * experiment.repeats
}

fn walk(
    search: &Search,
    experiment: &Experiment,
    load: TrialLoad,
    bench: &mut dyn TrialRunner,
) -> Result<(), SearchStop> {
    let Means { walked, .. } = Means::from_search(search, experiment);
    let walk = AnnealWalk {
        experiment,
        load,
        left: RefCell::new(walked),
        bench: RefCell::new(bench),
        known: RefCell::default(),
        // Another sequence than the solver's, which would otherwise draw the same numbers.
        random: RefCell::new(StdRng::seed_from_u64(search.seed ^ 0xA11E)),
        halt: RefCell::default(),
    };
    // The baselines are always measured; the walk starts at the better of them.
    let baselines: Vec<usize> = (0..experiment.baselines().count()).collect();
    let mut start = 0;
    for at in baselines {
        let cost = walk.measured(at);
        if let Some(halt) = walk.halt.take() {
            return Err(halt);
        }
        if walk.known.borrow().get(&start).is_none_or(|best| cost < *best) {
            start = at;
        }
    }
    let steps = (walked * STEPS_EACH) as u64;
    let random = Xoshiro256PlusPlus::seed_from_u64(search.seed);
    let solver = SimulatedAnnealing::new_with_rng(TEMPERATURE, random)
        .map(|solver| solver.with_temp_func(SATempFunc::Exponential(0.97)))
        .map_err(|error| SearchStop::Failed(crate::TunerError::Configuration(error.to_string())))?;
    let halted = {
        let ran = Executor::new(&walk, solver).configure(|state| state.param(start).max_iters(steps)).run();
        ran.err().map(|error| error.to_string())
    };
    match (walk.halt.take(), halted) {
        (Some(halt), _) => Err(halt),
        // The only way to end the solver early is an error, so a used-up walk ends in one too.
        (None, Some(_)) if *walk.left.borrow() == 0 => Ok(()),
        (None, Some(reason)) => Err(SearchStop::Failed(crate::TunerError::Configuration(reason))),
        (None, None) => Ok(()),
    }
}

/// The baselines, and the best configurations of the walk.
fn finalists(search: &Search, experiment: &Experiment, load: TrialLoad, bench: &dyn TrialRunner) -> Vec<Candidate> {
    let Means { finalists, .. } = Means::from_search(search, experiment);
    let standing = experiment.standing(bench.history(), load);
    let best = standing.into_iter().flat_map(|ranking| ranking.entries);
    let best = best.filter(|entry| entry.repeats > 0 && entry.role == CandidateRole::Candidate);
    let best: Vec<Configuration> = best.map(|entry| entry.configuration).take(finalists).collect();
    let chosen =
        |one: &&Candidate| experiment.baselines().any(|other| other == *one) || best.contains(&one.configuration);
    experiment.entrants.iter().filter(chosen).cloned().collect()
}

impl AnnealWalk<'_, '_> {
    /// The cost of a configuration: lower is better. It is measured on the first visit.
    fn measured(&self, at: usize) -> f64 {
        if let Some(cost) = self.known.borrow().get(&at) {
            return *cost;
        }
        let mut left = self.left.borrow_mut();
        *left = left.saturating_sub(1);
        let trial =
            Trial { configuration: self.experiment.entrants[at].configuration.clone(), load: self.load, repeat: 0 };
        let cost = match self.bench.borrow_mut().measure(&trial) {
            Ok(record) => match &record.outcome {
                Outcome::Measured(figures) => {
                    // Logarithms, so that one temperature suits slow and fast machines.
                    figures.score(self.experiment.metric).map_or(f64::INFINITY, |score| -score.ln())
                }
                Outcome::Failed { .. } => f64::INFINITY,
            },
            Err(halt) => {
                *self.halt.borrow_mut() = Some(halt);
                f64::INFINITY
            }
        };
        self.known.borrow_mut().insert(at, cost);
        cost
    }
}

impl CostFunction for &AnnealWalk<'_, '_> {
    type Param = usize;
    type Output = f64;

    fn cost(&self, at: &usize) -> Result<f64, Error> {
        if *self.left.borrow() == 0 && !self.known.borrow().contains_key(at) {
            return Err(Error::msg("as many configurations as the walk may measure"));
        }
        let cost = self.measured(*at);
        if self.halt.borrow().is_some() {
            return Err(Error::msg("the search was stopped"));
        }
        Ok(cost)
    }
}

impl Anneal for &AnnealWalk<'_, '_> {
    type Param = usize;
    type Output = usize;
    type Float = f64;

    /// A random one of the nearest configurations; the higher the temperature, the more are
    /// considered.
    fn anneal(&self, at: &usize, temperature: f64) -> Result<usize, Error> {
        let here = &self.experiment.entrants[*at].configuration;
        let mut others: Vec<(f64, usize)> = (0..self.experiment.entrants.len())
            .filter(|other| other != at)
            .map(|other| (distance(here, &self.experiment.entrants[other].configuration), other))
            .collect();
        others.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let reach = (others.len() as f64 * temperature / TEMPERATURE / 2.0).ceil() as usize;
        // Never fewer than six neighbours, or a cold walk could not leave a local optimum.
        let reach = reach.clamp(6.min(others.len()), others.len());
        if reach == 0 {
            return Ok(*at);
        }
        Ok(others[self.random.borrow_mut().random_range(0..reach)].1)
    }
}

/// Distance of two configurations: doublings of steps, branches and nodes, plus the number of
/// different settings, the draft among them.
fn distance(a: &Configuration, b: &Configuration) -> f64 {
    let doublings = |a: usize, b: usize| ((a + 1) as f64 / (b + 1) as f64).log2().abs();
    let shapes = doublings(a.shape.num_steps, b.shape.num_steps)
        + doublings(a.shape.topk, b.shape.topk)
        + doublings(a.shape.num_draft_tokens, b.shape.num_draft_tokens);
    let settings = usize::from(a.knobs != b.knobs) + usize::from(a.table != b.table) + usize::from(a.draft != b.draft);
    shapes + settings as f64
}

//! Fixed lists of trials: every configuration, or a random sample.

use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use schemas::sweep::Search;

use super::{Experiment, SearchStop, StopReason, TrialRunner};
use crate::{
    configuration::Load,
    record::{Role, Trial},
    space::Candidate,
};

/// Measures a list in its order.
pub fn run(trials: &[Trial], experiment: &Experiment, bench: &mut dyn TrialRunner) -> Result<StopReason, SearchStop> {
    for trial in trials {
        bench.measure(trial)?;
    }
    Ok(if trials.len() < experiment.size() { StopReason::TrialBudget } else { StopReason::SpaceExhausted })
}

/// Everything.
pub fn grid(experiment: &Experiment) -> Vec<Trial> {
    ordered(experiment, &experiment.entrants)
}

/// Baselines first, the rest in random order; with a budget of trials only as many as can be measured in full.
pub fn random(search: &Search, experiment: &Experiment) -> Vec<Trial> {
    let (mut chosen, mut rest): (Vec<_>, Vec<_>) =
        experiment.entrants.iter().cloned().partition(|one| one.role != Role::Candidate);
    rest.shuffle(&mut StdRng::seed_from_u64(search.seed));
    if let Some(trials) = search.trials {
        let each = (experiment.loads.len() * experiment.repeats).max(1);
        rest.truncate((trials / each).saturating_sub(chosen.len()));
    }
    rest.sort_by(|a, b| a.configuration.knobs.cmp(&b.configuration.knobs));
    chosen.extend(rest);
    let mut trials = ordered(experiment, &chosen);
    trials.truncate(search.trials.unwrap_or(usize::MAX));
    trials
}

/// All trials of configurations, in the order that the system's cost of changes asks for.
pub fn ordered(experiment: &Experiment, entrants: &[Candidate]) -> Vec<Trial> {
    match experiment.restarts {
        true => grouped(entrants, &experiment.loads, experiment.repeats),
        false => interleaved(entrants, &experiment.loads, 0..experiment.repeats),
    }
}

/// Configurations outermost, since each costs a start; then repeats, then loads, every second repeat backwards. No speculation, with
/// which all are compared, runs half of its repeats at the end: a drift of the machine between first and last start then shows as
/// scatter, and does not pass for a difference.
pub fn grouped(entrants: &[Candidate], loads: &[Load], repeats: usize) -> Vec<Trial> {
    let mut trials = Vec::new();
    let of = |one: &Candidate, repeats: std::ops::Range<usize>| -> Vec<Trial> {
        let each = |repeat: usize| {
            let mut loads = loads.to_vec();
            if repeat % 2 == 1 {
                loads.reverse();
            }
            let configuration = one.configuration.clone();
            loads.into_iter().map(move |load| Trial { configuration: configuration.clone(), load, repeat })
        };
        repeats.flat_map(each).collect()
    };
    // A start is worth it only where enough comes between the halves.
    let splits = |one: &Candidate| one.role == Role::NoSpeculation && repeats > 1 && entrants.len() > 2;
    for one in entrants {
        let first = if splits(one) { repeats.div_ceil(2) } else { repeats };
        trials.extend(of(one, 0..first));
    }
    entrants.iter().filter(|one| splits(one)).for_each(|one| trials.extend(of(one, repeats.div_ceil(2)..repeats)));
    trials
}

/// Repeats outermost, so that a drift of the machine hits all configurations alike and an early stop has measured each
/// as often as the others; then settings that cost a restart, then loads, then shapes, which are cheap to change. After the
/// first repeat shapes come in an order that is shuffled anew for each: neither a drift nor a machine that is busy for some
/// trials is then always to the same shape's advantage.
pub fn interleaved(entrants: &[Candidate], loads: &[Load], repeats: std::ops::Range<usize>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for repeat in repeats {
        let mut order = StdRng::seed_from_u64(repeat as u64);
        for settings in entrants.chunk_by(|a, b| a.configuration.knobs == b.configuration.knobs) {
            for load in loads {
                let mut shapes: Vec<&Candidate> = settings.iter().collect();
                if repeat > 0 {
                    shapes.shuffle(&mut order);
                }
                let trial = |one: &Candidate| Trial { configuration: one.configuration.clone(), load: *load, repeat };
                trials.extend(shapes.into_iter().map(trial));
            }
        }
    }
    trials
}

//! Fixed lists of trials: every configuration, or a random sample.

use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use schemas::sweep::Search;

use super::{Experiment, SearchStop, StopReason, TrialRunner};
use crate::{
    space::Candidate,
    trials::{
        configuration::{Configuration, Knobs, TrialLoad},
        record::{CandidateRole, Trial},
    },
};

/// Measures a list of trials in order.
pub fn run(trials: &[Trial], experiment: &Experiment, bench: &mut dyn TrialRunner) -> Result<StopReason, SearchStop> {
    for trial in trials {
        bench.measure(trial)?;
    }
    Ok(if trials.len() < experiment.size() { StopReason::TrialBudget } else { StopReason::SpaceExhausted })
}

/// All trials of the experiment.
pub fn grid(experiment: &Experiment) -> Vec<Trial> {
    ordered(experiment, &experiment.entrants)
}

/// Baselines first, the rest in random order; with a budget of trials, only as many as can be
/// measured with all repeats.
pub fn random(search: &Search, experiment: &Experiment) -> Vec<Trial> {
    let (mut chosen, mut rest): (Vec<_>, Vec<_>) =
        experiment.entrants.iter().cloned().partition(|one| one.role != CandidateRole::Candidate);
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

/// All trials of some configurations, in the order that suits the system's cost of changing
/// configurations.
pub fn ordered(experiment: &Experiment, entrants: &[Candidate]) -> Vec<Trial> {
    match experiment.restarts {
        true => grouped(entrants, &experiment.loads, experiment.repeats),
        false => interleaved(entrants, &experiment.loads, 0..experiment.repeats),
    }
}

/// Configurations outermost, since each needs a start; then repeats, then loads, in reverse order
/// in every second repeat. No speculation, the common baseline, runs half of its repeats at the
/// end: so a drift of the machine between first and last start shows as scatter and is not mistaken
/// for a difference.
pub fn grouped(entrants: &[Candidate], loads: &[TrialLoad], repeats: usize) -> Vec<Trial> {
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
    // The second start is worth it only if other starts come in between.
    let splits = |one: &Candidate| one.role == CandidateRole::NoSpeculation && repeats > 1 && entrants.len() > 2;
    for one in entrants {
        let first = if splits(one) { repeats.div_ceil(2) } else { repeats };
        trials.extend(of(one, 0..first));
    }
    entrants.iter().filter(|one| splits(one)).for_each(|one| trials.extend(of(one, repeats.div_ceil(2)..repeats)));
    trials
}

/// Repeats outermost, so that a drift of the machine affects all configurations alike, and an early
/// stop has measured each equally often. Then settings and drafts that need a restart, then loads,
/// then shapes, which are cheap to change. From the second repeat on, shapes are shuffled
/// differently each time, so that neither a drift nor a temporarily busy machine always favours the
/// same shape.
pub fn interleaved(entrants: &[Candidate], loads: &[TrialLoad], repeats: std::ops::Range<usize>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for repeat in repeats {
        let mut order = StdRng::seed_from_u64(repeat as u64);
        for settings in by_start(entrants) {
            for load in loads {
                let mut shapes: Vec<&Candidate> = settings.clone();
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

/// The entrants that run without a restart in between, in the order in which the settings and
/// drafts first appear. No speculation runs with the first draft.
fn by_start(entrants: &[Candidate]) -> Vec<Vec<&Candidate>> {
    let mut starts: Vec<(&Knobs, &str, Vec<&Candidate>)> = Vec::new();
    for one in entrants {
        let Configuration { knobs, draft, .. } = &one.configuration;
        let fits = |(settings, loaded, _): &&mut (&Knobs, &str, _)| {
            *settings == knobs && (draft.is_empty() || loaded.is_empty() || *loaded == draft)
        };
        match starts.iter_mut().find(fits) {
            Some((_, loaded, those)) => {
                those.push(one);
                *loaded = if loaded.is_empty() { draft } else { loaded };
            }
            None => starts.push((knobs, draft, vec![one])),
        }
    }
    starts.into_iter().map(|(_, _, those)| those).collect()
}

#[cfg(test)]
mod tests {
    use schemas::tree::TreeShape;

    use super::*;

    #[test]
    fn a_repeat_starts_each_draft_once() {
        let of = |draft: &str, shape, role| Candidate {
            configuration: Configuration { draft: draft.into(), ..Configuration::from_shape(shape) },
            role,
        };
        let entrants = [
            of("", TreeShape::OFF, CandidateRole::NoSpeculation),
            of("a", TreeShape::chain(3), CandidateRole::EngineDefault),
            of("b", TreeShape::chain(3), CandidateRole::EngineDefault),
            of("a", TreeShape::chain(1), CandidateRole::Candidate),
            of("b", TreeShape::chain(1), CandidateRole::Candidate),
        ];
        let trials = interleaved(&entrants, &[TrialLoad::BatchSize(1)], 0..3);
        for repeat in trials.chunk_by(|a, b| a.repeat == b.repeat) {
            let mut drafts: Vec<&str> = repeat.iter().map(|trial| trial.configuration.draft.as_str()).collect();
            assert_eq!(drafts.len(), 5);
            drafts.retain(|draft| !draft.is_empty());
            drafts.dedup();
            assert_eq!(drafts, ["a", "b"], "{repeat:?}");
            assert!(repeat[..3].iter().any(|trial| trial.configuration.is_off()));
        }
    }
}

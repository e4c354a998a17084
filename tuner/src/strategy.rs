//! In which order trials run.

use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use schemas::sweep::{Search, StrategyName};
use serde::{Deserialize, Serialize};

use crate::{
    configuration::Load,
    record::{Record, Role, Trial},
    space::Entrant,
};

/// A strategy looks at what has been measured and says what to measure next.
pub trait Strategy {
    /// The next trial; `None` when there is nothing left that it wants to know.
    fn next(&mut self, history: &[Record]) -> Option<Trial>;

    /// All trials that it may still ask for, where that is known beforehand.
    fn planned(&self) -> Option<usize>;
}

/// The race of one sweep: every configuration under every load, as often as asked for.
#[derive(Clone, Debug)]
pub struct Race {
    /// The configurations, baselines first.
    pub entrants: Vec<Entrant>,
    /// How requests come.
    pub loads: Vec<Load>,
    /// How often each is measured.
    pub repeats: usize,
}

/// A part of a race for one of several machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// From one.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

/// A list that was made beforehand: grid and random search.
#[derive(Clone, Debug)]
pub struct Listed {
    trials: std::vec::IntoIter<Trial>,
}

/// The strategy that a sweep file names.
pub fn strategy(search: &Search, race: &Race) -> Box<dyn Strategy> {
    let entrants = match search.strategy {
        StrategyName::Grid => race.entrants.clone(),
        StrategyName::Random | StrategyName::Anneal | StrategyName::Guided => shuffled(search, race),
    };
    let mut trials = interleaved(&entrants, &race.loads, race.repeats);
    trials.truncate(search.trials.unwrap_or(usize::MAX));
    Box::new(Listed { trials: trials.into_iter() })
}

/// Repeats outermost, so that a drift of the machine hits all configurations alike and an early stop has measured each
/// as often as the others; then settings that cost a restart, then loads, then shapes, which are cheap to change. Every
/// second repeat runs backwards:
/// a drift within one repeat is then not always to the same shape's advantage.
fn interleaved(entrants: &[Entrant], loads: &[Load], repeats: usize) -> Vec<Trial> {
    let mut trials = Vec::new();
    for repeat in 0..repeats {
        let begin = trials.len();
        for settings in entrants.chunk_by(|a, b| a.configuration.knobs == b.configuration.knobs) {
            for load in loads {
                let trial = |one: &Entrant| Trial { configuration: one.configuration.clone(), load: *load, repeat };
                trials.extend(settings.iter().map(trial));
            }
        }
        if repeat % 2 == 1 {
            trials[begin..].reverse();
        }
    }
    trials
}

/// Baselines first, the rest in random order; with a budget of trials only as many as can be measured in full.
fn shuffled(search: &Search, race: &Race) -> Vec<Entrant> {
    let (mut chosen, mut rest): (Vec<_>, Vec<_>) =
        race.entrants.iter().cloned().partition(|one| one.role != Role::Candidate);
    rest.shuffle(&mut StdRng::seed_from_u64(search.seed));
    if let Some(trials) = search.trials {
        let each = (race.loads.len() * race.repeats).max(1);
        rest.truncate((trials / each).saturating_sub(chosen.len()));
    }
    rest.sort_by(|a, b| a.configuration.knobs.cmp(&b.configuration.knobs));
    chosen.extend(rest);
    chosen
}

impl Strategy for Listed {
    fn next(&mut self, _history: &[Record]) -> Option<Trial> {
        self.trials.next()
    }

    fn planned(&self) -> Option<usize> {
        Some(self.trials.len())
    }
}

impl Shard {
    /// Keeps every `count`-th candidate. Baselines stay in every shard: comparisons are paired on one machine.
    pub fn of(self, entrants: &[Entrant]) -> Vec<Entrant> {
        let mut candidates = 0;
        let mut keep = |one: &Entrant| {
            candidates += usize::from(one.role == Role::Candidate);
            one.role != Role::Candidate || candidates % self.count == self.index % self.count
        };
        entrants.iter().filter(|one| keep(one)).cloned().collect()
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.index, self.count)
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match numbers {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Self { index, count }),
            _ => Err(format!("'{text}' is not a shard: expected I/N with 1 ≤ I ≤ N, such as 2/8")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use schemas::{
        sweep::{KnobLists, Space},
        tree::TreeShape,
    };

    use super::*;
    use crate::space::expand;

    fn race(repeats: usize) -> Race {
        let space =
            Space { num_steps: vec![1, 2, 3, 4], topk: vec![1, 2], num_draft_tokens: vec![2, 3], ..Space::default() };
        let entrants = expand(&space, &KnobLists::default(), &[], TreeShape::chain(3)).entrants;
        Race { entrants, loads: vec![Load::BatchSize(1), Load::BatchSize(8)], repeats }
    }

    fn trials(search: &Search, race: &Race) -> Vec<Trial> {
        let mut strategy = strategy(search, race);
        std::iter::from_fn(|| strategy.next(&[])).collect()
    }

    #[test]
    fn a_grid_measures_everything_once_before_anything_twice() {
        let race = race(3);
        let all = trials(&Search::default(), &race);
        assert_eq!(all.len(), race.entrants.len() * 2 * 3);
        assert!(all.windows(2).all(|pair| pair[0].repeat <= pair[1].repeat));
        assert!(all[0].configuration.is_off());
        let of = |repeat: usize| all.iter().filter(move |trial| trial.repeat == repeat);
        let key = |trial: &Trial| (trial.configuration.clone(), trial.load);
        assert!(of(0).map(key).eq(of(1).map(key).collect::<Vec<_>>().into_iter().rev()), "every second one backwards");
    }

    #[test]
    fn a_random_search_keeps_the_baselines_and_its_budget() {
        let race = race(2);
        let search = Search { strategy: StrategyName::Random, trials: Some(20), ..Search::default() };
        let some = trials(&search, &race);
        assert_eq!(some.len(), 20);
        let shapes: BTreeSet<TreeShape> = some.iter().map(|trial| trial.configuration.shape).collect();
        assert_eq!(shapes.len(), 5);
        assert!(shapes.contains(&TreeShape::OFF) && shapes.contains(&TreeShape::chain(3)));
        assert_eq!(some, trials(&search, &race));
        assert_ne!(some, trials(&Search { seed: 1, ..search }, &race));
    }

    proptest! {
        #[test]
        fn no_strategy_asks_for_a_trial_twice_or_beyond_its_budget(
            random: bool, repeats in 1..5_usize, budget in prop::option::of(1..80_usize), seed: u64,
        ) {
            let race = race(repeats);
            let strategy = if random { StrategyName::Random } else { StrategyName::Grid };
            let asked = trials(&Search { strategy, repeats, trials: budget, seed, ..Search::default() }, &race);
            let full = race.entrants.len() * race.loads.len() * repeats;
            prop_assert_eq!(asked.iter().collect::<std::collections::HashSet<_>>().len(), asked.len());
            prop_assert!(asked.len() <= budget.unwrap_or(full));
            prop_assert!(budget.is_some_and(|budget| budget < full) || asked.len() == full);
        }

        #[test]
        fn shards_cover_the_race_and_share_only_the_baselines(count in 1_usize..9) {
            let all = race(1).entrants;
            let shards: Vec<Vec<Entrant>> = (1..=count).map(|index| Shard { index, count }.of(&all)).collect();
            for one in &all {
                let times = shards.iter().filter(|shard| shard.contains(one)).count();
                prop_assert_eq!(times, if one.role == Role::Candidate { 1 } else { count });
            }
        }
    }

    #[test]
    fn shards_are_written_as_fractions() {
        assert_eq!("2/8".parse(), Ok(Shard { index: 2, count: 8 }));
        for wrong in ["0/8", "9/8", "1", "a/b", "1/0", ""] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}

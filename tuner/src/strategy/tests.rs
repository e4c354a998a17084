use std::collections::{BTreeMap, BTreeSet, HashSet};

use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::{
    sweep::{KnobLists, Metric, Search, Space, StrategyName},
    tree::{NodeSource, TreeShape},
};

use super::*;
use crate::{fixtures::synthetic, space::expand, trials::configuration::Configuration};

/// A simulated machine: every configuration has a true speed, and figures scatter around it.
struct MadeUp {
    records: Vec<Record>,
    noise: f64,
    budget: Option<usize>,
    random: StdRng,
}

impl MadeUp {
    fn new(noise: f64, budget: Option<usize>) -> Self {
        Self { records: Vec::new(), noise, budget, random: StdRng::seed_from_u64(3) }
    }
}

/// Best at (3,2,6) for small batches and without speculation for large ones; half as fast per
/// doubling away from it.
fn speed(configuration: &Configuration, load: TrialLoad) -> f64 {
    let batch = load.batch_size().unwrap_or(1) as f64;
    let TreeShape { num_steps, topk, num_draft_tokens, .. } = configuration.shape;
    let off = 100.0 * batch;
    if configuration.is_off() {
        return off;
    }
    let distance = (num_steps as f64 - 3.0).abs() / 3.0
        + (topk as f64 / 2.0).log2().abs() / 3.0
        + (num_draft_tokens as f64 / 6.0).log2().abs() / 2.0;
    off * (1.0 + 1.5 * (-distance).exp()) / (1.0 + batch * num_draft_tokens as f64 / 64.0)
}

impl TrialRunner for MadeUp {
    fn measure(&mut self, trial: &Trial) -> Result<&Record, SearchStop> {
        if let Some(at) = self.records.iter().position(|record| record.trial == *trial) {
            return Ok(&self.records[at]);
        }
        if self.budget.is_some_and(|budget| self.records.len() >= budget) {
            return Err(SearchStop::Stop(StopReason::TrialBudget));
        }
        let noise = 1.0 + self.noise * (self.random.random::<f64>() - 0.5);
        self.records.push(record(trial, speed(&trial.configuration, trial.load) * noise));
        Ok(&self.records[self.records.len() - 1])
    }

    fn history(&self) -> &[Record] {
        &self.records
    }
}

fn record(trial: &Trial, rate: f64) -> Record {
    let role = match trial.configuration.is_off() {
        true => CandidateRole::NoSpeculation,
        false if trial.configuration.shape == TreeShape::chain(3) => CandidateRole::EngineDefault,
        false => CandidateRole::Candidate,
    };
    synthetic::record(trial.clone(), role, rate)
}

fn experiment(repeats: usize, large: bool) -> Experiment {
    let space = match large {
        true => Space {
            num_steps: (1..=8).collect(),
            topk: vec![1, 2, 4, 8],
            num_draft_tokens: vec![4, 6, 8, 16, 32],
            ..Space::default()
        },
        false => {
            Space { num_steps: vec![1, 2, 3, 4], topk: vec![1, 2], num_draft_tokens: vec![2, 3], ..Space::default() }
        }
    };
    let entrants = expand(&space, &KnobLists::default(), &[], NodeSource::Beams, TreeShape::chain(3)).entrants;
    Experiment {
        entrants,
        loads: vec![TrialLoad::BatchSize(1), TrialLoad::BatchSize(8)],
        repeats,
        metric: Metric::Throughput,
        looks: Looks::Planned,
        restarts: false,
    }
}

/// Predictions for the simulated machine, off by up to a share that depends on the shape.
fn predictions(experiment: &Experiment, wrong: f64) -> Vec<Prediction> {
    let mut random = StdRng::seed_from_u64(9);
    let mut all = Vec::new();
    for load in &experiment.loads {
        for entrant in &experiment.entrants {
            let rate =
                speed(&entrant.configuration, *load) * (1.0 + wrong * (2.0 * random.random::<f64>() - 1.0)) * 1.2;
            all.push(Prediction {
                configuration: entrant.configuration.clone(),
                load: *load,
                accept_length: 2.0,
                round_ms: 1.0,
                output_tokens_per_s: rate,
                tokens_per_s_per_user: rate,
                latency_ms: 1e5 / rate,
                time_to_first_token_ms: 1.0,
                extrapolated: None,
            });
        }
    }
    all
}

fn trials(options: &Search, experiment: &Experiment) -> Vec<Trial> {
    let mut bench = MadeUp::new(0.0, options.trials);
    let _ = search(options, experiment, &predictions(experiment, 0.0), &mut bench);
    bench.records.into_iter().map(|record| record.trial).collect()
}

#[test]
fn a_grid_measures_everything_once_before_anything_twice() {
    let experiment = experiment(3, false);
    let all = trials(&Search { strategy: StrategyName::Grid, ..Search::default() }, &experiment);
    assert_eq!(all.len(), experiment.entrants.len() * 2 * 3);
    assert!(all.windows(2).all(|pair| pair[0].repeat <= pair[1].repeat));
    assert!(all[0].configuration.is_off());
    let order = |repeat: usize| -> Vec<&Configuration> {
        all.iter().filter(|trial| trial.repeat == repeat).map(|trial| &trial.configuration).collect()
    };
    assert!(order(0) != order(1) && order(1) != order(2), "each in an order of its own");
}

#[test]
fn a_random_search_keeps_the_baselines_and_its_budget() {
    let experiment = experiment(2, false);
    let options = Search { strategy: StrategyName::Random, trials: Some(20), ..Search::default() };
    let some = trials(&options, &experiment);
    assert_eq!(some.len(), 20);
    let shapes: BTreeSet<TreeShape> = some.iter().map(|trial| trial.configuration.shape).collect();
    assert_eq!(shapes.len(), 5);
    assert!(shapes.contains(&TreeShape::OFF) && shapes.contains(&TreeShape::chain(3)));
    assert_eq!(some, trials(&options, &experiment));
    assert_ne!(some, trials(&Search { seed: 1, ..options }, &experiment));
}

/// The result of a search on the simulated machine: for each load, the true speed of the choice as
/// a share of the best.
fn found(
    options: &Search,
    experiment: &Experiment,
    wrong: f64,
    noise: f64,
) -> (BTreeMap<TrialLoad, f64>, usize, StopReason) {
    let mut bench = MadeUp::new(noise, options.trials);
    let stopped = match search(options, experiment, &predictions(experiment, wrong), &mut bench) {
        Ok(reason) | Err(SearchStop::Stop(reason)) => reason,
        Err(SearchStop::Failed(error)) => panic!("{error}"),
    };
    let share = |ranking: &LoadRanking| {
        let best = experiment.entrants.iter().map(|one| speed(&one.configuration, ranking.load)).fold(0.0, f64::max);
        speed(ranking.chosen.as_ref().expect("a choice"), ranking.load) / best
    };
    (
        rank(&bench.records, experiment.metric).iter().map(|one| (one.load, share(one))).collect(),
        bench.records.len(),
        stopped,
    )
}

#[test]
fn a_guided_search_finds_the_best_in_a_tenth_of_the_trials() {
    let experiment = experiment(3, true);
    let options = Search { strategy: StrategyName::Guided, ..Search::default() };
    for (wrong, noise) in [(0.0, 0.01), (0.04, 0.01), (0.08, 0.04)] {
        let (shares, trials, stopped) = found(&options, &experiment, wrong, noise);
        assert!(shares.values().all(|share| *share > 0.975), "{wrong}: {shares:?}");
        assert!(trials * 10 <= experiment.size(), "{wrong}: {trials} of {}", experiment.size());
        assert!(matches!(stopped, StopReason::Settled | StopReason::StillTied));
    }
}

#[test]
fn a_guided_search_measures_what_wrong_predictions_leave_open() {
    let experiment = experiment(3, true);
    let options = Search { strategy: StrategyName::Guided, candidates: 1, ..Search::default() };
    let (right, few, _) = found(&options, &experiment, 0.0, 0.001);
    let (wrong, more, _) = found(&options, &experiment, 0.10, 0.001);
    assert!(right.values().all(|share| *share > 0.99), "{right:?}");
    assert!(wrong.values().all(|share| *share > 0.85), "{wrong:?}");
    assert!(few <= more);
}

#[test]
fn annealing_comes_near_the_best_and_keeps_its_budget() {
    let experiment = experiment(3, true);
    let options = Search { strategy: StrategyName::Anneal, trials: Some(90), ..Search::default() };
    let (shares, trials, _) = found(&options, &experiment, 0.0, 0.01);
    assert!(shares.values().all(|share| *share > 0.85), "{shares:?}");
    assert!(trials <= 90 && trials > 60, "{trials}");
    assert_eq!(found(&options, &experiment, 0.0, 0.01).0, shares, "the same seed walks the same way");
}

#[test]
fn a_small_budget_of_annealing_is_kept_and_leaves_repeats_of_what_is_chosen() {
    let experiment = experiment(3, true);
    let with = |trials| Search { strategy: StrategyName::Anneal, trials: Some(trials), ..Search::default() };
    let fewest = super::anneal::fewest_trials(&experiment);
    for trials in [fewest, fewest + 1, fewest + 4, fewest * 3 / 2, fewest * 2, fewest * 3] {
        let options = with(trials);
        assert!(check(&options, &experiment).is_ok());
        assert!(planned(&options, &experiment).trials <= trials, "{trials}");
        let mut bench = MadeUp::new(0.0, None);
        let stopped = search(&options, &experiment, &[], &mut bench).expect("it ends");
        assert_eq!(stopped, StopReason::Cooled, "{trials}");
        assert!(bench.records.len() <= trials, "{} of {trials}", bench.records.len());
        for load in &experiment.loads {
            let standing = experiment.standing(&bench.records, *load).expect("it was measured");
            let whole = standing.entries.iter().filter(|entry| entry.repeats == experiment.repeats).count();
            assert!(whole > experiment.baselines().count(), "{whole} at {load} of {trials}");
            assert_eq!(standing.winner().expect("a winner").repeats, experiment.repeats, "{load} of {trials}");
        }
    }
    let error = check(&with(fewest - 1), &experiment).expect_err("too small").to_string();
    assert!(error.contains(&format!("anneal needs {fewest}")), "{error}");
}

#[test]
fn what_is_in_the_journal_is_not_measured_again() {
    let experiment = experiment(2, false);
    for strategy in [StrategyName::Grid, StrategyName::Random, StrategyName::Anneal, StrategyName::Guided] {
        let options = Search { strategy, ..Search::default() };
        let mut whole = MadeUp::new(0.0, None);
        search(&options, &experiment, &predictions(&experiment, 0.03), &mut whole).expect("it ends");
        for cut in [0, 1, 7, whole.records.len() / 2] {
            let mut rest = MadeUp::new(0.0, None);
            rest.records = whole.records[..cut].to_vec();
            search(&options, &experiment, &predictions(&experiment, 0.03), &mut rest).expect("it ends");
            assert_eq!(rest.records, whole.records, "{strategy:?} cut at {cut}");
        }
    }
}

proptest! {
    #[test]
    fn no_strategy_asks_for_a_trial_twice_or_beyond_its_budget(
        strategy in prop::sample::select(vec![
            StrategyName::Grid, StrategyName::Random, StrategyName::Anneal, StrategyName::Guided,
        ]),
        repeats in 1..5_usize, budget in prop::option::of(1..80_usize), seed: u64,
    ) {
        let experiment = experiment(repeats, false);
        let options = Search { strategy, repeats, trials: budget, seed, ..Search::default() };
        let requested = trials(&options, &experiment);
        prop_assert_eq!(requested.iter().collect::<HashSet<_>>().len(), requested.len());
        let planned = planned(&options, &experiment);
        prop_assert!(requested.len() <= planned.trials && (!planned.exact || requested.len() == planned.trials));
        prop_assert!(requested.len() <= budget.unwrap_or(usize::MAX));
        if let Some(list) = list(&options, &experiment) {
            prop_assert_eq!(list, requested);
        }
    }

    #[test]
    fn shards_cover_the_race_and_share_only_the_baselines(count in 1_usize..9) {
        let all = experiment(1, false).entrants;
        let shards: Vec<Vec<Candidate>> = (1..=count).map(|index| Shard { index, count }.select(&all)).collect();
        for one in &all {
            let times = shards.iter().filter(|shard| shard.contains(one)).count();
            prop_assert_eq!(times, if one.role == CandidateRole::Candidate { 1 } else { count });
        }
    }
}

use std::collections::BTreeSet;

use schemas::{
    sweep::{KnobLists, Metric, Space},
    tree::NodeSource,
};

use super::*;
use crate::{
    fixtures::synthetic,
    prediction::guide::{AcceptanceRow, AcceptanceSource},
    results::selection::Looks,
    space::expand,
    trials::record::{Outcome, Trial},
};

const LOADS: [TrialLoad; 3] = [TrialLoad::BatchSize(1), TrialLoad::BatchSize(8), TrialLoad::BatchSize(32)];

/// A simulated engine whose round time is a sum of costs.
struct Engine {
    records: Vec<Record>,
    experiment: Experiment,
    acceptance: AcceptanceTable,
    /// Whether it can run tables.
    adaptive: bool,
    /// Factor by which rounds of separate starts are slower than those of tables.
    slower: f64,
    /// Factor by which other settings are faster at batch 8.
    settings: f64,
}

impl Engine {
    fn new(steps: &[usize], shapes: &[&str]) -> Self {
        Self::with_settings(steps, shapes, &KnobLists::default())
    }

    fn with_settings(steps: &[usize], shapes: &[&str], knobs: &KnobLists) -> Self {
        let shapes = shapes.iter().map(ToString::to_string).collect();
        let topk = if steps.is_empty() { vec![] } else { vec![1] };
        let space = Space { num_steps: steps.to_vec(), topk, shapes, ..Space::default() };
        let entrants = expand(&space, knobs, &[], NodeSource::Beams, TreeShape::chain(3)).entrants;
        // Each step accepts less than the one before it; branches help.
        let length = |shape: TreeShape| {
            let chance = 0.55 + 0.05 * (shape.topk as f64).log2();
            (0..=shape.num_steps).map(|step| chance.powi(step as i32)).sum::<f64>()
        };
        let row = |one: &Candidate| AcceptanceRow {
            shape: one.configuration.shape,
            accept_length: length(one.configuration.shape),
            interval: None,
            histogram: Vec::new(),
        };
        let source = AcceptanceSource::Replayed { texts: 1, tokens: 1 };
        let acceptance = AcceptanceTable { source, rows: entrants.iter().map(row).collect(), text_drafts: Vec::new() };
        let experiment = Experiment {
            entrants,
            loads: LOADS.to_vec(),
            repeats: 2,
            metric: Metric::Throughput,
            looks: Looks::Planned,
            restarts: true,
        };
        Self { records: Vec::new(), experiment, acceptance, adaptive: true, slower: 1.0, settings: 1.0 }
    }

    fn rate(&self, trial: &Trial) -> (f64, f64) {
        let batch = trial.load.batch_size().expect("a closed loop");
        let shape = trial.configuration.shape_at(batch);
        let length = self.acceptance.length(shape).expect("a length");
        let costs = [8.0, 2.0, 1.0, 0.05, 0.6, 0.01, 0.05];
        let ms: f64 = terms(shape, batch, length).iter().zip(costs).map(|(term, cost)| term * cost).sum();
        let ms = if trial.configuration.table.is_empty() { ms * self.slower } else { ms };
        let has_other = batch == 8 && !trial.configuration.knobs.are_default();
        let ms = if has_other { ms / self.settings } else { ms };
        (1e3 * batch as f64 * length / ms, length)
    }

    fn search(&mut self, candidates: usize) -> (StopReason, SearchFindings) {
        let search = Search { candidates, ..Search::default() };
        let tables = rotations(&self.experiment, &self.acceptance);
        let (experiment, acceptance) = (self.experiment.clone(), self.acceptance.clone());
        let mut found = SearchFindings::default();
        let stopped = run(&search, &experiment, Some(&acceptance), &tables, &mut found, self).expect("it ends");
        (stopped, found)
    }

    /// The started configurations, in order, without duplicates.
    fn started(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let words = self.records.iter().map(|record| record.trial.configuration.to_string());
        words.filter(|one| seen.insert(one.clone())).collect()
    }

    /// The gap between the best separately started configuration and the best of the space, as a
    /// share.
    fn regret(&self, load: TrialLoad) -> f64 {
        let rate = |one: &Candidate| self.rate(&Trial { configuration: one.configuration.clone(), load, repeat: 0 }).0;
        let best = self.experiment.entrants.iter().map(rate).fold(0.0, f64::max);
        let own = self.records.iter().filter(|one| one.trial.load == load && one.role != CandidateRole::Probe);
        best / own.map(|one| self.rate(&one.trial).0).fold(0.0, f64::max) - 1.0
    }
}

impl TrialRunner for Engine {
    fn measure(&mut self, trial: &Trial) -> Result<&Record, SearchStop> {
        if let Some(at) = self.records.iter().position(|record| record.trial == *trial) {
            return Ok(&self.records[at]);
        }
        let role = self.experiment.entrants.iter().find(|one| one.configuration == trial.configuration);
        let (rate, length) = self.rate(trial);
        let mut record = synthetic::record(trial.clone(), role.map_or(CandidateRole::Probe, |one| one.role), rate);
        match &mut record.outcome {
            Outcome::Measured(figures) if self.adaptive || trial.configuration.table.is_empty() => {
                figures.accept_length = length;
            }
            outcome => *outcome = Outcome::Failed { reason: "speculative_adaptive disabled".into(), failure: None },
        }
        self.records.push(record);
        Ok(&self.records[self.records.len() - 1])
    }

    fn history(&self) -> &[Record] {
        &self.records
    }
}

#[test]
fn other_settings_are_tried_with_the_fastest_shape_of_each_load() {
    let knobs = KnobLists { capture_sizes: vec![vec![1, 8, 32]], ..KnobLists::default() };
    let mut engine = Engine::with_settings(&[1, 2, 4, 5, 6, 7], &[], &knobs);
    engine.settings = 1.2;
    let (stopped, _) = engine.search(2);
    assert_eq!(stopped, StopReason::Settled);
    let started = engine.started();
    let first = started.iter().position(|one| one.contains("capture_sizes=1,8,32")).expect("they are tried");
    assert!(started[first..].iter().all(|one| one.contains("capture_sizes")), "last: {started:?}");
    assert!(started.len() - first <= LOADS.len(), "one start for each fastest shape: {started:?}");
    assert!(engine.regret(TrialLoad::BatchSize(8)) < 0.01, "{}", engine.regret(TrialLoad::BatchSize(8)));
    assert!(started.len() <= most_starts(&Search { candidates: 2, ..Search::default() }, &engine.experiment, true));
}

#[test]
fn one_start_of_several_chains_finds_the_best_of_each_batch_size() {
    let mut engine = Engine::new(&[1, 2, 4, 5, 6, 7], &[]);
    let (_, found) = engine.search(3);
    let started = engine.started();
    assert_eq!(started[..3], ["no speculation", "3,1,4", "table ≤1: 7,1,8; ≤8: 4,1,5; ≤32: 1,1,2"], "{started:?}");
    assert!(started.len() <= 6 && !started[3..].iter().any(|one| one.starts_with("table")), "{started:?}");
    for load in LOADS {
        assert!(engine.regret(load) <= WORTH, "{} at {load}: {started:?}", engine.regret(load));
    }
    assert!(
        engine.records.iter().all(|one| (one.role == CandidateRole::Probe) != one.trial.configuration.table.is_empty())
    );
    // A sum of costs is recovered exactly, so predictions equal measurements.
    for one in &found.predictions {
        let (rate, _) = engine.rate(&Trial { configuration: one.configuration.clone(), load: one.load, repeat: 0 });
        assert!((one.output_tokens_per_s / rate - 1.0).abs() < 0.02, "{one:?}: {rate}");
    }
}

#[test]
fn a_tree_that_tells_costs_comes_before_chains_and_a_finalist_after_both() {
    let mut engine = Engine::new(&[1, 2, 4, 5], &["4,4,16", "2,4,8"]);
    engine.search(2);
    let started = engine.started();
    assert!(started[2].contains(",4,") && started[3].starts_with("table"), "{started:?}");
    // With four starts none can be spared for chains.
    let mut engine = Engine::new(&[1, 2, 4, 5], &["4,4,16", "2,4,8"]);
    engine.search(1);
    let started = engine.started();
    assert!(started.len() <= 4 && !started.iter().any(|one| one.starts_with("table")), "{started:?}");
}

#[test]
fn predictions_that_miss_call_for_the_next_rotation() {
    let mut engine = Engine::new(&[1, 2, 4, 5, 6, 7], &[]);
    engine.slower = 1.25;
    engine.search(4);
    let tables: Vec<String> = engine.started().into_iter().filter(|one| one.starts_with("table")).collect();
    assert!(tables.len() > 1 && tables[1] == "table ≤1: 4,1,5; ≤8: 1,1,2; ≤32: 7,1,8", "{tables:?}");
}

#[test]
fn an_engine_that_falls_back_is_searched_by_starts_of_single_chains() {
    let mut engine = Engine::new(&[1, 2, 4, 5, 6, 7], &[]);
    engine.adaptive = false;
    engine.search(3);
    let failed = engine.records.iter().filter(|one| one.failure().is_some()).count();
    assert_eq!(failed, 1, "it is asked once");
    for load in LOADS {
        assert!(engine.regret(load) <= WORTH, "{} at {load}", engine.regret(load));
    }
}

#[test]
fn a_search_that_goes_on_starts_nothing_that_it_has_measured() {
    let mut engine = Engine::new(&[1, 2, 4, 5, 6, 7], &[]);
    let (stopped, _) = engine.search(3);
    let before = engine.records.len();
    let (again, _) = engine.search(3);
    assert_eq!((again, engine.records.len()), (stopped, before));
}

#[test]
fn what_is_spanned_tells_nothing_new() {
    let rows = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]];
    assert!(outside(&rows, [3.0, 2.0, 0.0]) < 1e-9);
    assert!((outside(&rows, [0.0, 0.0, 5.0]) - 1.0).abs() < 1e-9);
    assert!((outside(&rows, [3.0, 0.0, 4.0]) - 0.8).abs() < 1e-9);
    assert!((outside::<3>(&[], [1.0, 2.0, 3.0]) - 1.0).abs() < 1e-9);
}

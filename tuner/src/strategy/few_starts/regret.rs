//! How far the choice of a guided search on servers is from the best of its space, on engines whose
//! costs differ from each other and from the model's.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::{
    sweep::{KnobLists, Metric, Space},
    tree::NodeSource,
};

use super::*;
use crate::{
    fixtures::synthetic,
    prediction::guide::{AcceptanceRow, AcceptanceSource},
    results::selection::{Looks, rank},
    space::expand,
    strategy,
    trials::record::{Outcome, Trial},
};

const LOADS: [TrialLoad; 3] = [TrialLoad::BatchSize(1), TrialLoad::BatchSize(8), TrialLoad::BatchSize(32)];
/// Random engines.
const ENGINES: u64 = 50;

/// An engine with random costs: those of the model, and steps in the number of verified rows, which
/// the model does not have, as kernels have them that work on tiles.
struct SimulatedEngine {
    records: Vec<Record>,
    experiment: Experiment,
    costs: [f64; TERMS],
    /// Rows of a tile, and the cost of each tile in ms.
    tile: (usize, f64),
    /// Probability that the first token of a chain is accepted, the factor from step to step, and
    /// the gain of branches.
    accepted: (f64, f64, f64),
    random: StdRng,
}

impl SimulatedEngine {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let space = Space {
            num_steps: (1..=7).collect(),
            topk: vec![1, 2, 4],
            num_draft_tokens: vec![4, 8, 16],
            ..Space::default()
        };
        let entrants = expand(&space, &KnobLists::default(), &[], NodeSource::Beams, TreeShape::chain(3)).entrants;
        let experiment = Experiment {
            entrants,
            loads: LOADS.to_vec(),
            repeats: 3,
            metric: Metric::Throughput,
            looks: Looks::Planned,
            restarts: true,
        };
        // From engines bound by the host to engines bound by arithmetic, over a factor of thirty
        // each.
        let mut cost = |least: f64| least * 30.0_f64.powf(random.random());
        let costs = [cost(1.0), cost(0.1), cost(0.02), cost(0.002), cost(0.05), cost(0.0005), cost(0.002)];
        let tile = ([8, 16, 64][random.random_range(0..3)], 0.05 * random.random::<f64>() * costs[0]);
        let accepted =
            (0.45 + 0.4 * random.random::<f64>(), 0.88 + 0.12 * random.random::<f64>(), 0.1 * random.random::<f64>());
        Self { records: Vec::new(), experiment, costs, tile, accepted, random }
    }

    fn length(&self, shape: TreeShape) -> f64 {
        let (first, fading, gain) = self.accepted;
        let spare = (shape.num_draft_tokens as f64 / shape.longest_path() as f64).max(1.0);
        let branches = (shape.topk as f64).log2() * spare.log2().min(1.0);
        let rate = |step: usize| ((first + gain * branches) * fading.powi(step as i32)).min(0.97);
        let (mut all, mut length) = (1.0, 1.0);
        for step in 0..shape.num_steps {
            all *= rate(step);
            length += all;
        }
        length
    }

    /// True output tokens per second.
    fn rate(&self, shape: TreeShape, batch: usize) -> f64 {
        let length = self.length(shape);
        let ms: f64 = terms(shape, batch, length).iter().zip(self.costs).map(|(term, cost)| term * cost).sum();
        let tiles = (batch * shape.num_draft_tokens).div_ceil(self.tile.0) as f64;
        1e3 * batch as f64 * length / (ms + tiles * self.tile.1)
    }

    /// The gap between the choice of selection and the best of the space under a load.
    fn regret(&self, load: TrialLoad) -> f64 {
        let batch = load.batch_size().expect("a closed loop");
        let best = self.experiment.entrants.iter().map(|one| self.rate(one.configuration.shape, batch));
        let ranking = rank(self.records.iter().filter(|record| record.trial.load == load), Metric::Throughput);
        let chosen = ranking[0].chosen.as_ref().expect("a choice").shape;
        best.fold(0.0, f64::max) / self.rate(chosen, batch) - 1.0
    }

    fn starts(&self) -> usize {
        let mut all: Vec<&Configuration> = self.records.iter().map(|record| &record.trial.configuration).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }
}

impl TrialRunner for SimulatedEngine {
    fn measure(&mut self, trial: &Trial) -> Result<&Record, SearchStop> {
        if let Some(at) = self.records.iter().position(|record| record.trial == *trial) {
            return Ok(&self.records[at]);
        }
        let batch = trial.load.batch_size().expect("a closed loop");
        let shape = trial.configuration.shape_at(batch);
        let noise = 1.0 + 0.01 * (self.random.random::<f64>() - 0.5);
        let role = self.experiment.entrants.iter().find(|one| one.configuration == trial.configuration);
        let role = role.map_or(CandidateRole::Probe, |one| one.role);
        let mut record = synthetic::record(trial.clone(), role, self.rate(shape, batch) * noise);
        if let Outcome::Measured(figures) = &mut record.outcome {
            figures.accept_length = self.length(shape);
        }
        self.records.push(record);
        Ok(&self.records[self.records.len() - 1])
    }

    fn history(&self) -> &[Record] {
        &self.records
    }
}

/// The regrets over all engines and loads, ascending, and the most starts.
fn regrets(replayed: bool) -> (Vec<f64>, usize) {
    let (mut all, mut starts) = (Vec::new(), 0);
    for seed in 0..ENGINES {
        let mut engine = SimulatedEngine::new(seed);
        let experiment = engine.experiment.clone();
        let row = |one: &Candidate| AcceptanceRow {
            shape: one.configuration.shape,
            accept_length: engine.length(one.configuration.shape),
            interval: None,
            histogram: Vec::new(),
        };
        let source = AcceptanceSource::Replayed { texts: 32, tokens: 3072 };
        let table =
            AcceptanceTable { source, rows: experiment.entrants.iter().map(row).collect(), text_drafts: Vec::new() };
        let table = replayed.then_some(table);
        let tables = table.as_ref().map_or_else(Vec::new, |table| rotations(&experiment, table));
        let search = Search { candidates: 4, ..Search::default() };
        let mut found = SearchFindings::default();
        strategy::few_starts(&search, &experiment, table.as_ref(), &tables, &mut found, &mut engine).expect("it ends");
        starts = starts.max(engine.starts());
        all.extend(LOADS.map(|load| engine.regret(load)));
    }
    all.sort_by(f64::total_cmp);
    (all, starts)
}

/// Checks the largest regret, how many are above 3%, and the number of starts.
fn check(replayed: bool, most: f64, most_above: usize, most_starts: usize) {
    let (all, starts) = regrets(replayed);
    let largest = *all.last().expect("races");
    let above = all.iter().filter(|regret| **regret > 0.03).count();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let found = format!("mean {mean:.4}, {above} of {} above 3%, most {largest:.4}, {starts} starts", all.len());
    assert!(largest <= most && above <= most_above && starts <= most_starts, "{found}");
}

#[test]
fn with_replayed_acceptance_the_choice_is_near_the_best() {
    check(true, 0.03, 0, 9);
}

#[test]
fn with_the_counters_of_servers_the_choice_is_near_the_best_with_more_starts() {
    // Three of 150 races are above 3%: the best is a tree whose accept length is estimated too low.
    check(false, 0.04, 3, 12);
}

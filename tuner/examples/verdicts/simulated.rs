//! Races with a known truth: a simulated machine with noise, stalls and drift, measured in the
//! order of a real sweep and judged by the code that judges real trials.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::{
    sweep::{Metric, Search},
    tree::TreeShape,
};
use tuner::{
    results::selection::{LoadRanking, Looks, SpeculationVerdict, rank},
    runner::steady::{SteadyStep, steadied},
    space::Candidate,
    strategy::{self, Experiment},
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{CandidateRole, Fingerprint, Measurement, Outcome, Record, Steady, Trial, TrialOrigin, TrialSpread},
    },
};

/// Steps of a trial.
const STEPS: usize = 40;
/// Scatter of a trial's speed.
const NOISE: f64 = 0.02;
/// Scatter of a single step's time.
const STEP_NOISE: f64 = 0.05;
/// Mean length of an episode, in trials.
const EPISODE: f64 = 4.0;

/// True speeds of the shapes: the objective relative to no speculation, best first.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    pub name: &'static str,
    pub ratios: [f64; 7],
}

/// The truth without a sign that a claim could get wrong.
pub const EQUAL: &str = "all equal";

/// The raced truths, from far worse to far better than no speculation.
pub const TRUTHS: [Truth; 9] = [
    Truth { name: "−13%", ratios: [0.87, 0.86, 0.83, 0.8, 0.75, 0.7, 0.5] },
    Truth { name: "−5%", ratios: [0.95, 0.94, 0.94, 0.9, 0.85, 0.8, 0.6] },
    Truth { name: "−2%", ratios: [0.98, 0.98, 0.97, 0.96, 0.95, 0.9, 0.8] },
    Truth { name: EQUAL, ratios: [1.0; 7] },
    Truth { name: "+2%", ratios: [1.02, 1.01, 1.0, 0.98, 0.95, 0.9, 0.7] },
    Truth { name: "+5%", ratios: [1.05, 1.0, 0.98, 0.97, 0.92, 0.85, 0.7] },
    Truth { name: "+5%, rivals", ratios: [1.05, 1.04, 1.03, 1.02, 1.0, 0.97, 0.9] },
    Truth { name: "+20%", ratios: [1.2, 1.18, 1.12, 1.05, 0.98, 0.9, 0.7] },
    Truth { name: "+60%", ratios: [1.6, 1.5, 1.4, 1.3, 1.1, 0.9, 0.7] },
];

/// How a stall hits a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stalls {
    /// A few steps wait very long.
    Bursts,
    /// Up to a third of the steps wait for their turn.
    Slices,
    /// Every step is slower, so the stall cannot be detected within the trial.
    Throughout,
    /// As `Throughout`, for several trials in a row.
    Episodes,
}

/// How the machine changes over a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    None,
    /// 10% slower at the end.
    Linear,
    /// Half a percent from trial to trial, either way.
    Walk,
}

/// The conditions of a race.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub repeats: usize,
    pub stalls: Stalls,
    /// Share of the trials that stall, each for 10 to 300% of its time.
    pub share: f64,
    pub drift: Drift,
}

/// Outcomes of races.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub races: usize,
    /// Claims against the truth: that speculation pays with a shape that is slower than no
    /// speculation, or that it does not pay although a shape is faster by more than 1%. If all are
    /// equal, that it pays.
    pub wrong: usize,
    pub pays: usize,
    pub does_not_pay: usize,
    pub ties: usize,
    pub cannot_tell: usize,
    /// Speed-ups of the chosen or best shape whose interval contains the truth.
    pub held: usize,
    pub intervals: usize,
    /// Races in which speculation was said to pay, but the chosen shape is worse than the best by
    /// more than 5%.
    pub regretted: usize,
}

/// Runs races of one truth in one setting.
pub fn run(truth: &Truth, setting: Setting, races: usize, seed: u64) -> Tally {
    let (experiment, plan) = plan(setting.repeats);
    let mut random = StdRng::seed_from_u64(seed);
    let mut tally = Tally::default();
    for _ in 0..races {
        let records = measure(truth, setting, &experiment, &plan, &mut random);
        let ranking = rank(&records, Metric::Throughput).pop().expect("a race");
        tally.add(truth, &experiment, &ranking);
    }
    tally
}

/// An experiment with eight shapes, and its trials in the order of a grid search.
fn plan(repeats: usize) -> (Experiment, Vec<Trial>) {
    let shapes = ["0,1,1", "5,4,8", "1,1,2", "2,1,3", "3,1,4", "2,2,4", "3,4,8", "4,8,16"];
    let role = |at: usize| match at {
        0 => CandidateRole::NoSpeculation,
        1 => CandidateRole::EngineDefault,
        _ => CandidateRole::Candidate,
    };
    let entrant = |(at, shape): (usize, &str)| {
        let shape: TreeShape = shape.parse().expect("a shape");
        Candidate { configuration: Configuration::from_shape(shape), role: role(at) }
    };
    let experiment = Experiment {
        entrants: shapes.into_iter().enumerate().map(entrant).collect(),
        loads: vec![TrialLoad::BatchSize(1)],
        repeats,
        metric: Metric::Throughput,
        looks: Looks::Planned,
        restarts: false,
    };
    let plan = strategy::list(&Search::default(), &experiment).expect("a grid has a fixed number of trials");
    (experiment, plan)
}

/// True speed of a configuration. The fourth shape is the best, the engine's default the worst.
fn worth(truth: &Truth, experiment: &Experiment, configuration: &Configuration) -> f64 {
    const PLACES: [usize; 8] = [0, 6, 4, 1, 0, 2, 3, 5];
    let at = experiment.entrants.iter().position(|one| one.configuration == *configuration).expect("an entrant");
    if at == 0 { 1.0 } else { truth.ratios[PLACES[at]] }
}

fn measure(
    truth: &Truth,
    setting: Setting,
    experiment: &Experiment,
    plan: &[Trial],
    random: &mut StdRng,
) -> Vec<Record> {
    let mut walk = 0.0;
    let mut episode: Option<f64> = None;
    let mut records = Vec::new();
    for (place, trial) in plan.iter().enumerate() {
        walk += 0.005 * normal(random);
        let drift = match setting.drift {
            Drift::None => 0.0,
            Drift::Linear => -0.1 * place as f64 / plan.len() as f64,
            Drift::Walk => walk,
        };
        let speed = worth(truth, experiment, &trial.configuration) * (drift + NOISE * normal(random)).exp();
        let stall = stall(setting, &mut episode, random);
        let entrant =
            experiment.entrants.iter().find(|one| one.configuration == trial.configuration).expect("an entrant");
        let figures = figures(speed, stall, setting.stalls, random);
        records.push(Record {
            id: String::new(),
            trial: trial.clone(),
            role: entrant.role,
            fingerprint: Fingerprint::default(),
            origin: TrialOrigin::default(),
            finished_at: place as u64,
            outcome: Outcome::Measured(Box::new(figures)),
        });
    }
    records
}

/// Additional time of a trial, as a fraction of its time; usually 0.
fn stall(setting: Setting, episode: &mut Option<f64>, random: &mut StdRng) -> f64 {
    let drawn = |random: &mut StdRng| 0.1 + 2.9 * random.random::<f64>();
    if setting.stalls != Stalls::Episodes {
        return if random.random::<f64>() < setting.share { drawn(random) } else { 0.0 };
    }
    // These probabilities give episodes the mean length EPISODE and the requested share of the
    // trials.
    let change = match episode {
        Some(_) => 1.0 / EPISODE,
        None => setting.share / (1.0 - setting.share) / EPISODE,
    };
    if random.random::<f64>() < change {
        *episode = match episode {
            Some(_) => None,
            None => Some(drawn(random)),
        };
    }
    episode.unwrap_or_default()
}

fn figures(speed: f64, stall: f64, kind: Stalls, random: &mut StdRng) -> Measurement {
    let throughout = matches!(kind, Stalls::Throughout | Stalls::Episodes);
    let each = (1.0 + if throughout { stall } else { 0.0 }) / speed / STEPS as f64;
    let mut took: Vec<f64> = (0..STEPS).map(|_| each * (1.0 + STEP_NOISE * normal(random)).max(0.5)).collect();
    if !throughout && stall > 0.0 {
        let hit = match kind {
            Stalls::Bursts => 1 + (4.0 * random.random::<f64>()) as usize,
            _ => STEPS / 10 + (STEPS as f64 * 0.23 * random.random::<f64>()) as usize,
        };
        for _ in 0..hit {
            took[random.random_range(0..STEPS)] += each * STEPS as f64 * stall / hit as f64;
        }
    }
    let mut begin = 0.0;
    let steps: Vec<SteadyStep> = took
        .iter()
        .map(|took| {
            begin += took;
            let (shape, rows, tokens) = (TreeShape::OFF, 1, 100);
            SteadyStep { begin: begin - took, took: *took, rounds: 1, batch: 1, shape, rows, tokens, prompt_tokens: 0 }
        })
        .collect();
    let steadied = steadied(&steps);
    let elapsed_s: f64 = steadied.took.iter().sum();
    let spread = |value| TrialSpread { min: value, median: value, p90: value, p99: value, max: value, count: 1 };
    let steady = Steady {
        elapsed_s,
        output_tokens_per_s: 1.0 / elapsed_s,
        tokens_per_s_per_user: 1.0 / elapsed_s,
        goodput_tokens_per_s: None,
        inter_token_ms: None,
        time_to_first_token_ms: spread(1.0),
        latency_ms: spread(elapsed_s),
    };
    Measurement {
        requests: 1,
        output_tokens: 1,
        elapsed_s: begin,
        output_tokens_per_s: 1.0 / begin,
        tokens_per_s_per_user: 1.0 / begin,
        accept_length: 1.0,
        rounds: STEPS as u64,
        stalls: Some(steadied.stalls),
        steady: Some(steady),
        ..Measurement::default()
    }
}

impl Tally {
    fn add(&mut self, truth: &Truth, experiment: &Experiment, ranking: &LoadRanking) {
        let best = truth.ratios[0];
        let chosen = ranking.winner().map(|winner| worth(truth, experiment, &winner.configuration));
        self.races += 1;
        match ranking.verdict {
            SpeculationVerdict::Pays => {
                self.pays += 1;
                // A shape as fast as no speculation is not a wrong sign, unless no shape is faster
                // than no speculation.
                let least = if best > 1.0 { 1.0 } else { 1.0 + f64::EPSILON };
                self.wrong += usize::from(chosen.is_none_or(|worth| worth < least));
                self.regretted += usize::from(chosen.is_none_or(|worth| worth < best / 1.05));
            }
            SpeculationVerdict::DoesNotPay => {
                self.does_not_pay += 1;
                self.wrong += usize::from(best > 1.01);
            }
            SpeculationVerdict::Tie => {
                self.ties += 1;
                self.wrong += usize::from(best > 1.06);
            }
            SpeculationVerdict::CannotTell(_) => self.cannot_tell += 1,
            SpeculationVerdict::AllFailed | SpeculationVerdict::NotCompared => {}
        }
        let shown = ranking.winner().filter(|winner| !winner.configuration.is_off());
        let shown = shown.or_else(|| ranking.entries.iter().find(|entry| !entry.configuration.is_off()));
        if let Some((entry, speedup)) = shown.and_then(|entry| Some((entry, entry.speedup?))) {
            let truth = worth(truth, experiment, &entry.configuration);
            self.intervals += 1;
            self.held += usize::from(speedup.low <= truth && truth <= speedup.high);
        }
    }

    /// Sum of both.
    pub fn and(self, other: Self) -> Self {
        Self {
            races: self.races + other.races,
            wrong: self.wrong + other.wrong,
            pays: self.pays + other.pays,
            does_not_pay: self.does_not_pay + other.does_not_pay,
            ties: self.ties + other.ties,
            cannot_tell: self.cannot_tell + other.cannot_tell,
            held: self.held + other.held,
            intervals: self.intervals + other.intervals,
            regretted: self.regretted + other.regretted,
        }
    }
}

/// A standard normal number (Box–Muller).
fn normal(random: &mut StdRng) -> f64 {
    let (radius, angle) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

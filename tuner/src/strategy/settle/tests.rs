use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::{
    sweep::{Metric, StrategyName},
    tree::TreeShape,
};

use super::*;
use crate::{
    fixtures::synthetic,
    results::selection::{Comparison, Looks, rank},
    strategy::search,
    trials::record::{Exclusion, Outcome, Record, Stalls},
};

const SHAPES: [&str; 4] = ["0,1,1", "3,1,4", "2,1,3", "3,2,6"];

/// A simulated machine: the logarithm of each speed is its truth plus noise of its own and noise of
/// the machine, an autoregression from trial to trial.
struct HostActivity {
    records: Vec<Record>,
    random: StdRng,
    seed: u64,
    /// True speeds of [`SHAPES`], relative to the first.
    truth: [f64; 4],
    noise: f64,
    /// Standard deviation of the machine's noise.
    shared: f64,
    /// Its correlation from trial to trial.
    correlation: f64,
    state: f64,
    /// Repeats per start of a server, and the deviation of what a start adds to all of them.
    of_start: Option<(usize, f64)>,
    /// Configuration and repeat of trials that stall.
    stalled: Vec<(usize, usize)>,
    budget: usize,
}

impl HostActivity {
    fn new(seed: u64, truth: [f64; 4]) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let state = normal(&mut random);
        let (records, stalled) = (Vec::new(), Vec::new());
        Self {
            records,
            random,
            seed,
            truth,
            noise: 0.02,
            shared: 0.0,
            correlation: 0.0,
            state,
            of_start: None,
            stalled,
            budget: usize::MAX,
        }
    }
}

fn normal(random: &mut StdRng) -> f64 {
    let (radius, angle) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

fn shape(at: usize) -> TreeShape {
    SHAPES[at].parse().expect("a shape")
}

impl TrialRunner for HostActivity {
    fn measure(&mut self, trial: &Trial) -> Result<&Record, SearchStop> {
        if let Some(at) = self.records.iter().position(|record| record.trial == *trial) {
            return Ok(&self.records[at]);
        }
        if self.records.len() >= self.budget {
            return Err(SearchStop::Stop(StopReason::TrialBudget));
        }
        let at = (0..SHAPES.len()).find(|at| shape(*at) == trial.configuration.shape).expect("an entrant");
        let rest = (1.0 - self.correlation * self.correlation).sqrt();
        self.state = self.correlation * self.state + rest * normal(&mut self.random);
        let offset = self.of_start.map_or(0.0, |(repeats, deviation)| {
            let start = (at * 1000 + trial.repeat / repeats) as u64;
            deviation * normal(&mut StdRng::seed_from_u64(self.seed * 100_000 + start))
        });
        let noise = self.noise * normal(&mut self.random) + self.shared * self.state + offset;
        let role = [
            CandidateRole::NoSpeculation,
            CandidateRole::EngineDefault,
            CandidateRole::Candidate,
            CandidateRole::Candidate,
        ][at];
        let mut record = synthetic::record(trial.clone(), role, 100.0 * self.truth[at] * noise.exp());
        record.finished_at = self.records.len() as u64;
        if let Outcome::Measured(figures) = &mut record.outcome {
            let stalls = self.stalled.contains(&(at, trial.repeat));
            figures.stalls = stalls.then_some(Stalls { of_time: 0.8, of_steps: 0.9 });
        }
        self.records.push(record);
        Ok(&self.records[self.records.len() - 1])
    }

    fn history(&self) -> &[Record] {
        &self.records
    }
}

fn experiment(looks: Looks, restarts: bool) -> Experiment {
    let role = |at: usize| {
        [CandidateRole::NoSpeculation, CandidateRole::EngineDefault, CandidateRole::Candidate, CandidateRole::Candidate]
            [at]
    };
    let entrant = |at: usize| Candidate { configuration: Configuration::from_shape(shape(at)), role: role(at) };
    Experiment {
        entrants: (0..SHAPES.len()).map(entrant).collect(),
        loads: vec![TrialLoad::BatchSize(1)],
        repeats: 3,
        metric: Metric::Throughput,
        looks,
        restarts,
    }
}

fn ask(until: Until) -> Search {
    Search { strategy: StrategyName::Grid, until, ..Search::default() }
}

fn ranking(records: &[Record], looks: Looks) -> LoadRanking {
    rank(records, Comparison { metric: Metric::Throughput, looks }).pop().expect("a race")
}

/// Number of races that end in a claim of a difference though there is none.
fn wrong(races: u64, looks: Looks, with: impl Fn(&mut HostActivity)) -> usize {
    let experiment = experiment(looks, looks != Looks::Every);
    let claims = |seed: &u64| {
        let mut machine = HostActivity::new(*seed, [1.0; 4]);
        with(&mut machine);
        let ended = search(&ask(Until::Decided), &experiment, &[], &mut machine).expect("it ends");
        let verdict = ranking(&machine.records, looks).verdict;
        assert_eq!(matches!(verdict, SpeculationVerdict::CannotTell(_)), ended == StopReason::Undecided, "{verdict:?}");
        matches!(verdict, SpeculationVerdict::Pays | SpeculationVerdict::DoesNotPay)
    };
    (0..races).filter(claims).count()
}

/// Ten thousand races are in the tests of [`selection`](crate::results::selection), without
/// records.
#[test]
fn measuring_until_decided_claims_no_difference_that_is_not_there() {
    assert!(wrong(150, Looks::Every, |_| {}) <= 3);
}

#[test]
fn nor_with_noise_of_the_machine_that_lasts_for_ten_trials() {
    let lasting = |machine: &mut HostActivity| {
        (machine.noise, machine.shared, machine.correlation) = (0.01, 0.03, 0.9);
    };
    assert!(wrong(150, Looks::Every, lasting) <= 3);
}

#[test]
fn nor_with_an_offset_that_lasts_for_a_start_of_a_server() {
    let offsets = |machine: &mut HostActivity| (machine.noise, machine.of_start) = (0.005, Some((3, 0.02)));
    assert!(wrong(150, Looks::EveryStart { repeats: 3 }, offsets) <= 3);
    // Without starts as blocks the repeats of a start would count as independent.
    assert!(wrong(30, Looks::Every, offsets) <= 3);
}

#[test]
fn small_gains_and_losses_are_decided_with_more_repeats() {
    for (truth, verdict) in
        [([1.0, 0.96, 0.95, 0.9], SpeculationVerdict::DoesNotPay), ([1.0, 1.04, 1.02, 0.9], SpeculationVerdict::Pays)]
    {
        let mut right = 0;
        for seed in 0..40 {
            let mut machine = HostActivity::new(seed, truth);
            let ended = search(&ask(Until::Decided), &experiment(Looks::Every, false), &[], &mut machine);
            assert!(matches!(ended, Ok(StopReason::Decided | StopReason::Undecided)));
            let found = ranking(&machine.records, Looks::Every);
            // A tie excludes gains above 5%, which is right for a loss too.
            let tie = verdict == SpeculationVerdict::DoesNotPay && found.verdict == SpeculationVerdict::Tie;
            right += usize::from(found.verdict == verdict || tie);
            assert!(open(&found).is_empty() || matches!(ended, Ok(StopReason::Undecided)));
        }
        assert!(right >= 30, "{right} of 40: {verdict:?}");
    }
}

#[test]
fn excluded_trials_are_measured_again_a_bounded_number_of_times() {
    let mut machine = HostActivity::new(1, [1.0, 1.3, 1.2, 1.1]);
    machine.stalled = vec![(2, 1), (2, 3)];
    let ended = search(&ask(Until::Repeats), &experiment(Looks::Planned, false), &[], &mut machine).expect("it ends");
    assert_eq!(ended, StopReason::SpaceExhausted);
    let found = ranking(&machine.records, Looks::Planned);
    let entry = found.entries.iter().find(|entry| entry.configuration.shape == shape(2)).expect("measured");
    assert_eq!((entry.repeats, entry.left_out), (5, 2), "the journal keeps all of them");
    let excluded: Vec<(usize, Exclusion)> = found.excluded.iter().map(|one| (one.trial.repeat, one.reason)).collect();
    assert_eq!(excluded, [(1, Exclusion::Stalled), (3, Exclusion::Stalled)]);
    let further = machine.records.iter().filter(|record| record.trial.repeat >= 3).count();
    assert_eq!(further, 4, "no speculation runs again with it, others do not");

    let mut hopeless = HostActivity::new(1, [1.0, 1.3, 1.2, 1.1]);
    hopeless.stalled = (0..100).map(|repeat| (2, repeat)).collect();
    search(&ask(Until::Repeats), &experiment(Looks::Planned, false), &[], &mut hopeless).expect("it ends");
    assert_eq!(hopeless.records.len(), 4 * 3 + 2 * 2);
    let none = Search { remeasure: 0, ..ask(Until::Repeats) };
    let mut once = HostActivity::new(1, [1.0, 1.3, 1.2, 1.1]);
    once.stalled = vec![(2, 1)];
    search(&none, &experiment(Looks::Planned, false), &[], &mut once).expect("it ends");
    assert_eq!(once.records.len(), 4 * 3);
}

#[test]
fn a_stopped_search_asks_for_the_same_further_trials() {
    let experiment = experiment(Looks::Every, false);
    let trials = |budget: usize| {
        let mut machine = HostActivity::new(7, [1.0, 1.03, 1.02, 0.9]);
        machine.stalled = vec![(1, 1)];
        machine.budget = budget;
        let _ = search(&ask(Until::Decided), &experiment, &[], &mut machine);
        machine
    };
    let whole = trials(usize::MAX);
    assert!(whole.records.len() > 20, "{}", whole.records.len());
    for budget in [5, 13, 17, whole.records.len() - 1] {
        let mut rest = trials(budget);
        assert_eq!(rest.records.len(), budget);
        rest.budget = usize::MAX;
        search(&ask(Until::Decided), &experiment, &[], &mut rest).expect("it ends");
        let of = |machine: &HostActivity| machine.records.iter().map(|one| one.trial.clone()).collect::<Vec<_>>();
        assert_eq!(of(&rest), of(&whole), "stopped after {budget}");
    }
}

#[test]
fn a_start_of_a_server_measures_several_further_repeats() {
    let mut machine = HostActivity::new(1, [1.0, 1.3, 1.2, 1.1]);
    machine.stalled = vec![(2, 1)];
    search(&ask(Until::Repeats), &experiment(Looks::Planned, true), &[], &mut machine).expect("it ends");
    let further: Vec<(TreeShape, usize)> =
        machine.records[12..].iter().map(|record| (record.trial.configuration.shape, record.trial.repeat)).collect();
    let of = |at: usize| [3, 4, 5].map(|repeat| (shape(at), repeat));
    assert_eq!(further, [of(0), of(2)].concat());
}

/// Share of races in which one of two equal configurations is said to be faster, where starts
/// differ by a tenth.
fn wrong_on_servers(confirm: bool) -> f64 {
    const RACES: u64 = 300;
    let experiment = experiment(Looks::PlannedStarts, true);
    let claims = |seed: &u64| {
        let mut machine = HostActivity::new(*seed, [1.0; 4]);
        machine.of_start = Some((3, 0.1));
        search(&Search { confirm, ..ask(Until::Repeats) }, &experiment, &[], &mut machine).expect("it ends");
        let verdict = ranking(&machine.records, Looks::PlannedStarts).verdict;
        matches!(verdict, SpeculationVerdict::Pays | SpeculationVerdict::DoesNotPay)
    };
    (0..RACES).filter(claims).count() as f64 / RACES as f64
}

#[test]
fn a_second_start_keeps_chance_between_starts_from_deciding() {
    let (once, confirmed) = (wrong_on_servers(false), wrong_on_servers(true));
    assert!(once > 0.5, "one start each shows no scatter of starts: {once}");
    assert!(confirmed < 0.07, "{confirmed}");
}

#[test]
fn a_clear_gain_is_confirmed_with_one_more_start() {
    let mut machine = HostActivity::new(1, [1.0, 1.3, 1.2, 1.1]);
    machine.of_start = Some((3, 0.005));
    search(&ask(Until::Repeats), &experiment(Looks::PlannedStarts, true), &[], &mut machine).expect("it ends");
    let further: Vec<(TreeShape, usize)> =
        machine.records[12..].iter().map(|record| (record.trial.configuration.shape, record.trial.repeat)).collect();
    let of = |at: usize| [3, 4, 5].map(|repeat| (shape(at), repeat));
    assert_eq!(further, [of(0), of(1)].concat());
    let found = ranking(&machine.records, Looks::PlannedStarts);
    assert_eq!(found.verdict, SpeculationVerdict::Pays);
    let starts = found.starts.expect("servers");
    assert_eq!((starts.subject.shape, starts.of_subject), (shape(1), 2));
}

//! Chooses a policy on some draws of a workload and judges it on others.
//!
//! A policy that was the best on some draws was partly lucky there. So the choice is made on one
//! half of the draws, and its gain is stated from the other half, in pairs: each policy runs the
//! same requests with the same acceptance.

use serde::{Deserialize, Serialize};

use super::{
    Forecast, SimulatedRequest,
    policy::{Policy, PolicyTable},
};
use crate::{TunerError, statistics::median};

/// A policy of a study.
pub struct PolicyCandidate<'a> {
    /// Its name.
    pub name: String,
    /// Its table, if it is one.
    pub table: Option<PolicyTable>,
    /// Makes it anew for each draw.
    pub make: Box<dyn Fn() -> Box<dyn Policy> + 'a>,
}

/// A policy's seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The policy.
    pub name: String,
    /// Median over the draws on which the policy is chosen.
    pub chosen_on_s: f64,
    /// Median over the other draws.
    pub judged_on_s: f64,
    /// Time of the first policy / its own, on the other draws: median, and the lower and the upper
    /// quartile of pairs.
    pub speedup: [f64; 3],
    /// Number of times that a running request was put back because the KV cache was full: mean over
    /// all draws.
    #[serde(default)]
    pub retractions: f64,
}

/// The result of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Policies in the order of the candidates; the first one is what they are compared with.
    pub policies: Vec<Judged>,
    /// Index of the policy that was the fastest on the first draws.
    pub chosen: usize,
    /// On the other draws: time of the chosen policy / that of the fastest − 1. It is 0 if the
    /// choice was right there, too.
    pub regret: f64,
    /// Number of draws on which policies are judged.
    pub draws: usize,
}

/// How far a study is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StudyProgress {
    /// Simulations that are done: one for each policy and draw.
    pub done: usize,
    /// All simulations.
    pub all: usize,
}

/// A policy's figures, one for each draw that is done.
#[derive(Clone, Default)]
struct PolicyRuns {
    /// Seconds of the draws on which policies are chosen.
    choosing: Vec<f64>,
    /// Seconds of those on which they are judged.
    judging: Vec<f64>,
    retractions: u64,
}

/// Runs every candidate on `2 · draws` draws. `run` simulates the requests of a draw, whose number
/// it gets too, and `seconds` is the objective.
/// `goes_on` is called before each simulation; when it returns false, the study ends with the draws
/// that are done, as many for the choice as for the judgement, and is `None` if there is no pair of
/// them.
///
/// # Errors
/// Without candidates or draws, or when a simulation fails.
pub fn study(
    candidates: &[PolicyCandidate<'_>],
    draws: usize,
    draw: impl Fn(u64) -> Vec<SimulatedRequest>,
    run: impl Fn(u64, &[SimulatedRequest], &mut dyn Policy) -> Result<Forecast, TunerError>,
    seconds: impl Fn(&Forecast) -> f64,
    goes_on: &mut dyn FnMut(StudyProgress) -> bool,
) -> Result<Option<Study>, TunerError> {
    if candidates.is_empty() || draws == 0 {
        return Err(TunerError::Configuration("a study needs at least one policy and one draw".into()));
    }
    let mut runs = vec![PolicyRuns::default(); candidates.len()];
    let mut progress = StudyProgress { done: 0, all: 2 * draws * candidates.len() };
    let mut pairs_done = 0;
    'pairs: while pairs_done < draws {
        let mut with_pair = runs.clone();
        for judges in [false, true] {
            let number = (pairs_done + if judges { draws } else { 0 }) as u64;
            let jobs = draw(number);
            for (candidate, runs) in candidates.iter().zip(&mut with_pair) {
                if !goes_on(progress) {
                    break 'pairs;
                }
                let forecast = run(number, &jobs, &mut *(candidate.make)())?;
                let times = if judges { &mut runs.judging } else { &mut runs.choosing };
                times.push(comparable(seconds(&forecast), &candidate.name)?);
                runs.retractions += forecast.retractions;
                progress.done += 1;
            }
        }
        runs = with_pair;
        pairs_done += 1;
    }
    Ok((pairs_done > 0).then(|| judged(candidates, &runs, pairs_done)))
}

/// The seconds of a draw, if they can be compared.
fn comparable(seconds: f64, policy: &str) -> Result<f64, TunerError> {
    if seconds.is_finite() && seconds > 0.0 {
        return Ok(seconds);
    }
    Err(TunerError::Configuration(format!(
        "the policy {policy} takes {seconds} s, which cannot be compared: expected a finite time above 0; the arrivals are \
         too far apart for the clock, or the times of steps are too large or all 0"
    )))
}

/// Chooses and judges, from at least one pair of draws.
fn judged(candidates: &[PolicyCandidate<'_>], runs: &[PolicyRuns], draws: usize) -> Study {
    let middle = |times: &[f64]| median(times.to_vec()).unwrap_or_default();
    let of_one = |(candidate, own): (&PolicyCandidate<'_>, &PolicyRuns)| {
        let mut pairs: Vec<f64> = runs[0].judging.iter().zip(&own.judging).map(|(none, own)| none / own).collect();
        pairs.sort_by(f64::total_cmp);
        let quantile = |share| quantile(&pairs, share);
        Judged {
            name: candidate.name.clone(),
            chosen_on_s: middle(&own.choosing),
            judged_on_s: middle(&own.judging),
            speedup: [middle(&pairs), quantile(0.25), quantile(0.75)],
            retractions: own.retractions as f64 / (2 * draws) as f64,
        }
    };
    let policies: Vec<Judged> = candidates.iter().zip(runs).map(of_one).collect();
    let best = |of: fn(&Judged) -> f64| {
        (0..policies.len()).min_by(|a, b| of(&policies[*a]).total_cmp(&of(&policies[*b]))).unwrap_or(0)
    };
    let (chosen, fastest) = (best(|one| one.chosen_on_s), best(|one| one.judged_on_s));
    let regret = policies[chosen].judged_on_s / policies[fastest].judged_on_s - 1.0;
    Study { policies, chosen, regret, draws }
}

/// The value that a share of some ascending numbers does not exceed, between the two next to it.
fn quantile(ascending: &[f64], share: f64) -> f64 {
    let at = share * (ascending.len() - 1) as f64;
    let (below, above) = (ascending[at.floor() as usize], ascending[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

impl Study {
    /// The speed-up of a policy on the draws on which policies are judged, if it is slower there
    /// than the one that others are compared with.
    pub fn loss(&self, policy: usize) -> Option<f64> {
        let [speedup, ..] = self.policies.get(policy)?.speedup;
        (policy > 0 && speedup < 1.0).then_some(speedup)
    }
}

#[cfg(test)]
mod tests {
    use schemas::tree::TreeShape;

    use super::*;
    use crate::forecast::{
        Arrivals, Setup, SimulatedWorkload,
        costs::StepCosts,
        drafts::Drafts,
        rollout::{OutputLengths, Rollout},
        simulate_policy, tables,
    };

    fn setup(capture_sizes: Vec<usize>) -> Setup {
        Setup {
            max_running_requests: capture_sizes.last().copied().unwrap_or_default(),
            capture_sizes,
            memory: None,
            prefill_budget: 8192,
            prefill_chunk: 8192,
            rounds_behind: 0,
            mixed_prefill: false,
        }
    }

    #[test]
    fn quartiles_lie_between_the_draws_next_to_them() {
        let quartiles = |pairs: &[f64]| [0.25, 0.5, 0.75].map(|share| quantile(pairs, share));
        assert_eq!(quartiles(&[7.0]), [7.0; 3]);
        assert_eq!(quartiles(&[1.0, 2.0, 4.0]), [1.5, 2.0, 3.0]);
        assert_eq!(quartiles(&[1.0, 2.0, 3.0, 4.0, 5.0]), [2.0, 3.0, 4.0]);
    }

    /// Chosen on one half of the draws, slower on the other.
    #[test]
    fn a_choice_that_loses_to_no_speculation_is_known() {
        let one = |chosen_on_s, speedup| Judged {
            name: String::new(),
            chosen_on_s,
            judged_on_s: 2.0 / speedup,
            speedup: [speedup; 3],
            retractions: 0.0,
        };
        let study = Study { policies: vec![one(2.0, 1.0), one(1.9, 0.971)], chosen: 1, regret: 0.03, draws: 3 };
        assert_eq!((study.loss(0), study.loss(1), study.loss(2)), (None, Some(0.971), None));
        let gains = Study { policies: vec![one(2.0, 1.0), one(1.9, 1.02)], ..study };
        assert_eq!(gains.loss(1), None);
    }

    #[test]
    fn a_table_by_batch_beats_every_fixed_chain_on_a_long_tail() {
        let drafts = Drafts::golden(&[1.7, 2.2, 2.5, 2.7]).expect("lengths");
        let times = StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name").into();
        let shapes: Vec<TreeShape> = (0..=4).map(TreeShape::chain).collect();
        let batches = [1, 2, 4, 8, 16, 32, 64, 128, 256];
        let table = tables::by_batch(&drafts, &times, &shapes, &batches, 500.0).expect("a table");
        let fixed = |shape: TreeShape| PolicyCandidate {
            name: shape.to_string(),
            table: None,
            make: Box::new(move || Box::new(PolicyTable::fixed(shape)) as Box<dyn Policy>),
        };
        let mut candidates: Vec<PolicyCandidate<'_>> = shapes.iter().map(|shape| fixed(*shape)).collect();
        candidates.push(PolicyCandidate {
            name: "table".into(),
            table: None,
            make: Box::new(|| Box::new(table.clone())),
        });
        let lengths = OutputLengths::LongTail { median: 60.0, sigma: 1.0, most: 1000 };
        let rollout = Rollout { prompts: 32, samples: 8, prompt_tokens: 100, lengths, ..Rollout::default() };
        let arrivals = Arrivals::Open { at_ms: vec![0.0; 256] };
        let setup = setup(batches.to_vec());
        let run = |_: u64, jobs: &[SimulatedRequest], policy: &mut dyn Policy| {
            let simulation = SimulatedWorkload {
                jobs,
                arrivals: &arrivals,
                setup: &setup,
                drafts: &drafts,
                times: &times,
                until: None,
            };
            simulate_policy(&simulation, policy)
        };
        let found = study(&candidates, 5, |seed| rollout.draw(&drafts, seed), run, |one| one.elapsed_s, &mut |_| true);
        let found = found.expect("they run").expect("no one stops it");
        assert_eq!((found.policies[found.chosen].name.as_str(), found.draws), ("table", 5));
        assert!(found.regret.abs() < 1e-12, "{found:?}");
        assert_eq!(found.policies[0].speedup, [1.0; 3]);
        assert!(found.policies.iter().all(|one| one.retractions == 0.0));
        assert!(found.policies[5].speedup[0] > 1.2, "{found:?}");
        for impossible in [f64::NAN, f64::INFINITY, 0.0] {
            let draw = |seed| rollout.draw(&drafts, seed);
            let found = study(&candidates, 1, draw, run, |_| impossible, &mut |_| true);
            assert!(found.expect_err("no such time is ranked").to_string().contains("cannot be compared"));
        }
        assert!(study(&[], 5, |_| Vec::new(), run, |_| 0.0, &mut |_| true).is_err());
        assert!(study(&candidates, 0, |_| Vec::new(), run, |_| 0.0, &mut |_| true).is_err());
    }

    #[test]
    fn a_study_that_is_stopped_has_the_pairs_of_draws_that_are_done() {
        let candidates: Vec<PolicyCandidate<'_>> = (0..2)
            .map(|steps| PolicyCandidate {
                name: steps.to_string(),
                table: None,
                make: Box::new(move || Box::new(PolicyTable::fixed(TreeShape::chain(steps)))),
            })
            .collect();
        let drafts = Drafts::golden(&[1.7]).expect("lengths");
        let times = StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name").into();
        let lengths = OutputLengths::LongTail { median: 20.0, sigma: 1.0, most: 100 };
        let rollout = Rollout { prompts: 4, samples: 1, prompt_tokens: 10, lengths, ..Rollout::default() };
        let setup = setup(vec![4]);
        let arrivals = Arrivals::Open { at_ms: vec![0.0; 4] };
        let run = |_: u64, jobs: &[SimulatedRequest], policy: &mut dyn Policy| {
            let (arrivals, setup, drafts, times) = (&arrivals, &setup, &drafts, &times);
            simulate_policy(&SimulatedWorkload { jobs, arrivals, setup, drafts, times, until: None }, policy)
        };
        let draw = |number| rollout.draw(&drafts, number);
        let plain =
            |number| run(number, &draw(number), &mut PolicyTable::fixed(TreeShape::OFF)).expect("it runs").elapsed_s;
        let [first, second, third] = [0, 1, 2].map(plain);
        let [fourth, fifth, sixth] = [3, 4, 5].map(plain);
        let middle = |times: &[f64]| median(times.to_vec()).expect("times");
        let stopped = |after: usize| {
            let mut seen = Vec::new();
            let found = study(&candidates, 3, draw, run, |one| one.elapsed_s, &mut |progress: StudyProgress| {
                seen.push(progress);
                progress.done < after
            });
            assert!(seen.iter().enumerate().all(|(at, one)| (one.done, one.all) == (at, 12)), "{seen:?}");
            found
                .expect("it runs")
                .map(|study| (study.draws, study.policies[0].chosen_on_s, study.policies[0].judged_on_s))
        };
        // Draws 0 to 2 choose, 3 to 5 judge; a pair is four simulations.
        assert_eq!((stopped(0), stopped(3)), (None, None));
        assert_eq!(stopped(4), Some((1, first, fourth)));
        assert_eq!(stopped(11), Some((2, middle(&[first, second]), middle(&[fourth, fifth]))));
        assert_eq!(stopped(12), Some((3, middle(&[first, second, third]), middle(&[fourth, fifth, sixth]))));
    }
}

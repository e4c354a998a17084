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

/// Runs every candidate on `2 · draws` draws. `run` simulates a draw, `seconds` is the objective.
///
/// # Errors
/// Without candidates or draws, or when a simulation fails.
pub fn study(
    candidates: &[PolicyCandidate<'_>],
    draws: usize,
    draw: impl Fn(u64) -> Vec<SimulatedRequest>,
    run: impl Fn(&[SimulatedRequest], &mut dyn Policy) -> Result<Forecast, TunerError>,
    seconds: impl Fn(&Forecast) -> f64,
) -> Result<Study, TunerError> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); candidates.len()];
    let mut retractions = vec![0; candidates.len()];
    for number in 0..2 * draws as u64 {
        let jobs = draw(number);
        for (at, candidate) in candidates.iter().enumerate() {
            let forecast = run(&jobs, &mut *(candidate.make)())?;
            times[at].push(seconds(&forecast));
            retractions[at] += forecast.retractions;
        }
    }
    let half = |times: &[f64], second: bool| {
        let (one, other) = times.split_at(draws);
        median(if second { other.to_vec() } else { one.to_vec() }).unwrap_or_default()
    };
    let Some(first) = times.first().filter(|times| !times.is_empty()).cloned() else {
        return Err(TunerError::Configuration("a study needs at least one policy and one draw".into()));
    };
    let judged = |(at, candidate): (usize, &PolicyCandidate<'_>)| {
        let times = &times[at];
        let mut pairs: Vec<f64> = first[draws..].iter().zip(&times[draws..]).map(|(none, own)| none / own).collect();
        pairs.sort_by(f64::total_cmp);
        let quantile = |share: f64| pairs[(share * (pairs.len() - 1) as f64).round() as usize];
        Judged {
            name: candidate.name.clone(),
            chosen_on_s: half(times, false),
            judged_on_s: half(times, true),
            speedup: [median(pairs.clone()).unwrap_or_default(), quantile(0.25), quantile(0.75)],
            retractions: retractions[at] as f64 / (2 * draws) as f64,
        }
    };
    let policies: Vec<Judged> = candidates.iter().enumerate().map(judged).collect();
    let best = |of: fn(&Judged) -> f64| {
        (0..policies.len()).min_by(|a, b| of(&policies[*a]).total_cmp(&of(&policies[*b]))).unwrap_or(0)
    };
    let (chosen, fastest) = (best(|one| one.chosen_on_s), best(|one| one.judged_on_s));
    let regret = policies[chosen].judged_on_s / policies[fastest].judged_on_s - 1.0;
    Ok(Study { policies, chosen, regret, draws })
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
        let setup = Setup {
            capture_sizes: batches.to_vec(),
            max_running_requests: 256,
            memory: None,
            prefill_budget: 8192,
            prefill_chunk: 8192,
            rounds_behind: 0,
            mixed_prefill: false,
        };
        let run = |jobs: &[SimulatedRequest], policy: &mut dyn Policy| {
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
        let found = study(&candidates, 5, |seed| rollout.draw(&drafts, seed), run, |one| one.elapsed_s);
        let found = found.expect("they run");
        assert_eq!((found.policies[found.chosen].name.as_str(), found.draws), ("table", 5));
        assert!(found.regret.abs() < 1e-12, "{found:?}");
        assert_eq!(found.policies[0].speedup, [1.0; 3]);
        assert!(found.policies.iter().all(|one| one.retractions == 0.0));
        assert!(found.policies[5].speedup[0] > 1.2, "{found:?}");
        assert!(study(&[], 5, |_| Vec::new(), run, |_| 0.0).is_err());
    }
}

//! Rules of other engines against decisions of their own classes, which
//! `scripts/engine_decisions.py` has recorded, and against those of a real server
//! (`docs/notes/policies/sglang_tiers.py`).

use std::collections::{HashMap, HashSet};

use engine::{likeliest, options::padded};
use schemas::{
    engines::{NEWEST_SGLANG, NEWEST_VLLM},
    version::EngineVersion,
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    calibration::Calibration,
    sglang::{Adaptive, AdaptiveSettings, RULES},
    verification::{AdaptiveVerification, CostCurve, CostTables, ScheduledStep, profiled_sizes},
    vllm::Schedule,
};

const SGLANG: &str = include_str!("decisions/sglang.jsonl");
const SGLANG_SERVER: &str = include_str!("decisions/sglang-server.jsonl");
const VLLM: &str = include_str!("decisions/vllm.jsonl");

#[derive(Deserialize)]
struct SglangCase {
    version: String,
    file: Option<Value>,
    /// The steps of the launch, if it states them.
    steps: Option<usize>,
    /// Captured batch sizes.
    sizes: Vec<usize>,
    #[serde(default)]
    refused: bool,
    /// The steps with which the server starts.
    #[serde(default)]
    start: usize,
    /// Batch, accepted drafts of all requests (−1 where the engine heard of none), and the steps
    /// that the engine chose before the round.
    #[serde(default)]
    rounds: Vec<i64>,
    /// The averages of all slots at the end, if they were recorded.
    #[serde(default)]
    averages: Option<Vec<f64>>,
}

impl SglangCase {
    /// The rule, started; what refuses it otherwise.
    fn started(&self) -> Result<(Adaptive, usize), String> {
        let version: EngineVersion = self.version.parse().expect("a version");
        let settings = match &self.file {
            Some(file) => AdaptiveSettings::parse(&file.to_string(), version).map_err(|error| error.to_string())?.0,
            None => AdaptiveSettings::in_version(version).map_err(|error| error.to_string())?,
        };
        let start = self.steps.unwrap_or_else(|| settings.default_start());
        Ok((Adaptive::new(settings.launched(start)?, start).expect("slots"), start))
    }

    /// Decides anew, and compares each decision; returns their number.
    fn check(&self, mut rule: Adaptive, at: &str) -> usize {
        let (rounds, rest) = self.rounds.as_chunks::<3>();
        assert!(!rounds.is_empty() && rest.is_empty(), "{at}");
        for (round, [batch, accepted, steps]) in rounds.iter().enumerate() {
            let batch = usize::try_from(*batch).expect("a batch");
            let padded = padded(&self.sizes, batch);
            assert_eq!(rule.steps(padded) as i64, *steps, "{at}: round {round} of {batch} requests");
            // Only the number of requests and their sum count.
            let mut of_each = vec![0; if *accepted < 0 { 0 } else { batch }];
            if let Some(first) = of_each.first_mut() {
                *first = usize::try_from(*accepted).expect("a sum");
            }
            rule.update(padded, &of_each);
        }
        if let Some(averages) = &self.averages {
            assert_eq!(rule.averages().collect::<Vec<_>>(), *averages, "{at}");
        }
        rounds.len()
    }
}

#[test]
fn sglang_decides_as_its_own_class_did() {
    let (mut versions, mut decisions, mut refused) = (Vec::new(), 0, 0);
    for (number, line) in SGLANG.lines().enumerate() {
        let case: SglangCase = serde_json::from_str(line).expect("a case");
        let at = format!("line {}, SGLang {} with {:?}", number + 1, case.version, case.file);
        versions.push(case.version.parse::<EngineVersion>().expect("a version"));
        let (rule, start) = match case.started() {
            Err(reason) => {
                assert!(case.refused, "{at}: {reason}");
                refused += 1;
                continue;
            }
            Ok(started) => started,
        };
        assert!(!case.refused && case.averages.is_some(), "{at}: SGLang refuses it");
        assert_eq!(start, case.start, "{at}");
        decisions += case.check(rule, &at);
    }
    for version in RULES.map(|rule| rule.since).into_iter().chain([NEWEST_SGLANG]) {
        assert!(versions.contains(&version), "no decision of {version}: record some");
    }
    assert!(decisions > 5000 && refused > 10, "{decisions} decisions, {refused} refused");
}

/// A server of SGLang 0.5.16 with its own defaults under closed loops of 1 to 32 requests.
#[test]
fn sglang_decides_as_a_server_did() {
    for line in SGLANG_SERVER.lines() {
        let case: SglangCase = serde_json::from_str(line).expect("a case");
        let (rule, start) = case.started().expect("it started");
        assert_eq!(start, case.start);
        let decisions = case.check(rule, &format!("a server of SGLang {}", case.version));
        let steps: HashSet<i64> = case.rounds.as_chunks::<3>().0.iter().map(|[.., steps]| *steps).collect();
        assert!(decisions > 5000 && steps.len() == 4, "{decisions} decisions for {steps:?}");
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum VllmCase {
    Schedule(ScheduleCase),
    Verification(Box<VerificationCase>),
}

#[derive(Deserialize)]
struct ScheduleCase {
    version: String,
    ranges: Vec<(usize, usize, usize)>,
    /// Drafts of the launch, which limit those of ranges.
    drafts: usize,
    /// The drafts of 1, 2, … requests; empty where vLLM refuses the ranges.
    #[serde(default)]
    lookup: Vec<usize>,
}

#[derive(Deserialize)]
struct VerificationCase {
    version: String,
    drafts: usize,
    requests: usize,
    tokens: usize,
    captured: Vec<usize>,
    /// The most logits of a step.
    logits: usize,
    /// Of drafting and of verification.
    curves: [CostCurve; 2],
    /// The sizes that vLLM times.
    sizes: Vec<usize>,
    /// By requests, and by some numbers of tokens.
    tables: [Vec<f64>; 2],
    steps: Vec<VerificationStep>,
}

/// The number of drafts that are verified (none in a step without drafts), how many of each request
/// (empty if all or none of them are), and the requests.
type VerificationStep = (Option<usize>, Vec<usize>, Vec<StepRequest>);

/// A request of a step: its name, scheduled drafts and tokens, tokens of its prompt and output that
/// are computed, length of the prompt, and the confidences of the drafts that the step proposes.
type StepRequest = (usize, usize, usize, usize, usize, Vec<f32>);

#[test]
fn vllm_decides_as_its_own_code_did() {
    assert!(VLLM.contains(&format!("\"version\":\"{NEWEST_VLLM}\"")), "no decision of {NEWEST_VLLM}: record some");
    let (mut lookups, mut decisions) = (0, 0);
    for line in VLLM.lines() {
        match serde_json::from_str(line).expect("a case") {
            VllmCase::Schedule(case) => lookups += case.check(),
            VllmCase::Verification(case) => {
                case.check_tables();
                decisions += case.check_steps();
            }
        }
    }
    assert!(lookups > 300 && decisions > 200, "{lookups} lookups, {decisions} decisions");
}

impl ScheduleCase {
    fn check(self) -> usize {
        let at = format!("vLLM {} with {:?}", self.version, self.ranges);
        let Some(schedule) = Schedule::new(self.ranges) else {
            assert!(self.lookup.is_empty(), "{at} is accepted");
            return 0;
        };
        assert!(!self.lookup.is_empty(), "{at} is refused");
        for (drafts, requests) in self.lookup.iter().zip(1..) {
            assert_eq!(schedule.drafts(requests).min(self.drafts), *drafts, "{at}: {requests} requests");
        }
        self.lookup.len()
    }
}

impl VerificationCase {
    fn cost_tables(&self) -> CostTables {
        let [drafting, verifying] = &self.curves;
        let largest = self.captured.last().copied().unwrap_or_default();
        CostTables::new(drafting, verifying, self.requests, self.tokens, largest).expect("points")
    }

    fn check_tables(&self) {
        let at = format!("vLLM {}, {} drafts", self.version, self.drafts);
        assert_eq!(profiled_sizes(&self.captured, self.tokens), self.sizes, "{at}");
        let found = self.cost_tables();
        let some: Vec<f64> = found.verify_ms.iter().copied().step_by(1 + found.verify_ms.len() / 64).collect();
        for (found, expected) in [(found.draft_ms, &self.tables[0]), (some, &self.tables[1])] {
            assert_eq!(found.len(), expected.len(), "{at}");
            for (size, (found, expected)) in found.iter().zip(expected).enumerate() {
                assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{at}: {found}, {expected} at {size}");
            }
        }
    }

    /// Replays the steps. The confidences that a step proposes are those of the drafts that the
    /// next step verifies.
    fn check_steps(&self) -> usize {
        let mut policy = AdaptiveVerification::new(self.drafts, self.cost_tables(), Calibration::NONE);
        let mut proposed: HashMap<usize, Vec<f64>> = HashMap::new();
        let (mut decisions, mut splits) = (0, 0);
        for (number, (expected, of_each, requests)) in self.steps.iter().enumerate() {
            let other = |(_, drafts, tokens, ..): &StepRequest| tokens - drafts;
            let yields = |one: &&StepRequest| one.3 + other(one) >= one.4;
            let step = ScheduledStep {
                requests: requests.len(),
                other_tokens: requests.iter().map(other).sum(),
                sampling: requests.iter().filter(yields).count(),
                most_drafts: self.logits.saturating_sub(requests.len()),
            };
            if let Some(expected) = expected {
                let found = policy.budget(step, requests.iter().map(|one| (one.0, one.1)));
                assert_eq!(found, *expected, "vLLM {}, {} drafts, step {number}: {step:?}", self.version, self.drafts);
                decisions += 1;
                if !of_each.is_empty() {
                    let offered = |(request, drafts, ..): &StepRequest| {
                        let values = proposed.get(request).into_iter().flatten();
                        values.copied().enumerate().take(*drafts).collect()
                    };
                    let offered: Vec<Vec<(usize, f64)>> = requests.iter().map(offered).collect();
                    let kept: Vec<usize> = likeliest(&offered, found).iter().map(Vec::len).collect();
                    assert_eq!(kept, *of_each, "vLLM {}, {} drafts, step {number}", self.version, self.drafts);
                    splits += 1;
                }
            }
            for (request, .., confidences) in requests {
                if let Some(values) = proposed.remove(request) {
                    policy.saw(*request, values);
                }
                let product = confidences.iter().scan(1.0, |product, one| {
                    *product *= f64::from(*one);
                    Some(*product)
                });
                proposed.insert(*request, product.collect());
            }
        }
        assert!(splits > 0, "vLLM {}, {} drafts: no budget divides the drafts", self.version, self.drafts);
        decisions
    }
}

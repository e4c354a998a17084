//! A simulation as a user asks for it: a load, policies by name, and what is known about drafts and
//! times.

mod adaptive;

use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use super::{
    Forecast, Setup, SimulatedRequest, SimulatedWorkload,
    buckets::{ContextBucket, ReachedContexts, context_buckets, reached},
    costs::StepCosts,
    drafts::Drafts,
    kinds,
    load::{LATEST_S, Load, SendPattern},
    policy::{
        Policy, PolicyTable, PolicyTableRow,
        budget::Budget,
        calibration::Calibration,
        verification::{AdaptiveVerification, CostTables, default_captured},
        vllm::Schedule,
    },
    rollout::OutputLengths,
    simulate_policy,
    study::{PolicyCandidate, Study, StudyProgress, study},
    tables,
    times::{SimulatedPlaces, StepTimes},
};
use crate::TunerError;

pub use adaptive::AdaptiveLaunch;

/// What is simulated.
#[derive(Debug)]
pub struct SimulationPlan {
    /// What drafts would accept.
    pub drafts: Drafts,
    /// The time of steps.
    pub times: StepTimes,
    /// Trees that policies choose among; no speculation is always among them.
    pub shapes: Vec<TreeShape>,
    /// Largest trees that budgets draft, one policy each: a deeper one costs more draft passes.
    pub limits: Vec<TreeShape>,
    /// The load.
    pub load: Load,
    /// How the engine is set up.
    pub setup: Setup,
    /// Largest contexts of the buckets of a table by batch and context, but the last.
    pub contexts: Vec<f64>,
    /// Draws on which policies are chosen, and as many on which they are judged.
    pub draws: usize,
    /// Policies by the names of [`POLICIES`]; all if it is empty.
    pub policies: Vec<String>,
    /// The SGLang server whose rule is one of them.
    pub adaptive: AdaptiveLaunch,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimulationReport {
    /// Always true: nothing was measured.
    pub simulated: bool,
    /// Whether fewer draws than planned were simulated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Where the time of steps comes from.
    pub times: String,
    /// What counts, in words.
    pub objective: String,
    /// The policies.
    pub study: Study,
    /// The chosen policy's table, if it is one.
    pub table: Option<Vec<SimulatedRow>>,
    /// Acceptance and round times by context; empty without a table by context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<ContextBucket>,
    /// The batch over time of the chosen policy, on the first draw on which policies are judged.
    pub timeline: Vec<TimeSlice>,
    /// What was left out and why, and assumptions of rules.
    pub notes: Vec<String>,
}

/// A row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimulatedRow {
    /// Largest batch.
    pub batch: usize,
    /// Largest mean context in tokens; `None` for the last bucket.
    pub context: Option<f64>,
    /// What runs.
    pub shape: TreeShape,
}

/// A policy with a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedTable {
    /// Its name.
    pub name: String,
    /// Its table, ascending by batch, then by context.
    pub rows: Vec<SimulatedRow>,
}

/// A part of the time of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeSlice {
    /// Start in s.
    pub from_s: f64,
    /// Mean batch of its rounds, by time.
    pub batch: f64,
    /// Share of the time of its rounds with speculation.
    pub speculating: f64,
    /// Tokens per round of a request.
    pub accept_length: f64,
    /// Rows that the target verified for each request.
    pub rows: f64,
}

/// Names of policies, each with what it is.
pub const POLICIES: [(&str, &str); 8] = [
    ("none", "no speculation"),
    ("fixed", "each tree for all rounds"),
    ("batch", "the fastest tree at each batch"),
    ("batch-context", "the fastest tree at each batch and context"),
    ("sglang", "SGLang's adaptive steps, by --engine-version and file"),
    ("vllm-schedule", "the best schedule of chains for vLLM 0.33"),
    ("vllm-adaptive", "vLLM 0.33's adaptive verification"),
    ("budget", "rows of all requests by probability, chains and trees"),
];

/// Parts of a timeline.
const SLICES: usize = 20;

impl SimulationPlan {
    /// Runs all policies; when `goes_on` returns false, only on the draws that are done then.
    /// `None` if there are none.
    ///
    /// # Errors
    /// When the plan is impossible.
    pub fn run(&self, goes_on: &mut dyn FnMut(StudyProgress) -> bool) -> Result<Option<SimulationReport>, TunerError> {
        let mut notes: Vec<String> = self.drafts.note().map(ToOwned::to_owned).into_iter().collect();
        notes.extend(kinds::warning(self.drafts.algorithm(), &self.times));
        let tables = self.tables()?;
        let candidates = self.candidates(&tables, &mut notes)?;
        let study = study(
            &candidates,
            self.draws,
            |number| self.load.requests.draw(&self.drafts, number),
            |number, jobs, policy| self.simulate(number, jobs, policy),
            |forecast| self.seconds(forecast),
            goes_on,
        )?;
        let Some(study) = study else { return Ok(None) };
        let is_cut = study.draws < self.draws;
        if is_cut {
            notes.push(format!("interrupted: of {} draws, {} are done and count", self.draws, study.draws));
        }
        notes.extend(self.unreached());
        let chosen = &candidates[study.chosen];
        if let Some(speedup) = study.loss(study.chosen) {
            notes.push(format!(
                "{} was the fastest on the draws of the choice, and on the other draws it is slower than no speculation \
                 ({speedup:.3}x): do not rely on it; more --draws tell better",
                chosen.name
            ));
        }
        let judged = self.draws as u64;
        let jobs = self.load.requests.draw(&self.drafts, judged);
        let forecast = self.simulate(judged, &jobs, &mut *(chosen.make)())?;
        notes.extend(self.times.caveat(&places(&jobs, &forecast)));
        Ok(Some(SimulationReport {
            simulated: true,
            interrupted: is_cut,
            times: self.times.source().to_owned(),
            objective: self.objective(),
            table: chosen.table.as_ref().map(rows),
            buckets: self.buckets()?,
            timeline: timeline(&forecast),
            study,
            notes,
        }))
    }

    /// Acceptance and round times in the buckets of the table by batch and context, if it is
    /// wanted.
    fn buckets(&self) -> Result<Vec<ContextBucket>, TunerError> {
        if !self.wants("batch-context") {
            return Ok(Vec::new());
        }
        context_buckets(&self.drafts, &self.times, &self.whole_shapes(), &self.batches(), &self.reached())
    }

    /// The buckets of contexts that the load reaches.
    fn reached(&self) -> Vec<ReachedContexts> {
        reached(&self.load.requests.draw(&self.drafts, 0), &self.contexts)
    }

    /// Which buckets of the table by batch and context have no rows of their own.
    fn unreached(&self) -> Option<String> {
        let found = self.reached();
        let (Some(first), Some(last)) = (found.first(), found.last()) else { return None };
        if !self.wants("batch-context") || self.contexts.is_empty() || found.len() > self.contexts.len() {
            return None;
        }
        let above = if first.above > 0.0 { format!("above {:.0}", first.above) } else { String::new() };
        let up_to = if last.up_to.is_finite() { format!("up to {:.0}", last.up_to) } else { String::new() };
        let range = [above, up_to].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" and ");
        Some(format!(
            "batch-context: the load has contexts {range} only; for others the rows of the nearest ones hold, which were \
             not judged there"
        ))
    }

    /// The policies that a table describes completely, for a measurement.
    ///
    /// # Errors
    /// When the plan is impossible.
    pub fn named_tables(&self) -> Result<Vec<NamedTable>, TunerError> {
        let tables = self.tables()?;
        let candidates = self.candidates(&tables, &mut Vec::new())?;
        // vLLM's schedule counts prompts in prefill too.
        let own = candidates.iter().filter(|one| one.name != "vllm-schedule");
        let named = own.filter_map(|one| Some(NamedTable { name: one.name.clone(), rows: rows(one.table.as_ref()?) }));
        Ok(named.collect())
    }

    /// Whether a policy is wanted.
    fn wants(&self, name: &str) -> bool {
        self.policies.is_empty() || self.policies.iter().any(|wanted| wanted == name)
    }

    /// Shapes with no speculation, without duplicates.
    fn all_shapes(&self) -> Vec<TreeShape> {
        let mut shapes: Vec<TreeShape> = self.shapes.iter().copied().chain([TreeShape::OFF]).collect();
        shapes.sort_unstable();
        shapes.dedup();
        shapes
    }

    /// Those of which all nodes are verified, whose acceptance does not depend on other requests.
    fn whole_shapes(&self) -> Vec<TreeShape> {
        self.all_shapes().into_iter().filter(|shape| shape.row_budget.is_none()).collect()
    }

    /// Batches at which tables may change.
    fn batches(&self) -> Vec<usize> {
        let most = self.setup.max_running_requests;
        let powers = (0..usize::BITS).map(|bit| 1 << bit).take_while(|size| *size < most);
        let sizes = self.setup.capture_sizes.iter().copied().filter(|size| *size <= most);
        let mut all: Vec<usize> = if self.setup.capture_sizes.is_empty() { powers.collect() } else { sizes.collect() };
        all.push(most);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The mean context of the load in tokens, over its output.
    pub fn mean_context(&self) -> f64 {
        let jobs = self.load.requests.draw(&self.drafts, 0);
        let tokens: f64 = jobs.iter().map(|job| job.output_tokens as f64).sum();
        let halfway = |job: &SimulatedRequest| {
            (job.prompt_tokens as f64 + job.output_tokens as f64 / 2.0) * job.output_tokens as f64
        };
        jobs.iter().map(halfway).sum::<f64>() / tokens.max(1.0)
    }

    /// The tables, by the names of their policies. One by batch alone is judged at the mean context
    /// of the load.
    fn tables(&self) -> Result<Vec<(&'static str, PolicyTable)>, TunerError> {
        let (shapes, batches) = (self.all_shapes(), self.batches());
        let whole = self.whole_shapes();
        let chains: Vec<TreeShape> = whole.iter().copied().filter(|shape| shape.topk == 1).collect();
        let context = self.mean_context();
        let mut tables = vec![("batch", tables::by_batch(&self.drafts, &self.times, &shapes, &batches, context)?)];
        if !self.contexts.is_empty() {
            let table = tables::by_batch_and_context(&self.drafts, &self.times, &whole, &batches, &self.reached())?;
            tables.push(("batch-context", table));
        }
        tables.push(("vllm-schedule", tables::by_batch(&self.drafts, &self.times, &chains, &batches, context)?));
        tables.retain(|(name, _)| self.wants(name));
        Ok(tables)
    }

    fn candidates<'a>(
        &'a self,
        tables: &'a [(&'static str, PolicyTable)],
        notes: &mut Vec<String>,
    ) -> Result<Vec<PolicyCandidate<'a>>, TunerError> {
        let most = self.setup.max_running_requests;
        let fixed = |name: &str, shape: TreeShape| {
            let row = PolicyTableRow { batch: most, context: f64::INFINITY, shape };
            let table = PolicyTable::new(vec![row]);
            PolicyCandidate { table, ..candidate(name, move || PolicyTable::fixed(shape)) }
        };
        let mut all = vec![fixed("none", TreeShape::OFF)];
        if self.wants("fixed") {
            let fixed = |shape: TreeShape| fixed(&format!("fixed {shape}"), shape);
            all.extend(self.all_shapes().into_iter().filter(|shape| !shape.is_off()).map(fixed));
        }
        for (name, table) in tables {
            match *name {
                "vllm-schedule" => {
                    let ranges = ranges(table);
                    let schedule = Schedule::new(ranges)
                        .ok_or_else(|| TunerError::Configuration("the schedule has no range".into()))?;
                    let policy = candidate(name, move || schedule.clone());
                    all.push(PolicyCandidate { table: Some(table.clone()), ..policy });
                }
                _ => all.push(PolicyCandidate { table: Some(table.clone()), ..candidate(name, || table.clone()) }),
            }
        }
        if self.wants("sglang") {
            self.sglang(&mut all, notes)?;
        }
        if self.wants("budget") || self.wants("vllm-adaptive") {
            self.budgets(&mut all, notes)?;
        }
        Ok(all)
    }

    /// Whether a policy is given by its name, so that it must not be left out.
    fn is_given(&self, name: &str) -> bool {
        self.policies.iter().any(|given| given == name)
    }

    /// Refuses those of some policies that are given by name: they cannot run. Those chosen by
    /// default are left out.
    fn refuse_given(&self, names: &[&str], reason: &str) -> Result<(), TunerError> {
        match names.iter().find(|name| self.is_given(name)) {
            Some(name) => Err(TunerError::Configuration(format!("--policy {name}: {reason}"))),
            None => Ok(()),
        }
    }

    fn budgets<'a>(&'a self, all: &mut Vec<PolicyCandidate<'a>>, notes: &mut Vec<String>) -> Result<(), TunerError> {
        let both = ["budget", "vllm-adaptive"];
        if self.limits.is_empty() {
            return self.refuse_given(
                &both,
                "it needs node scores, which accept lengths do not have: give --trace FILE (`spectune generate … --trace \
                 FILE` writes one)",
            );
        }
        if self.load.requests.limited.is_some() {
            let reason = "its rows are not simulated next to requests that limit their drafts: remove --limit-drafts";
            self.refuse_given(&both, reason)?;
            notes.push(
                "budgets are left out: their rows are not simulated next to requests that limit their drafts".into(),
            );
            return Ok(());
        }
        let Some(costs) = self.times.costs() else {
            let reason = "fitted times know whole trees only: give --times costs by rows";
            self.refuse_given(&both, reason)?;
            notes.push(format!("budgets are left out: {reason}"));
            return Ok(());
        };
        if self.limits.iter().all(|limit| limit.topk > 1) {
            self.refuse_given(&["vllm-adaptive"], "it drafts chains, and the trace has none: trace one (topk 1)")?;
        }
        let lengths = self.whole_shapes().into_iter().map(|shape| Ok((shape, self.drafts.accept_length(shape)?)));
        let lengths: Vec<(TreeShape, f64)> = lengths.collect::<Result<_, TunerError>>()?;
        for limit in &self.limits {
            let calibration = Calibration::fit(&self.drafts.every_second(*limit));
            let costs = costs.clone();
            if limit.topk == 1 && self.wants("vllm-adaptive") {
                self.verification(all, costs.clone(), limit.num_steps, calibration)?;
            }
            if self.wants("budget") {
                let lengths = lengths.clone();
                let make = move || Budget::new(*limit, costs.clone(), calibration, lengths.clone());
                all.push(candidate(&format!("budget {limit}"), make));
            }
        }
        notes.push("budgets: probabilities are calibrated on every second text of the trace".into());
        Ok(())
    }

    /// vLLM's adaptive verification of chains of a number of drafts.
    fn verification(
        &self,
        all: &mut Vec<PolicyCandidate<'_>>,
        costs: StepCosts,
        drafts: usize,
        calibration: Calibration,
    ) -> Result<(), TunerError> {
        let Setup { max_running_requests: requests, prefill_budget: tokens, .. } = self.setup;
        let captured = default_captured(drafts, requests, tokens);
        let tables = CostTables::timed(&costs, drafts, &captured, requests, tokens)
            .ok_or_else(|| TunerError::Configuration("vllm-adaptive: no step of this load has a graph".into()))?;
        let rule = AdaptiveVerification::new(drafts, tables, calibration);
        all.push(candidate(&format!("vllm-adaptive {drafts}"), move || rule.clone()));
        Ok(())
    }

    /// Simulates the requests of a draw.
    fn simulate(&self, draw: u64, jobs: &[SimulatedRequest], policy: &mut dyn Policy) -> Result<Forecast, TunerError> {
        let arrivals = self.load.sent.arrivals(jobs.len(), draw);
        let Self { setup, drafts, times, .. } = self;
        let until = self.load.until();
        simulate_policy(&SimulatedWorkload { jobs, arrivals: &arrivals, setup, drafts, times, until }, policy)
    }

    /// The objective.
    fn seconds(&self, forecast: &Forecast) -> f64 {
        match self.load.sent {
            SendPattern::AtOnce { .. } => self.load.done_s(&forecast.ends_s).unwrap_or(forecast.elapsed_s),
            SendPattern::Closed(_) => forecast.elapsed_s,
            SendPattern::Open { .. } | SendPattern::Recorded(_) => forecast.mean_latency_ms / 1e3,
        }
    }

    fn objective(&self) -> String {
        match self.load.sent {
            SendPattern::AtOnce { share, abort } if share < 1.0 => format!(
                "seconds until {}% of the requests are done; the others {}",
                share * 100.0,
                if abort { "are aborted" } else { "run on" }
            ),
            SendPattern::AtOnce { .. } | SendPattern::Closed(_) => "seconds until all requests are done".into(),
            SendPattern::Open { .. } | SendPattern::Recorded(_) => "mean latency of a request in seconds".into(),
        }
    }
}

impl NamedTable {
    /// The table.
    ///
    /// # Errors
    /// When it has no row, or a row has a tree that is larger than any.
    pub fn table(&self) -> Result<PolicyTable, TunerError> {
        let is_large = |row: &&SimulatedRow| {
            let TreeShape { num_steps, topk, num_draft_tokens, .. } = row.shape;
            [num_steps, topk, num_draft_tokens].into_iter().any(|number| number > TreeShape::LARGEST)
        };
        if let Some(row) = self.rows.iter().find(is_large) {
            let reason = format!("the policy {} has the tree {}, which is too large", self.name, row.shape);
            return Err(TunerError::Configuration(reason));
        }
        let row = |row: &SimulatedRow| PolicyTableRow {
            batch: row.batch,
            context: row.context.unwrap_or(f64::INFINITY),
            shape: row.shape,
        };
        PolicyTable::new(self.rows.iter().map(row).collect())
            .ok_or_else(|| TunerError::Configuration(format!("the policy {} has no row", self.name)))
    }
}

fn candidate<'a, P: Policy + 'static>(name: &str, make: impl Fn() -> P + 'a) -> PolicyCandidate<'a> {
    PolicyCandidate { name: name.to_owned(), table: None, make: Box::new(move || Box::new(make()) as Box<dyn Policy>) }
}

/// The rows of a table, for a reader: without those that the next batch or context repeats.
pub fn rows(table: &PolicyTable) -> Vec<SimulatedRow> {
    let mut kept: Vec<Vec<SimulatedRow>> = Vec::new();
    for rows in table.rows().chunk_by(|a, b| a.batch == b.batch) {
        let mut of_batch: Vec<SimulatedRow> = Vec::new();
        for row in rows {
            let context = row.context.is_finite().then_some(row.context);
            of_batch.pop_if(|last| last.shape == row.shape);
            of_batch.push(SimulatedRow { batch: row.batch, context, shape: row.shape });
        }
        let same = |last: &mut Vec<SimulatedRow>| {
            let without_batch = |row: &SimulatedRow| (row.context, row.shape);
            last.iter().map(without_batch).eq(of_batch.iter().map(without_batch))
        };
        kept.pop_if(same);
        kept.push(of_batch);
    }
    kept.concat()
}

/// The places of the rounds of a forecast, and of any with these requests.
fn places(jobs: &[SimulatedRequest], forecast: &Forecast) -> SimulatedPlaces {
    let counts = || (1_usize..).zip(forecast.batches.iter().skip(1));
    let batches = || counts().filter(|(_, rounds)| **rounds > 0).map(|(batch, _)| batch);
    let rows = |one: &super::Stretch| one.rows as f64 / one.rounds.max(1) as f64;
    SimulatedPlaces {
        batches: [batches().min().unwrap_or(1), batches().max().unwrap_or(1)],
        contexts: [
            jobs.iter().map(|job| job.prompt_tokens).min().unwrap_or_default(),
            jobs.iter().map(|job| job.prompt_tokens + job.output_tokens).max().unwrap_or_default(),
        ],
        rows: forecast.stretches.iter().map(rows).fold(0.0, f64::max),
    }
}

/// A table of chains as ranges of batches: (first, last, drafts). The last range has no end.
pub fn ranges(table: &PolicyTable) -> Vec<(usize, usize, usize)> {
    let mut ranges: Vec<(usize, usize, usize)> = Vec::new();
    for row in table.rows() {
        let drafts = row.shape.num_steps;
        match ranges.last_mut() {
            Some(last) if last.2 == drafts => last.1 = row.batch,
            last => {
                let first = last.map_or(1, |last| last.1 + 1);
                ranges.push((first, row.batch, drafts));
            }
        }
    }
    ranges
}

/// The rounds of a forecast in parts of equal time.
fn timeline(forecast: &Forecast) -> Vec<TimeSlice> {
    let width = forecast.elapsed_s * 1e3 / SLICES as f64;
    let slice = |number: usize| {
        let (from, to) = (number as f64 * width, (number + 1) as f64 * width);
        // The share of a stretch that is in this part.
        let share = |one: &super::Stretch| {
            let within = (one.from_ms + one.ms).min(to) - one.from_ms.max(from);
            if one.ms > 0.0 { within.max(0.0) / one.ms } else { 0.0 }
        };
        let sum = |value: &dyn Fn(&super::Stretch) -> f64| {
            forecast.stretches.iter().map(|one| share(one) * value(one)).sum::<f64>()
        };
        let (ms, requests) = (sum(&|one| one.ms), sum(&|one| (one.batch as u64 * one.rounds) as f64));
        (ms > 0.0).then(|| TimeSlice {
            from_s: from / 1e3,
            batch: sum(&|one| one.batch as f64 * one.ms) / ms,
            speculating: sum(&|one| if one.shape.is_off() { 0.0 } else { one.ms }) / ms,
            accept_length: sum(&|one| one.tokens as f64) / requests,
            rows: sum(&|one| one.rows as f64) / requests,
        })
    };
    (0..SLICES).filter_map(slice).collect()
}

impl SimulationPlan {
    /// A load for [`Load::requests`]: lengths from a file of one number of tokens per line.
    ///
    /// # Errors
    /// A message with the line that is not such a number.
    pub fn lengths(text: &str) -> Result<OutputLengths, String> {
        let number = |(at, line): (usize, &str)| {
            let wrong = || format!("line {}: expected a number of tokens, found {line:?}", at + 1);
            line.trim().parse::<usize>().ok().filter(|tokens| *tokens > 0).ok_or_else(wrong)
        };
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let lengths: Vec<usize> = lines.map(number).collect::<Result<_, _>>()?;
        if lengths.is_empty() { Err("it contains no length".into()) } else { Ok(OutputLengths::Recorded(lengths)) }
    }

    /// Arrivals for [`Load::sent`]: from a file of times in s, ascending, one per line. They count
    /// from the first one, so that times of day and Unix times may be given.
    ///
    /// # Errors
    /// A message with the line that is not such a time, is before the last one, or too long after
    /// the first one.
    pub fn arrivals(text: &str) -> Result<Vec<f64>, String> {
        let mut seconds: Vec<f64> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            for word in line.split_whitespace() {
                let first = seconds.first().copied();
                let is_possible = |second: &f64| {
                    (0.0..f64::INFINITY).contains(second) && first.is_none_or(|first| second - first <= LATEST_S)
                };
                let Some(second) = word.parse::<f64>().ok().filter(is_possible) else {
                    return Err(format!(
                        "line {}: expected seconds, at least 0 and at most {LATEST_S} after the first ones, found {word:?}",
                        at + 1
                    ));
                };
                if let Some(before) = seconds.last().filter(|before| **before > second) {
                    return Err(format!(
                        "line {}: {second} s is before the last time, {before} s: sort the times",
                        at + 1
                    ));
                }
                seconds.push(second);
            }
        }
        let Some(first) = seconds.first().copied() else { return Err("it contains no arrival time".into()) };
        seconds.iter_mut().for_each(|second| *second -= first);
        Ok(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::{
        costs::StepCosts,
        rollout::{Limited, Rollout},
    };

    fn plan(sent: SendPattern) -> SimulationPlan {
        let lengths = OutputLengths::LongTail { median: 40.0, sigma: 1.0, most: 500 };
        SimulationPlan {
            drafts: Drafts::golden(&[1.7, 2.2, 2.5]).expect("lengths"),
            times: StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name").into(),
            shapes: (1..=3).map(TreeShape::chain).collect(),
            limits: Vec::new(),
            load: Load {
                requests: Rollout { prompts: 16, samples: 4, prompt_tokens: 50, lengths, ..Rollout::default() },
                sent,
            },
            setup: Setup {
                capture_sizes: vec![1, 2, 4, 8, 16, 32, 64],
                max_running_requests: 64,
                memory: None,
                prefill_budget: 8192,
                prefill_chunk: 8192,
                rounds_behind: 1,
                mixed_prefill: false,
            },
            contexts: vec![100.0],
            draws: 3,
            policies: Vec::new(),
            adaptive: AdaptiveLaunch::default(),
        }
    }

    fn whole(plan: &SimulationPlan) -> SimulationReport {
        let found = plan.run(&mut |_| true).expect("it runs").expect("no one stops it");
        assert!(!found.interrupted && found.study.draws == plan.draws);
        found
    }

    /// Requests of one length, whose drafts only chance accepts, at arrivals that only chance
    /// decides.
    #[test]
    fn equal_requests_differ_between_draws() {
        for sent in [SendPattern::Closed(8), SendPattern::Open { rate: 50.0, burst: 1 }] {
            let mut plan = plan(sent);
            plan.load.requests.lengths = OutputLengths::Recorded(vec![40]);
            let [first, other] = [0, 1].map(|draw| {
                let jobs = plan.load.requests.draw(&plan.drafts, draw);
                let run = |steps| {
                    let mut policy = PolicyTable::fixed(TreeShape::chain(steps));
                    plan.seconds(&plan.simulate(draw, &jobs, &mut policy).expect("it runs"))
                };
                assert!((run(2) - run(2)).abs() < 1e-12);
                [run(0), run(2)]
            });
            assert!((first[1] - other[1]).abs() > 1e-9, "{:?}", plan.load);
            // Without drafts only the arrivals differ.
            let differs = (first[0] - other[0]).abs() > 1e-9;
            assert_eq!(differs, plan.load.sent != SendPattern::Closed(8));
        }
    }

    #[test]
    fn contexts_that_the_load_does_not_reach_have_no_rows() {
        let short = SimulationPlan { contexts: vec![1000.0, 4000.0], ..plan(SendPattern::Closed(8)) };
        let found = whole(&short);
        assert_eq!(found.buckets.len(), 1);
        assert!((found.buckets[0].judged_at - short.mean_context()).abs() < 1e-6, "{:?}", found.buckets);
        let said = |words: &str| found.notes.iter().any(|note| note.contains(words));
        assert!(said("batch-context: the load has contexts up to 1000 only"), "{:?}", found.notes);
        let mut reaching = plan(SendPattern::Closed(8));
        reaching.contexts = vec![60.0];
        assert!(!whole(&reaching).notes.iter().any(|note| note.contains("batch-context")));
    }

    #[test]
    fn a_simulation_that_is_stopped_says_how_many_draws_count() {
        let plan = plan(SendPattern::Closed(8));
        let all = std::cell::Cell::new(0);
        let found = plan.run(&mut |progress| {
            all.set(progress.all);
            progress.done < progress.all - 1
        });
        let found = found.expect("it runs").expect("two draws are done");
        assert_eq!((all.get() % (2 * plan.draws), found.study.draws, found.interrupted), (0, 2, true));
        assert!(found.notes.iter().any(|note| note.contains("of 3 draws, 2 are done")), "{:?}", found.notes);
        assert_eq!(plan.run(&mut |_| false).expect("it is possible"), None);
    }

    #[test]
    fn every_load_runs_under_every_policy_that_is_known() {
        for (sent, objective) in [
            (SendPattern::AtOnce { share: 1.0, abort: false }, "until all"),
            (
                SendPattern::AtOnce { share: 0.9, abort: true },
                "until 90% of the requests are done; the others are aborted",
            ),
            (SendPattern::Closed(8), "until all"),
            (SendPattern::Open { rate: 50.0, burst: 4 }, "mean latency"),
            (SendPattern::Recorded((0..64).map(|at| f64::from(at) * 10.0).collect()), "mean latency"),
        ] {
            let found = whole(&plan(sent));
            let names: Vec<&str> = found.study.policies.iter().map(|one| one.name.as_str()).collect();
            let expected = [
                "none",
                "fixed 1,1,2",
                "fixed 2,1,3",
                "fixed 3,1,4",
                "batch",
                "batch-context",
                "vllm-schedule",
                "sglang",
            ];
            assert_eq!(names, expected);
            assert!(found.simulated && found.objective.contains(objective), "{}", found.objective);
            assert!(
                found.notes.iter().any(|note| note.contains("[0, 1, 3] of [0, 1, 3, 5, 7] steps")),
                "{:?}",
                found.notes
            );
            assert!(!found.timeline.is_empty() && found.study.policies.iter().all(|one| one.judged_on_s > 0.0));
        }
    }

    #[test]
    fn the_batch_of_a_rollout_shrinks_and_aborting_is_no_slower() {
        let found = whole(&plan(SendPattern::AtOnce { share: 1.0, abort: false }));
        let (first, last) = (found.timeline[0], found.timeline[found.timeline.len() - 1]);
        assert!(first.batch > 20.0 && last.batch < 5.0 && last.speculating > 0.99, "{:?}", found.timeline);
        let seconds = |abort| {
            let found = whole(&plan(SendPattern::AtOnce { share: 0.9, abort }));
            found.study.policies[0].judged_on_s
        };
        assert!((seconds(true) - seconds(false)).abs() < 1e-9);
        assert!(seconds(true) < found.study.policies[0].judged_on_s);
    }

    #[test]
    fn tables_are_ranges_and_lengths_are_lines() {
        let row = |batch, steps| PolicyTableRow { batch, context: f64::INFINITY, shape: TreeShape::chain(steps) };
        let table = PolicyTable::new(vec![row(1, 3), row(2, 3), row(8, 1), row(64, 0)]).expect("rows");
        assert_eq!(ranges(&table), [(1, 2, 3), (3, 8, 1), (9, 64, 0)]);
        let of = |rows: Vec<SimulatedRow>| {
            rows.iter().map(|row| (row.batch, row.context, row.shape.num_steps)).collect::<Vec<_>>()
        };
        assert_eq!(of(rows(&table)), [(2, None, 3), (8, None, 1), (64, None, 0)]);
        let at = |context, row: PolicyTableRow| PolicyTableRow { context, ..row };
        let long = vec![at(9.0, row(1, 3)), row(1, 3), at(9.0, row(2, 3)), row(2, 3), at(9.0, row(8, 1)), row(8, 2)];
        let table = PolicyTable::new(long).expect("rows");
        assert_eq!(of(rows(&table)), [(2, None, 3), (8, Some(9.0), 1), (8, None, 2)]);
        assert_eq!(SimulationPlan::lengths("5\n\n 7\n"), Ok(OutputLengths::Recorded(vec![5, 7])));
        assert!(SimulationPlan::lengths("5\nx\n").expect_err("a word").contains("line 2"));
        assert!(SimulationPlan::lengths("").is_err());
    }

    #[test]
    fn arrivals_are_ascending_lines_of_seconds() {
        assert_eq!(SimulationPlan::arrivals("0\n\n 0.5\n0.5\n1e3\n"), Ok(vec![0.0, 0.5, 0.5, 1000.0]));
        assert_eq!(SimulationPlan::arrivals("1700000000.5 1700000001\n1700000003"), Ok(vec![0.0, 0.5, 2.5]));
        let refused = |text: &str, words: &str| {
            let found = SimulationPlan::arrivals(text).expect_err(words);
            assert!(found.contains(words), "{found}");
        };
        refused("\n", "no arrival time");
        refused("1\n0.5\n", "line 2: 0.5 s is before the last time, 1 s");
        for wrong in ["-1", "NaN", "inf", "soon", "99999999999999999999"] {
            let words = format!(
                "line 2: expected seconds, at least 0 and at most 1000000000 after the first ones, found {wrong:?}"
            );
            refused(&format!("0\n{wrong}\n"), &words);
        }
    }

    #[test]
    fn a_given_policy_that_cannot_run_is_refused_and_a_default_one_is_left_out() {
        fn given(name: &str, more: impl FnOnce(&mut SimulationPlan)) -> String {
            let mut changed = SimulationPlan { policies: vec![name.to_owned()], ..plan(SendPattern::Closed(8)) };
            more(&mut changed);
            changed.run(&mut |_| true).expect_err(name).to_string()
        }
        for name in ["budget", "vllm-adaptive"] {
            let found = given(name, |_| {});
            assert!(found.contains(name) && found.contains("--trace FILE"), "{found}");
            let found = given(name, |plan| {
                plan.limits = vec![TreeShape::chain(3)];
                plan.load.requests.limited = Some(Limited { share: 0.5, most_drafts: 0 });
            });
            assert!(found.contains(name) && found.contains("remove --limit-drafts"), "{found}");
        }
        let found = given("vllm-adaptive", |plan| {
            plan.limits = vec![TreeShape { topk: 2, ..TreeShape::chain(2) }];
        });
        assert!(found.contains("drafts chains"), "{found}");
        let names: Vec<String> =
            whole(&plan(SendPattern::Closed(8))).study.policies.into_iter().map(|one| one.name).collect();
        assert!(!names.iter().any(|name| name.starts_with("budget") || name.starts_with("vllm-adaptive")), "{names:?}");
    }

    #[test]
    fn another_kind_of_draft_and_places_that_were_not_measured_are_notes() {
        let costs = StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name");
        let few_rows = StepCosts { verify_ms: vec![[1.0, 3.6], [8.0, 3.7]], ..costs };
        let own = plan(SendPattern::Closed(8));
        let far = SimulationPlan {
            drafts: Drafts::golden(&[1.7]).expect("lengths").with_algorithm(Some("NGRAM".into())),
            times: few_rows.into(),
            shapes: vec![TreeShape::chain(1)],
            load: Load { sent: SendPattern::Closed(64), ..own.load.clone() },
            ..plan(SendPattern::Closed(8))
        };
        let noted = |plan: &SimulationPlan, words: &str| whole(plan).notes.iter().any(|note| note.contains(words));
        assert!(noted(&far, "looked up in texts") && noted(&far, "rows were measured"), "{:?}", whole(&far).notes);
        assert!(!noted(&own, "looked up in texts") && !noted(&own, "rows were measured"), "{:?}", whole(&own).notes);
    }
}

//! Requests that follow known acceptance under a policy.

use engine::{
    options::{mean_context, padded},
    replay::trace::Nodes,
};
use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use super::{
    Arrivals, Forecast, Setup, check,
    drafts::{Drafts, TextPosition},
    play::{Course, Member, NextRound, Play, Ran, RequestProgress},
    policy::{Policy, RoundChoice, View, likeliest::likeliest_by_score},
    times::StepTimes,
};
use crate::{
    TunerError,
    prediction::latency::{filling::Filling, prefill::PrefillStep},
};

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulatedRequest {
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Tokens of its output, including the first one.
    pub output_tokens: usize,
    /// The text whose acceptance it has, modulo their number.
    pub text: usize,
    /// The position of the text at which it starts; after the end, the text starts again.
    pub start: usize,
    /// Where there are no texts, chance decides what is accepted: the same for all policies.
    #[serde(default)]
    pub seed: u64,
    /// Maximum number of drafts that are verified for it in a round; `None` for what the policy
    /// says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_drafts: Option<usize>,
}

/// A workload with what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedWorkload<'a> {
    /// The requests.
    pub jobs: &'a [SimulatedRequest],
    /// When they are sent.
    pub arrivals: &'a Arrivals,
    /// How the engine is set up.
    pub setup: &'a Setup,
    /// What drafts would accept.
    pub drafts: &'a Drafts,
    /// The time of steps.
    pub times: &'a StepTimes,
    /// Ends the simulation when this many requests have ended, and aborts the others; `None` for
    /// all.
    pub until: Option<usize>,
}

/// Simulates a workload under a policy. Equal inputs yield an equal forecast, and two policies
/// accept the same drafts at the same position of the same request, so their forecasts can be
/// compared in pairs.
///
/// # Errors
/// When the workload is empty or cannot run, or a policy chooses a tree whose acceptance is
/// unknown.
pub fn simulate_policy(simulation: &SimulatedWorkload<'_>, policy: &mut dyn Policy) -> Result<Forecast, TunerError> {
    let SimulatedWorkload { jobs, arrivals, setup, until, .. } = *simulation;
    let impossible = |job: &&SimulatedRequest| job.prompt_tokens == 0 || job.output_tokens == 0;
    if let Some(job) = jobs.iter().find(impossible) {
        return Err(TunerError::Configuration(format!(
            "forecast: a request of {} prompt tokens and {} output tokens: expected a prompt and an output",
            job.prompt_tokens, job.output_tokens
        )));
    }
    check(jobs.len(), arrivals, setup)?;
    let course = Traced { simulation, policy, batch: Vec::new(), last_shape: TreeShape::OFF };
    let mut play = Play::new(course, jobs.len(), arrivals, setup).until(until.unwrap_or(jobs.len()));
    play.run()?;
    play.forecast()
}

struct Traced<'a> {
    simulation: &'a SimulatedWorkload<'a>,
    policy: &'a mut dyn Policy,
    /// The requests of the current round.
    batch: Vec<usize>,
    /// The shape of the last round: those of requests with different limits take turns.
    last_shape: TreeShape,
}

impl Traced<'_> {
    fn place(&self, request: usize, progress: RequestProgress) -> TextPosition {
        let job = self.simulation.jobs[request];
        TextPosition { text: job.text, position: job.start + progress.tokens }
    }

    /// What runs of a choice, and which members and riders take part: requests that limit their
    /// drafts cannot be in the same round as the others, since a round has one shape. It is the
    /// rule of the engine's scheduler.
    fn turn(&mut self, step: &NextRound<'_>, choice: RoundChoice) -> (RoundChoice, [Vec<Member>; 2]) {
        let RoundChoice::Shape(whole) = choice else { return (choice, [step.members.to_vec(), step.riders.to_vec()]) };
        let most = |member: &Member| self.simulation.jobs[member.request].most_drafts;
        let wanted = |member: &Member| self.policy.within(whole, most(member));
        let mut shapes: Vec<TreeShape> = step.members.iter().chain(step.riders).map(wanted).collect();
        shapes.sort_unstable();
        let later = shapes.iter().find(|shape| **shape > self.last_shape);
        let runs = later.or(shapes.first()).copied().unwrap_or(whole);
        let own = |all: &[Member]| all.iter().copied().filter(|member| wanted(member) == runs).collect();
        let taking_part = [own(step.members), own(step.riders)];
        self.last_shape = runs;
        (RoundChoice::Shape(runs), taking_part)
    }

    /// What a policy sees of a step in which these members and riders take part.
    fn view<'v>(&self, step: &NextRound<'_>, members: &[Member], riders: &[Member], requests: &'v [usize]) -> View<'v> {
        let batch = members.len() + riders.len();
        let known: Vec<usize> = members.iter().chain(riders).map(|member| member.known).collect();
        View {
            requests,
            batch,
            padded: padded(&self.simulation.setup.capture_sizes, batch),
            context: mean_context(&known).unwrap_or_default() as f64,
            prefilling: step.prefilling,
            completing: step.completing,
            prefilled: step.prefilled,
        }
    }

    /// Verified rows and accepted drafts of each of these members.
    fn accepted(
        &mut self,
        members: &[Member],
        view: &View<'_>,
        choice: &RoundChoice,
    ) -> Result<(usize, Vec<usize>), TunerError> {
        let drafts = self.simulation.drafts;
        let place = |member: &Member| self.place(member.request, member.progress);
        let nodes = |limit: TreeShape| {
            let unknown = || {
                TunerError::Configuration(format!(
                    "a budget needs a trace that contains {limit}: accept lengths alone have no scores"
                ))
            };
            let nodes = members.iter().map(|member| drafts.nodes(limit, place(member)).ok_or_else(unknown));
            nodes.collect::<Result<Vec<&Nodes>, _>>()
        };
        let accepted = |nodes: &[&Nodes], kept: &[Vec<usize>]| -> Vec<usize> {
            nodes.iter().zip(kept).map(|(nodes, kept)| nodes.accepted(kept)).collect()
        };
        match choice {
            RoundChoice::Shape(shape) if shape.row_budget.is_some() => {
                let (limit, rows) = (shape.drafted(), shape.verified_rows(view.padded));
                let nodes = nodes(limit)?;
                let kept = likeliest_by_score(&nodes, limit, rows.saturating_sub(view.batch));
                Ok((rows, accepted(&nodes, &kept)))
            }
            RoundChoice::Shape(shape) => {
                let accepted = members.iter().map(|member| {
                    let chance = uniform(self.simulation.jobs[member.request].seed, member.progress.tokens);
                    drafts.accepted(*shape, place(member), chance)
                });
                let rows = view.batch * shape.num_draft_tokens;
                Ok((rows, accepted.collect::<Result<_, _>>()?))
            }
            RoundChoice::Rows { limit, drafts: count } => {
                let nodes = nodes(*limit)?;
                let kept = self.policy.allocate(view, &nodes, *count);
                let rows = view.batch + kept.iter().map(Vec::len).sum::<usize>();
                Ok((rows, accepted(&nodes, &kept)))
            }
        }
    }
}

impl Course for Traced<'_> {
    const COUNTS_ALL: bool = false;

    fn prompt_tokens(&self, request: usize) -> usize {
        self.simulation.jobs[request].prompt_tokens
    }

    fn output_tokens(&self, request: usize) -> usize {
        self.simulation.jobs[request].output_tokens
    }

    fn has_ended(&self, request: usize, progress: RequestProgress) -> bool {
        progress.tokens + 1 >= self.simulation.jobs[request].output_tokens
    }

    fn context(&self, request: usize, progress: RequestProgress) -> f64 {
        (self.simulation.jobs[request].prompt_tokens + progress.tokens) as f64
    }

    fn may_go_on(&self, request: usize, known: usize, in_flight: usize) -> bool {
        known + in_flight < self.simulation.jobs[request].output_tokens
    }

    fn rest(&mut self) {
        self.last_shape = TreeShape::OFF;
    }

    fn round(&mut self, step: &NextRound<'_>) -> Result<Ran, TunerError> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        batch.extend(step.members.iter().map(|member| member.request));
        let choice = self.policy.choose(&self.view(step, step.members, step.riders, &batch));
        let (choice, [members, riders]) = self.turn(step, choice);
        batch.clear();
        batch.extend(members.iter().map(|member| member.request));
        let tokens: f64 = members.iter().chain(&riders).map(|member| member.context).sum();
        let view = self.view(step, &members, &riders, &batch);
        let (rows, accepted) = self.accepted(&members, &view, &choice)?;
        self.policy.learn(&view, &accepted);
        let shape = match choice {
            RoundChoice::Shape(shape) | RoundChoice::Rows { limit: shape, .. } => shape,
        };
        // A shape pads each request, a budget only the rows.
        let padded_rows = match choice {
            RoundChoice::Shape(shape) => shape.verified_rows(view.padded),
            RoundChoice::Rows { .. } => rows.max(view.padded),
        };
        // What attention reads, beyond what the host knows of it.
        let filling = Filling { context: tokens / view.batch as f64, ..view.filling() };
        let ms = self.simulation.times.round(shape, filling, padded_rows, step.prefilled)?;
        let left = |member: &Member| self.simulation.jobs[member.request].output_tokens - 1 - member.progress.tokens;
        let mut yields = members.iter().zip(&accepted).peekable();
        // Members that do not take part receive nothing.
        let tokens = step.members.iter().map(|member| {
            let own = yields.next_if(|(one, _)| one.request == member.request);
            own.map_or(0, |(member, drafts)| (drafts + 1).min(left(member)))
        });
        let (tokens, batch_size) = (tokens.collect(), view.batch);
        self.batch = batch;
        Ok(Ran { ms, shape, batch: batch_size, riders: riders.len(), rows, tokens })
    }

    fn prefill_ms(&self, step: &PrefillStep) -> f64 {
        self.simulation.times.prefill(step, self.policy.speculates())
    }
}

/// A number of 0 to 1 that depends on the seed of a request and a position alone, so that every
/// policy meets the same one.
fn uniform(seed: u64, position: usize) -> f64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (position as u64).wrapping_add(0x5EED);
    // SplitMix64's finaliser.
    state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((state ^ (state >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use engine::replay::trace::{FORMAT, PositionTrace, ROOT, TextTrace};

    use super::*;
    use crate::forecast::costs::StepCosts;
    use crate::forecast::policy::{
        PolicyTable, PolicyTableRow,
        budget::Budget,
        calibration::Calibration,
        sglang::{Adaptive, AdaptiveSettings},
        verification::{AdaptiveVerification, CostTables},
        vllm::Schedule,
    };

    /// A text of chains of two drafts whose accepted drafts repeat. It has one position more, since
    /// what the last one accepts is not known.
    fn trace(accepted: &[usize]) -> PositionTrace {
        let position = |accepted: &usize| Nodes {
            score: vec![-0.2 - 2.0 * (2 - *accepted) as f32, -0.3 - 4.0 * (2 - *accepted) as f32],
            parent: vec![ROOT, 0],
            rank: vec![0; 2],
            depth: vec![1, 2],
            chance: vec![Some(if *accepted > 0 { 1.0 } else { 0.0 }), None],
            on_text: (0..*accepted as u16).collect(),
            ..Nodes::default()
        };
        let positions: Vec<Nodes> = accepted.iter().chain([&0]).map(position).collect();
        PositionTrace {
            format: FORMAT,
            source: "EAGLE3".into(),
            limit: TreeShape::chain(2),
            largest: vec![TreeShape::chain(1), TreeShape::chain(2)],
            texts: vec![TextTrace { prompt_tokens: 10, output_tokens: accepted.len() + 2, sampled: false, positions }],
        }
    }

    fn setup() -> Setup {
        Setup {
            capture_sizes: Vec::new(),
            max_running_requests: 8,
            memory: None,
            prefill_budget: 1000,
            prefill_chunk: 1000,
            rounds_behind: 0,
            mixed_prefill: false,
        }
    }

    /// A step takes 10 ms, 1 ms a row, and 2 ms for a draft pass; a prefill step 5 ms.
    fn costs() -> StepCosts {
        let text = r#"{"format": 1, "source": "by hand", "verify_ms": [[1, 11], [2, 12]], "request_ms": 0, "context_ms": 0,
            "draft": {"pass_ms": 2, "row_ms": 0, "context_ms": 0}, "prefill_step_ms": 5, "prefill_token_ms": 0}"#;
        serde_json::from_str(text).expect("costs")
    }

    fn run(jobs: &[SimulatedRequest], setup: &Setup, until: Option<usize>, policy: &mut dyn Policy) -> Forecast {
        let drafts = Drafts::traced(vec![trace(&[2, 0, 1, 2, 2, 0])]).expect("a trace");
        let arrivals = Arrivals::Open { at_ms: vec![0.0; jobs.len()] };
        let times = costs().into();
        let simulation = SimulatedWorkload { jobs, arrivals: &arrivals, setup, drafts: &drafts, times: &times, until };
        simulate_policy(&simulation, policy).expect("it is played")
    }

    fn job(output_tokens: usize, start: usize) -> SimulatedRequest {
        SimulatedRequest { prompt_tokens: 10, output_tokens, text: 0, start, seed: 0, most_drafts: None }
    }

    #[test]
    fn a_request_follows_its_text_and_a_policy_decides_where_rounds_start() {
        // Chains of two from position 0: 3 tokens, then 3 from position 3, then position 6, which
        // is 0 again: 1 left.
        let forecast = run(&[job(8, 0)], &setup(), None, &mut PolicyTable::fixed(TreeShape::chain(2)));
        assert_eq!((forecast.batches.clone(), forecast.output_tokens), (vec![0, 3], 8));
        assert!((forecast.elapsed_s - (5.0 + 3.0 * (13.0 + 4.0)) / 1e3).abs() < 1e-9, "{forecast:?}");
        assert_eq!(forecast.stretches.len(), 1);
        assert_eq!((forecast.stretches[0].rows, forecast.stretches[0].tokens), (9, 7));
        // Without speculation: seven rounds of one row.
        let forecast = run(&[job(8, 0)], &setup(), None, &mut PolicyTable::fixed(TreeShape::OFF));
        assert!((forecast.elapsed_s - (5.0 + 7.0 * 11.0) / 1e3).abs() < 1e-9);
        // Chains of one from 0: 2, from 2: 2, from 4: 2, from 6 = 0: the last one.
        let forecast = run(&[job(8, 0)], &setup(), None, &mut PolicyTable::fixed(TreeShape::chain(1)));
        assert_eq!(forecast.batches, [0, 4]);
    }

    #[test]
    fn a_table_switches_as_requests_end_and_stragglers_can_be_aborted() {
        let row = |batch, steps| PolicyTableRow { batch, context: f64::INFINITY, shape: TreeShape::chain(steps) };
        let mut table = PolicyTable::new(vec![row(1, 2), row(8, 0)]).expect("rows");
        let jobs = [job(3, 0), job(12, 0)];
        let forecast = run(&jobs, &setup(), None, &mut table);
        // Two rounds of both without speculation, then the second alone from position 2: 2 tokens,
        // 4: 3, 7 = 1: 1, 8 = 2: 2, and the last one of 11.
        let stretches: Vec<_> = forecast.stretches.iter().map(|one| (one.batch, one.rounds, one.tokens)).collect();
        assert_eq!(stretches, [(2, 2, 4), (1, 5, 9)]);
        assert_eq!(forecast.ends_s.len(), 2);
        assert!((forecast.ends_s[0] - (5.0 + 2.0 * 12.0) / 1e3).abs() < 1e-9);
        let aborted = run(&jobs, &setup(), Some(1), &mut table);
        assert_eq!((aborted.ends_s.len(), aborted.output_tokens), (1, 3 + 3));
        assert!((aborted.elapsed_s - forecast.ends_s[0]).abs() < 1e-12);
    }

    #[test]
    fn prompts_in_the_steps_of_rounds_cost_their_tokens_there() {
        let setup = Setup { mixed_prefill: true, max_running_requests: 2, ..setup() };
        let times = StepCosts { prefill_token_ms: 0.1, ..costs() }.into();
        let drafts = Drafts::traced(vec![trace(&[2, 0, 1, 2, 2, 0])]).expect("a trace");
        let arrivals = Arrivals::Open { at_ms: vec![0.0, 7.0] };
        let jobs = [job(3, 0), job(2, 0)];
        let simulation = SimulatedWorkload {
            jobs: &jobs,
            arrivals: &arrivals,
            setup: &setup,
            drafts: &drafts,
            times: &times,
            until: None,
        };
        // A step of 5 + 1 ms for the first prompt alone. The first round of 11 ends at 17; the
        // second request has come, its prompt costs 1 ms in the round until 29, its only round 11.
        let mut schedule = Schedule::new(vec![(1, 8, 0)]).expect("a range");
        let forecast = simulate_policy(&simulation, &mut schedule).expect("it is played");
        assert!((forecast.elapsed_s - 0.040).abs() < 1e-9, "{forecast:?}");
        assert!((forecast.time_to_first_token_ms.max - 22.0).abs() < 1e-9);
        assert_eq!(forecast.batches, [0, 3]);
        // In pieces of six tokens the second prompt takes two steps, and ends in the second one.
        let setup = Setup { prefill_chunk: 6, ..setup.clone() };
        let mut seen = Seen::default();
        let jobs = [job(8, 0), job(2, 0)];
        let simulation = SimulatedWorkload { setup: &setup, jobs: &jobs, ..simulation };
        simulate_policy(&simulation, &mut seen).expect("it is played");
        let of_prompts = |(prompts, ..): &&(usize, usize, usize)| *prompts > 0;
        assert_eq!(seen.0.iter().filter(of_prompts).collect::<Vec<_>>(), [&(1, 0, 6), &(1, 1, 4)]);
    }

    /// What a policy sees of prompts in the steps of rounds: prompts, those that end, tokens.
    #[derive(Default)]
    struct Seen(Vec<(usize, usize, usize)>);

    impl Policy for Seen {
        fn choose(&mut self, view: &View<'_>) -> RoundChoice {
            self.0.push((view.prefilling, view.completing, view.prefilled));
            RoundChoice::Shape(TreeShape::OFF)
        }
    }

    #[test]
    fn requests_that_limit_their_drafts_take_turns_with_the_others() {
        let limited = SimulatedRequest { most_drafts: Some(0), ..job(4, 0) };
        let jobs = [job(4, 0), limited];
        let forecast = run(&jobs, &setup(), None, &mut PolicyTable::fixed(TreeShape::chain(2)));
        // Of three tokens after the first: one round of the chain from 0, three without
        // speculation. They take turns, the chain first: each has one row of a batch of one.
        let stretches: Vec<_> =
            forecast.stretches.iter().map(|one| (one.batch, one.shape.num_steps, one.rounds)).collect();
        assert_eq!(stretches, [(1, 2, 1), (1, 0, 3)]);
        assert!((forecast.elapsed_s - (5.0 + 17.0 + 3.0 * 11.0) / 1e3).abs() < 1e-9, "{forecast:?}");
        // A limit that the table has a tree for.
        let row = |batch, steps| PolicyTableRow { batch, context: f64::INFINITY, shape: TreeShape::chain(steps) };
        let mut table = PolicyTable::new(vec![row(1, 1), row(8, 2)]).expect("rows");
        let jobs = [job(9, 0), SimulatedRequest { most_drafts: Some(1), ..job(9, 0) }, job(9, 0)];
        let forecast = run(&jobs, &setup(), None, &mut table);
        let first: Vec<_> = forecast.stretches.iter().take(2).map(|one| (one.batch, one.shape.num_steps)).collect();
        assert_eq!((first, forecast.output_tokens), (vec![(1, 1), (2, 2)], 27));
    }

    #[test]
    fn a_budget_of_rows_goes_to_the_likeliest_drafts_of_the_batch() {
        let budget: TreeShape = "2,1,3~1.5".parse().expect("a shape");
        let forecast = run(&[job(4, 0), job(4, 1)], &setup(), None, &mut PolicyTable::fixed(budget));
        // One draft for both: of the first request, whose first position accepts it; then, of equal
        // scores, of the first again, which ends. Alone, one and a half rows are the root.
        let stretches: Vec<_> =
            forecast.stretches.iter().map(|one| (one.batch, one.rounds, one.rows, one.tokens)).collect();
        assert_eq!(stretches, [(2, 2, 6, 5), (1, 1, 1, 1)]);
        assert!((forecast.elapsed_s - (5.0 + 2.0 * 17.0 + 15.0) / 1e3).abs() < 1e-9, "{forecast:?}");
        let drafts = Drafts::traced(vec![trace(&[2; 6])]).expect("a trace");
        let length = |batch| drafts.accept_length_at(budget, batch).expect("it is traced");
        assert_eq!([1, 2, 4].map(length), [1.0, 1.5, 1.5]);
        assert!(drafts.accept_length(budget).is_err() && drafts.knows(budget));
        let golden = Drafts::golden(&[1.8, 2.4]).expect("accept lengths");
        assert!(!golden.knows(budget) && golden.accept_length_at(budget, 2).is_err());
    }

    #[test]
    fn every_policy_yields_each_request_its_tokens() {
        let jobs: Vec<SimulatedRequest> = (0..20).map(|at| job(5 + at * 7 % 90, at)).collect();
        let total: usize = jobs.iter().map(|job| job.output_tokens).sum();
        let file = r#"{"1": {"candidate_steps": [1, 2]}, "4": {"candidate_steps": [0, 1]}}"#;
        let (settings, _) = AdaptiveSettings::parse(file, schemas::engines::NEWEST_SGLANG).expect("a file");
        let tables = CostTables::timed(&costs(), 2, &[8, 16], 8, 64).expect("captured sizes");
        let policies: Vec<Box<dyn Policy>> = vec![
            Box::new(PolicyTable::fixed(TreeShape::chain(2))),
            Box::new(PolicyTable::fixed("2,1,3~2".parse().expect("a shape"))),
            Box::new(Schedule::new(vec![(1, 4, 2), (5, 99, 0)]).expect("ranges")),
            Box::new(Adaptive::new(settings, 2).expect("slots")),
            Box::new(AdaptiveVerification::new(2, tables, Calibration::VLLM_START)),
            Box::new(Budget::new(TreeShape::chain(2), costs(), Calibration::NONE, Vec::new())),
        ];
        for mut policy in policies {
            let forecast = run(&jobs, &setup(), None, &mut *policy);
            assert_eq!((forecast.output_tokens, forecast.ends_s.len()), (total as u64, 20));
            let rounds: u64 = forecast.stretches.iter().map(|stretch| stretch.rounds).sum();
            assert_eq!(rounds, forecast.batches.iter().sum::<u64>());
        }
    }

    /// Positions decide, not only their mean: an order in which acceptance comes in runs yields
    /// other rounds.
    #[test]
    fn shuffled_positions_change_the_forecast() {
        let rounds = |accepted: &[usize]| {
            let drafts = Drafts::traced(vec![trace(accepted)]).expect("a trace");
            drafts.accept_length(TreeShape::chain(2)).expect("it is known")
        };
        assert!((rounds(&[2, 0, 0, 2, 0, 0]) - 3.0).abs() < 1e-9);
        assert!((rounds(&[0, 0, 2, 0, 0, 1]) - 7.0 / 4.0).abs() < 1e-9);
    }
}

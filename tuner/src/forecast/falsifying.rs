//! Loads that would show a simulator or a policy to be wrong: each has a property that a mean
//! hides.

use engine::replay::trace::{FORMAT, Nodes, PositionTrace, ROOT, TextTrace};
use schemas::tree::TreeShape;

use super::{
    Arrivals, Forecast, Setup, SimulatedRequest, SimulatedWorkload, buckets,
    costs::StepCosts,
    drafts::Drafts,
    load::SendPattern,
    policy::{
        Policy, PolicyTable, PolicyTableRow,
        sglang::{Adaptive, AdaptiveSettings},
    },
    rollout::{OutputLengths, Rollout},
    simulate_policy, tables,
    times::StepTimes,
};

/// Texts whose positions accept this many drafts of a chain of two, after a prompt of 1,000 tokens.
/// They have one position more, since what the last one accepts is not known.
fn drafts(texts: &[Vec<usize>]) -> Drafts {
    let position = |accepted: &usize| Nodes {
        score: vec![-0.2, -0.3],
        parent: vec![ROOT, 0],
        rank: vec![0; 2],
        depth: vec![1, 2],
        chance: vec![None; 2],
        on_text: (0..*accepted as u16).collect(),
        ..Nodes::default()
    };
    let text = |accepted: &Vec<usize>| TextTrace {
        prompt_tokens: 1000,
        output_tokens: accepted.len() + 2,
        sampled: false,
        positions: accepted.iter().chain([&0]).map(position).collect(),
    };
    let trace = PositionTrace {
        format: FORMAT,
        source: "EAGLE3".into(),
        limit: TreeShape::chain(2),
        largest: vec![TreeShape::chain(1), TreeShape::chain(2)],
        texts: texts.iter().map(text).collect(),
    };
    Drafts::traced(vec![trace]).expect("a trace")
}

fn times() -> StepTimes {
    StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name").into()
}

fn setup() -> Setup {
    Setup {
        capture_sizes: Vec::new(),
        max_running_requests: 64,
        memory: None,
        prefill_budget: 8192,
        prefill_chunk: 8192,
        rounds_behind: 1,
        mixed_prefill: false,
    }
}

fn run(
    jobs: &[SimulatedRequest],
    arrivals: &Arrivals,
    setup: &Setup,
    drafts: &Drafts,
    policy: &mut dyn Policy,
) -> Forecast {
    let times = times();
    let simulation = SimulatedWorkload { jobs, arrivals, setup, drafts, times: &times, until: None };
    simulate_policy(&simulation, policy).expect("it runs")
}

fn job(output_tokens: usize, text: usize) -> SimulatedRequest {
    SimulatedRequest { prompt_tokens: 1000, output_tokens, text, start: 0, seed: 0, most_drafts: None }
}

const CHAIN: TreeShape = TreeShape::whole_tree(2, 1, 3);

#[test]
fn bursts_wait_for_the_prefill_of_their_own_prompts() {
    let drafts = drafts(&[vec![1; 400]]);
    let jobs = vec![job(100, 0); 64];
    for mixed_prefill in [false, true] {
        let setup = Setup { mixed_prefill, ..setup() };
        let of = |burst| {
            let arrivals = SendPattern::Open { rate: 8.0, burst }.arrivals(jobs.len(), 0);
            run(&jobs, &arrivals, &setup, &drafts, &mut PolicyTable::fixed(CHAIN))
        };
        let (alone, bursts) = (of(1), of(16));
        assert_eq!(alone.output_tokens, bursts.output_tokens);
        // 16 prompts of 1,000 tokens take two steps of 8,192 tokens before the last one's first
        // token.
        let steps = times().prefill(&crate::prediction::latency::prefill::PrefillStep::whole(8000), true);
        let (first, last) = (alone.time_to_first_token_ms.median, bursts.time_to_first_token_ms.max);
        assert!(last > 1.9 * steps && first < 0.5 * steps, "{first} {last} {steps}");
        assert!(bursts.mean_latency_ms > 1.2 * alone.mean_latency_ms, "{mixed_prefill}");
        assert!(bursts.batches.len() > alone.batches.len());
    }
}

/// The mean acceptance of the text is one draft of two, but no place has it.
#[test]
fn acceptance_that_changes_halfway_is_followed_by_a_rule_that_learns() {
    let halves = [vec![2; 600], vec![0; 600]].concat();
    let jobs = vec![job(1200, 0); 2];
    let at_once = Arrivals::Open { at_ms: vec![0.0; 2] };
    let file = r#"{"1": {"candidate_steps": [1, 2], "down_hysteresis": 0.0}}"#;
    let (settings, _) = AdaptiveSettings::parse(file, schemas::engines::NEWEST_SGLANG).expect("a file");
    let of = |text: Vec<usize>, policy: &mut dyn Policy| run(&jobs, &at_once, &setup(), &drafts(&[text]), policy);
    let learning = of(halves.clone(), &mut Adaptive::new(settings, 2).expect("slots"));
    let rounds = |steps: usize| {
        let own = learning.stretches.iter().filter(|one| one.shape.num_steps == steps);
        own.map(|one| one.rounds).sum::<u64>()
    };
    // 200 rounds of three tokens, and a few more until the average has fallen.
    assert!((200..250).contains(&rounds(2)) && rounds(1) > 500, "{} {}", rounds(2), rounds(1));
    let fixed =
        [TreeShape::OFF, TreeShape::chain(1), CHAIN].map(|shape| of(halves.clone(), &mut PolicyTable::fixed(shape)));
    assert!(fixed.iter().all(|one| one.elapsed_s > learning.elapsed_s));
    // The same positions in another order, with the same mean.
    let mixed = of([2, 0].repeat(600), &mut PolicyTable::fixed(CHAIN));
    assert!(mixed.elapsed_s < 0.9 * fixed[2].elapsed_s, "rounds yield three tokens and one in turn");
}

/// Ten requests are short and one is long; what counts is when the last one is done.
#[test]
fn acceptance_that_is_correlated_with_length_decides_a_rollout() {
    let drafts = drafts(&[vec![2; 100], vec![0; 100]]);
    let at_once = Arrivals::Open { at_ms: vec![0.0; 11] };
    let seconds = |of_long: usize, shape: TreeShape| {
        let mut jobs = vec![job(60, 1 - of_long); 10];
        jobs.push(job(900, of_long));
        run(&jobs, &at_once, &setup(), &drafts, &mut PolicyTable::fixed(shape)).elapsed_s
    };
    // Over both texts together, a chain of two accepts as many drafts in either case.
    assert!(seconds(0, CHAIN) < 0.5 * seconds(0, TreeShape::OFF), "the long one accepts");
    assert!(seconds(1, CHAIN) > 1.05 * seconds(1, TreeShape::OFF), "the long one accepts nothing");
}

/// Requests end and come so that eight or nine run: nine are padded to sixteen.
#[test]
fn a_batch_that_swings_over_a_capture_size_pays_for_the_larger_graph() {
    let drafts = drafts(&[vec![1; 400]]);
    let jobs: Vec<SimulatedRequest> = (0..90).map(|at| job(if at % 9 == 8 { 20 } else { 100 }, 0)).collect();
    let of = |capture_sizes: Vec<usize>| {
        let setup = Setup { capture_sizes, ..setup() };
        run(&jobs, &Arrivals::Closed { batch_size: 9 }, &setup, &drafts, &mut PolicyTable::fixed(CHAIN))
    };
    let (padded, exact) = (of(vec![1, 8, 16]), of((1..=16).collect()));
    assert_eq!(padded.batches, exact.batches, "padding changes no decision here");
    assert!(padded.batches[8] > 0 && padded.batches[9] > 0, "{:?}", padded.batches);
    let ms = |forecast: &Forecast, batch: usize| {
        let own = forecast.stretches.iter().filter(|one| one.batch == batch);
        let (rounds, ms) = own.fold((0, 0.0), |sum, one| (sum.0 + one.rounds, sum.1 + one.ms));
        ms / rounds as f64
    };
    assert!(ms(&padded, 9) > 1.02 * ms(&exact, 9) && (ms(&padded, 8) / ms(&exact, 8) - 1.0).abs() < 1e-3);
    assert!(padded.elapsed_s > exact.elapsed_s);
}

/// Contexts grow from 1k to 32k. With the same acceptance everywhere a table by context hardly
/// gains over one by batch; where drafts are accepted at short contexts only, it does.
#[test]
fn growing_contexts_pay_for_a_table_by_context_only_where_acceptance_falls() {
    let gain = |text: Vec<usize>| {
        let drafts = drafts(&[text]);
        let shapes = [TreeShape::OFF, TreeShape::chain(1), CHAIN];
        let lengths = OutputLengths::Recorded(vec![31_000]);
        let rollout =
            Rollout { prompts: 8, samples: 1, prompt_tokens: 1000, lengths, keeps_contexts: true, limited: None };
        let jobs = rollout.draw(&drafts, 0);
        assert!(jobs.iter().all(|job| job.start == 0));
        let arrivals = Arrivals::Open { at_ms: vec![0.0; 8] };
        let reached = buckets::reached(&jobs, &[2000.0, 8000.0]);
        let by_batch = tables::by_batch(&drafts, &times(), &shapes, &[1, 8], 16_000.0).expect("known");
        let by_context = tables::by_batch_and_context(&drafts, &times(), &shapes, &[1, 8], &reached).expect("known");
        let fixed = shapes.map(PolicyTable::fixed);
        let seconds = |table: &PolicyTable| run(&jobs, &arrivals, &setup(), &drafts, &mut table.clone()).elapsed_s;
        let best = fixed.iter().chain([&by_batch]).map(seconds).fold(f64::INFINITY, f64::min);
        best / seconds(&by_context) - 1.0
    };
    let same = gain([2, 0, 0, 1].repeat(7750));
    let falling = gain([vec![2; 7000], vec![0; 24_000]].concat());
    assert!(same.abs() < 0.01, "{same}");
    assert!(falling > 0.05, "{falling}");
}

/// A request that keeps contexts meets the acceptance of its own context, others do not.
#[test]
fn shuffled_places_change_the_forecast() {
    let drafts = drafts(&[[vec![2; 500], vec![0; 1500]].concat()]);
    let lengths = OutputLengths::Recorded(vec![400]);
    let rollout = Rollout { prompts: 8, samples: 1, prompt_tokens: 1000, lengths, keeps_contexts: true, limited: None };
    let arrivals = Arrivals::Open { at_ms: vec![0.0; 8] };
    let of = |rollout: &Rollout| {
        run(&rollout.draw(&drafts, 3), &arrivals, &setup(), &drafts, &mut PolicyTable::fixed(CHAIN))
    };
    let kept = of(&rollout);
    let shuffled = of(&Rollout { keeps_contexts: false, ..rollout });
    assert!((kept.accept_length.expect("rounds") - 3.0).abs() < 0.05, "{:?}", kept.accept_length);
    assert!(shuffled.elapsed_s > 1.3 * kept.elapsed_s, "{} {}", shuffled.elapsed_s, kept.elapsed_s);
}

#[test]
fn rows_of_a_table_are_met_in_the_order_of_growing_contexts() {
    let row = |context: f64, shape| PolicyTableRow { batch: 64, context, shape };
    let rows = vec![row(1100.0, TreeShape::OFF), row(1200.0, TreeShape::chain(1)), row(f64::INFINITY, CHAIN)];
    let mut table = PolicyTable::new(rows).expect("rows");
    let jobs = vec![job(400, 0); 4];
    let forecast = run(&jobs, &Arrivals::Closed { batch_size: 4 }, &setup(), &drafts(&[vec![0; 400]]), &mut table);
    let steps: Vec<usize> = forecast.stretches.iter().map(|one| one.shape.num_steps).collect();
    assert_eq!(steps, [0, 1, 2]);
    // Before round 101 the host knows the first token and those of 99 rounds; round 100 is in
    // flight.
    assert_eq!(forecast.stretches[0].rounds, 101);
}

//! Measures how fast an engine decodes random prompts, and compares it with the limit set by memory
//! bandwidth.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use schemas::tree::TreeShape;
use serde::Serialize;

use crate::{
    Engine, EngineError, Event, Fingerprint, Request, SamplingParams, Simulated, StopConditions,
    backend::{ExpertReads, RoundTiming},
    options::Fp8Compute,
    random::uniform,
    spec::CountedShares,
};

mod experts;

pub use experts::ExpertsRead;

/// Time for which a load runs before it is measured, at least once: the first half second under
/// load is slower by up to 1.3% (a GPU's rounds of a small model, docs/notes/performance.md), or
/// faster where power is the limit, and a server experiences neither.
const WARM_UP: Duration = Duration::from_millis(500);
/// The same where a GPU's clocks follow its load: after heavier work they take up to a second.
const WARM_UP_OF_CLOCKS: Duration = Duration::from_secs(1);

/// A load: `batch_size` requests together, each with `input_len` random tokens, each answered by
/// exactly `output_len` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomBatch {
    /// Number of requests.
    pub batch_size: usize,
    /// Length of each prompt.
    pub input_len: usize,
    /// Length of each output.
    pub output_len: usize,
    /// Seed of the random tokens.
    pub seed: u64,
}

/// How to measure a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BenchPlan {
    /// The load.
    pub load: RandomBatch,
    /// Number of measured repeats, after warm-up.
    pub repeats: usize,
    /// Memory bandwidth of the device in bytes per second, from [`Engine::measure_bandwidth`].
    pub bandwidth: f64,
    /// Time to load the engine.
    pub startup: Duration,
    /// Time to prepare the shape, including graph capture.
    pub shape_change: Duration,
}

/// The figures of one load: medians over its repeats. All but `accept_length` refer to the rounds
/// in which the whole batch was decoding, so neither prefill nor the shrinking batch at the end
/// counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bench {
    /// The tree shape.
    pub shape: String,
    /// Number of requests.
    pub batch_size: usize,
    /// Tokens per second of the whole batch.
    pub output_tokens_per_s: f64,
    /// The slowest and the fastest repeat.
    pub output_tokens_per_s_range: [f64; 2],
    /// Tokens per second of one request.
    pub tokens_per_s_per_user: f64,
    /// Prompt tokens prefilled per second.
    pub prefill_tokens_per_s: f64,
    /// Duration of rounds, over all repeats.
    pub round_ms: Spread,
    /// Time before rounds in which the device waited for drafts of the host (look-up and copy of
    /// the trees), over all repeats; `None` if the device drafts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_ms: Option<Spread>,
    /// Output tokens / rounds, including bonus tokens and the first token; 1 without speculation.
    pub accept_length: f64,
    /// Output tokens per joule of the GPU over the measured repeats, prefill included; `None` if
    /// its driver does not tell the energy that it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_joule: Option<f64>,
    /// Number of times that a request was put back because the KV cache was full, over all repeats:
    /// the batch was smaller than stated at those times.
    pub retractions: u64,
    /// Whether acceptance was simulated instead of measured.
    pub simulated: bool,
    /// A note on the quantisation of the target's weights, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantised: Option<String>,
    /// How its layers in FP8 multiply, if it has any: `weights` or `products`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp8_compute: Option<&'static str>,
    /// The format of the KV cache, if it is not the type that the engine computes in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_cache_dtype: Option<&'static str>,
    /// The experts that rounds read, if the model has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<ExpertsRead>,
    /// Time of a round that does nothing but read, once per pass, the weights that it needs (of
    /// routed experts those that were counted), and the cache. `None` if rounds are faster: then
    /// they read from the processor's caches, and memory is not the limit.
    pub memory_floor_ms: Option<f64>,
    /// Time of a round that does nothing but multiply its rows with weights, at the rate that the
    /// device sustains. `None` where that rate is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_floor_ms: Option<f64>,
    /// Sum over the passes of a round of the longer of the two times / median round, at most 1.
    pub share_of_floor: Option<f64>,
    /// Time to load the engine.
    pub startup_s: f64,
    /// Time to prepare this shape, without loading anything again.
    pub shape_change_s: f64,
    /// Total time of graph capture so far; `None` on a device without graphs.
    pub graph_capture_s: Option<f64>,
    /// Figures are comparable if their fingerprints are equal.
    pub fingerprint: Fingerprint,
}

/// Tokens of a round without drafts. Output tokens / rounds would be above it by the first token of
/// each request, which the prefill yields.
pub const ACCEPT_LENGTH_OFF: f64 = 1.0;

/// Statistics of several durations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// Observations while the whole batch was decoding.
#[derive(Default)]
struct Seen {
    rounds: Vec<RoundTiming>,
    tokens: usize,
    elapsed: Duration,
    prefill: Duration,
    all_tokens: usize,
    all_request_rounds: usize,
}

/// The measured runs of a load. Those of several loads and shapes can take turns, so that a drift
/// of the machine affects all alike.
#[derive(Default)]
pub struct BenchRuns {
    runs: Vec<Seen>,
    /// Energy of each turn in joules, as far as it is known.
    energy_j: Vec<Option<f64>>,
    retractions: u64,
}

impl BenchRuns {
    /// Warms up, and adds further runs. The engine is idle, and its policy has the same shape at
    /// every batch size.
    ///
    /// # Errors
    /// When the load does not fit the engine, or the device fails.
    pub fn add(&mut self, engine: &mut Engine, load: &RandomBatch, repeats: usize) -> Result<(), EngineError> {
        check(engine, load)?;
        let warm_up = if engine.gpu_state().is_some() { WARM_UP_OF_CLOCKS } else { WARM_UP };
        let begin = Instant::now();
        loop {
            decode(engine, load)?;
            if begin.elapsed() >= warm_up {
                break;
            }
        }
        // After the warm-up, whose energy belongs to no measured token.
        let before = engine.gpu_state();
        let retracted = engine.statistics().retracted_for_pages;
        for _ in 0..repeats {
            self.runs.push(decode(engine, load)?);
        }
        self.retractions += engine.statistics().retracted_for_pages - retracted;
        self.energy_j.push(engine.gpu_state().zip(before).and_then(|(now, before)| now.energy_since(&before)));
        Ok(())
    }

    /// Number of runs so far.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    /// The figures of the runs so far, on an engine that is as it was for them.
    ///
    /// # Errors
    /// When no round had the whole batch, or the device fails.
    pub fn figures(&self, engine: &mut Engine, plan: &BenchPlan) -> Result<Bench, EngineError> {
        figures(engine, plan, self)
    }
}

/// Runs a load, with all its repeats one after the other, on an idle engine whose policy has the
/// same shape at every batch size.
///
/// # Errors
/// When the load does not fit the engine, or the device fails.
pub fn run(engine: &mut Engine, plan: &BenchPlan) -> Result<Bench, EngineError> {
    let mut runs = BenchRuns::default();
    runs.add(engine, &plan.load, plan.repeats.max(1))?;
    runs.figures(engine, plan)
}

fn figures(engine: &mut Engine, plan: &BenchPlan, measured: &BenchRuns) -> Result<Bench, EngineError> {
    let BenchPlan { load, bandwidth, startup, shape_change, .. } = plan;
    let BenchRuns { runs, energy_j, retractions } = measured;
    let energy_j: Option<f64> = energy_j.iter().copied().sum();
    let rounds = runs.iter().flat_map(|seen| &seen.rounds).map(|timing| timing.total.as_secs_f64() * 1e3);
    let Some(round_ms) = Spread::from_values(rounds.collect()) else {
        return Err(EngineError::Configuration(format!(
            "no round had all {} requests decoding: raise --output-len (now {}), or --mem-fraction-static if the KV \
             cache ({} pages of {} tokens) does not hold them all",
            load.batch_size,
            load.output_len,
            engine.capacity().pages,
            engine.capacity().page_size
        )));
    };
    let stalls = runs.iter().flat_map(|seen| &seen.rounds).filter_map(|timing| timing.stall);
    let stall_ms = Spread::from_values(stalls.map(|stall| stall.as_secs_f64() * 1e3).collect());
    let rates = runs.iter().map(|seen| seen.tokens as f64 / seen.elapsed.as_secs_f64()).collect();
    let rate = Spread::from_values(rates).unwrap_or(round_ms);
    let prefill = runs.iter().map(|seen| (load.batch_size * load.input_len) as f64 / seen.prefill.as_secs_f64());
    let shape = engine.options().policy.shape(load.batch_size);
    let experts = count_experts(engine, load)?;
    let shares = experts.as_ref().map_or_else(CountedShares::default, ExpertReads::shares);
    let floor = Floor::for_round(engine, shape, load, *bandwidth, shares);
    // The floor if routers chose experts evenly, to show what the counted choice saves.
    let even = Floor::for_round(engine, shape, load, *bandwidth, CountedShares::default());
    let experts = experts.map(|reads| ExpertsRead::for_round(engine, shape, load, reads, even.memory_ms));
    // If a round was faster, it is not a floor.
    let share = Some(floor.total_ms / round_ms.median).filter(|share| *share <= 1.0);
    let tokens: usize = runs.iter().map(|seen| seen.all_tokens).sum();
    let request_rounds: usize = runs.iter().map(|seen| seen.all_request_rounds).sum();
    Ok(Bench {
        shape: if shape.is_off() { "none".into() } else { shape.to_string() },
        batch_size: load.batch_size,
        output_tokens_per_s: rate.median,
        output_tokens_per_s_range: [rate.min, rate.max],
        tokens_per_s_per_user: rate.median / load.batch_size as f64,
        prefill_tokens_per_s: Spread::from_values(prefill.collect()).map_or(f64::NAN, |spread| spread.median),
        round_ms,
        stall_ms,
        accept_length: if shape.is_off() { ACCEPT_LENGTH_OFF } else { tokens as f64 / request_rounds as f64 },
        tokens_per_joule: energy_j.map(|energy_j| tokens as f64 / energy_j),
        retractions: *retractions,
        simulated: engine.options().makes_up_acceptance(),
        quantised: engine.identity().quantised.clone(),
        fp8_compute: engine.identity().fp8_compute.map(Fp8Compute::name),
        kv_cache_dtype: engine.identity().kv_cache,
        experts,
        memory_floor_ms: share.map(|_| floor.memory_ms),
        compute_floor_ms: share.and(floor.compute_ms),
        share_of_floor: share,
        startup_s: startup.as_secs_f64(),
        shape_change_s: shape_change.as_secs_f64(),
        graph_capture_s: engine.capture_time().map(|time| time.as_secs_f64()),
        fingerprint: fingerprint(engine, load),
    })
}

/// Times that a round takes at least.
struct Floor {
    memory_ms: f64,
    compute_ms: Option<f64>,
    /// Each pass takes the longer of its two times.
    total_ms: f64,
}

impl Floor {
    fn for_round(
        engine: &Engine,
        shape: TreeShape,
        load: &RandomBatch,
        bandwidth: f64,
        counted: CountedShares,
    ) -> Self {
        let rate = engine.product_rate();
        let mut floor = Self { memory_ms: 0.0, compute_ms: rate.map(|_| 0.0), total_ms: 0.0 };
        for pass in engine.cost().passes(shape, load.batch_size, load.input_len + load.output_len / 2, counted) {
            let memory = pass.bytes / bandwidth * 1e3;
            let compute = rate.map(|rate| pass.flops / rate * 1e3);
            floor.memory_ms += memory;
            floor.compute_ms = floor.compute_ms.zip(compute).map(|(sum, compute)| sum + compute);
            // Per pass: passes follow each other, and only within one can arithmetic hide reads.
            floor.total_ms += compute.map_or(memory, |compute| compute.max(memory));
        }
        floor
    }
}

/// Counts, in a further run of the load, the experts that its rounds read; `None` for a model
/// without experts.
fn count_experts(engine: &mut Engine, load: &RandomBatch) -> Result<Option<ExpertReads>, EngineError> {
    let cost = engine.cost();
    if cost.target.experts.or(cost.draft.experts).is_none() {
        return Ok(None);
    }
    engine.counting_experts(|engine| decode(engine, load)).map(|(_, reads)| Some(reads))
}

impl Spread {
    /// `None` for no values.
    fn from_values(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (values.first().copied()?, values.last().copied()?);
        Some(Self { median: (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0, min, max })
    }
}

fn check(engine: &Engine, load: &RandomBatch) -> Result<(), EngineError> {
    let wrong = |reason: String| Err(EngineError::Configuration(reason));
    let RandomBatch { batch_size, input_len, output_len, .. } = *load;
    if batch_size == 0 || input_len == 0 || output_len == 0 {
        return wrong("--batch-size, --input-len and --output-len must be at least 1".into());
    }
    let largest = engine.max_running_requests();
    if batch_size > largest {
        return wrong(format!("--batch-size {batch_size} is larger than --max-running-requests {largest}: raise it"));
    }
    let context_length = engine.capacity().context_length;
    if input_len.saturating_add(output_len) > context_length {
        return wrong(format!(
            "--input-len {input_len} and --output-len {output_len} exceed the context length {context_length}"
        ));
    }
    Ok(())
}

fn decode(engine: &mut Engine, load: &RandomBatch) -> Result<Seen, EngineError> {
    // The same prompts ran before: their outputs would be drafts that are nearly always right.
    engine.forget_texts();
    for number in 0..load.batch_size {
        engine.submit(request(engine, load, number))?;
    }
    let mut seen = Seen::default();
    let prefill = engine.statistics().prefill_time;
    let (mut begun, mut finished) = (HashSet::new(), 0);
    while !engine.is_idle() {
        // Only rounds of the whole batch count, not those while it fills or drains.
        let whole_batch = begun.len() == load.batch_size && finished == 0;
        let begin = Instant::now();
        let mut tokens = 0;
        engine.step(&mut |event| match event {
            Event::Tokens { request, tokens: new, .. } => {
                begun.insert(request);
                tokens += new.len();
            }
            Event::Finished { completion, .. } => {
                finished += 1;
                seen.all_tokens += completion.output_ids.len();
                seen.all_request_rounds += completion.rounds;
            }
        })?;
        let elapsed = begin.elapsed();
        if whole_batch && tokens > 0 {
            let round = engine.statistics().last_round;
            // The first of these steps also waits for the draft, which is still processing the last
            // prompts.
            let own = round.as_ref().filter(|_| seen.rounds.is_empty()).map_or(elapsed, |round| round.total);
            seen.tokens += tokens;
            seen.elapsed += elapsed.min(own);
            seen.rounds.extend(round);
        }
    }
    seen.prefill = engine.statistics().prefill_time - prefill;
    Ok(seen)
}

fn request(engine: &Engine, load: &RandomBatch, number: usize) -> Request {
    let vocabulary = engine.capacity().vocab_size;
    let seed = load.seed.wrapping_add(number as u64);
    let token = |position| (uniform(seed, position) * vocabulary as f64) as u32;
    // Where texts are played, requests start at different places in them.
    let played = match &engine.options().simulated {
        Some(Simulated::Played(played)) => {
            // A different sequence than that of the tokens, which use the seed itself.
            Some(played.at(number, (uniform(!seed, 0) * f64::from(1 << 20)) as usize, load.input_len))
        }
        _ => None,
    };
    Request {
        input_ids: (0..load.input_len).map(token).collect(),
        sampling: SamplingParams { played, ..SamplingParams::default() },
        stop: StopConditions { max_new_tokens: Some(load.output_len), ignore_eos: true, ..StopConditions::default() },
    }
}

fn fingerprint(engine: &Engine, load: &RandomBatch) -> Fingerprint {
    let RandomBatch { batch_size, input_len, output_len, seed } = *load;
    let workload = blake3::hash(format!("random {batch_size} {input_len} {output_len} {seed}").as_bytes());
    Fingerprint::from_engine(engine, None, "", workload.to_hex()[..16].to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        DeviceChoice, EngineOptions, ShapePolicy,
        spec::{SuffixRule, TextSpec, TrieRule},
    };

    fn engine(options: EngineOptions) -> Engine {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
        let options = EngineOptions {
            model_path: models.join("target"),
            draft_model_path: options.text_rule.is_none().then(|| models.join("eagle3")),
            context_length: Some(64),
            max_running_requests: 4,
            device: DeviceChoice::Cpu,
            disable_radix_cache: true,
            ..options
        };
        Engine::load(options).expect("the demo pair loads")
    }

    fn load(batch_size: usize, input_len: usize, output_len: usize) -> RandomBatch {
        RandomBatch { batch_size, input_len, output_len, seed: 1 }
    }

    #[test]
    fn figures_fit_each_other() {
        let policy = ShapePolicy::fixed(TreeShape::chain(2));
        // Prompts are prefilled piece by piece, so the first requests decode before the last ones
        // do.
        let mut engine = engine(EngineOptions { policy, chunked_prefill_size: 8, ..EngineOptions::default() });
        let plan = BenchPlan {
            load: load(3, 10, 24),
            repeats: 2,
            // So fast that reading is never the whole of a round.
            bandwidth: 1e15,
            startup: Duration::from_secs(2),
            shape_change: Duration::ZERO,
        };
        let bench = run(&mut engine, &plan).expect("it runs");
        let [slowest, fastest] = bench.output_tokens_per_s_range;
        assert!(slowest <= bench.output_tokens_per_s && bench.output_tokens_per_s <= fastest, "{bench:?}");
        assert!((1.0..=3.0).contains(&bench.accept_length), "{bench:?}");
        assert!(0.0 < bench.round_ms.min && bench.round_ms.min <= bench.round_ms.median, "{bench:?}");
        assert!(bench.round_ms.median <= bench.round_ms.max, "{bench:?}");
        assert!((bench.tokens_per_s_per_user * 3.0 / bench.output_tokens_per_s - 1.0).abs() < 1e-9);
        let share = bench.memory_floor_ms.expect("a floor") / bench.round_ms.median;
        assert_eq!((bench.share_of_floor, bench.simulated), (Some(share), false));
        assert!(share <= 1.0, "{bench:?}");
        let cached = run(&mut engine, &BenchPlan { bandwidth: 1.0, ..plan }).expect("it runs");
        assert_eq!((cached.memory_floor_ms, cached.share_of_floor), (None, None), "rounds beat that floor");
        let json = serde_json::to_value(&bench).expect("it is data");
        assert_eq!((&json["batch_size"], &json["startup_s"]), (&3.into(), &2.0.into()));
        assert_eq!(json["fingerprint"]["device"], "cpu");
    }

    #[test]
    fn runs_of_two_shapes_can_take_turns() {
        let mut engine = engine(EngineOptions { policy: ShapePolicy::fixed(TreeShape::OFF), ..Default::default() });
        let shapes = [TreeShape::OFF, TreeShape::chain(2)];
        let (startup, shape_change) = (Duration::ZERO, Duration::ZERO);
        let plan = BenchPlan { load: load(2, 10, 20), repeats: 2, bandwidth: 1e15, startup, shape_change };
        let mut runs = shapes.map(|_| BenchRuns::default());
        let mut found = Vec::new();
        for (turn, at) in [0, 1, 1, 0].into_iter().enumerate() {
            engine.set_policy(ShapePolicy::fixed(shapes[at])).expect("a shape that runs");
            runs[at].add(&mut engine, &plan.load, 1).expect("it runs");
            if turn >= 2 {
                found.push(runs[at].figures(&mut engine, &plan).expect("figures"));
            }
        }
        assert_eq!((found[0].shape.as_str(), found[1].shape.as_str()), ("2,1,3", "none"));
        assert_eq!((runs[0].runs.len(), runs[1].runs.len()), (2, 2));
        engine.set_policy(ShapePolicy::fixed(shapes[1])).expect("a shape that runs");
        let alone = run(&mut engine, &plan).expect("it runs");
        assert!((alone.accept_length - found[0].accept_length).abs() < 1e-9, "{alone:?}");
    }

    #[test]
    fn what_earlier_runs_generated_is_no_draft_of_the_next() {
        for rule in [TextSpec::Suffix(SuffixRule::DEFAULT), TextSpec::Trie(TrieRule::DEFAULT)] {
            let options = EngineOptions {
                algorithm: Some(rule.algorithm().to_owned()),
                text_rule: Some(rule),
                policy: ShapePolicy::fixed(rule.default_shape()),
                draft_model_path: None,
                ..EngineOptions::default()
            };
            let mut engine = engine(options);
            let found = [1, 3].map(|repeats| {
                let (startup, shape_change) = (Duration::ZERO, Duration::ZERO);
                let plan = BenchPlan { load: load(2, 12, 30), repeats, bandwidth: 1e15, startup, shape_change };
                run(&mut engine, &plan).expect("it runs").accept_length
            });
            assert!(found[0] > 1.0 && (found[0] - found[1]).abs() < 1e-9, "{}: {found:?}", rule.algorithm());
        }
    }

    #[test]
    fn loads_that_do_not_fit_are_refused() {
        let mut engine = engine(EngineOptions::default());
        for (load, expected) in [
            (load(5, 8, 8), "--max-running-requests 4"),
            (load(0, 8, 8), "at least 1"),
            (load(1, 60, 8), "context length 64"),
            (load(1, usize::MAX, 8), "context length 64"),
            (load(2, 8, 1), "raise --output-len"),
        ] {
            let plan =
                BenchPlan { load, repeats: 1, bandwidth: 1e9, startup: Duration::ZERO, shape_change: Duration::ZERO };
            let error = run(&mut engine, &plan).expect_err("it is refused").to_string();
            assert!(error.contains(expected), "{error}");
            assert!(engine.is_idle());
        }
    }
}

//! How fast an engine decodes random prompts, and how near that is to what its memory allows.

mod bandwidth;
mod traffic;

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use serde::Serialize;

pub use self::bandwidth::read_bandwidth;
use crate::{
    Engine, EngineError, Event, Request, SamplingParams, StopConditions, backend::RoundTiming, sampling::uniform,
};

/// What is run: `batch_size` requests together, each of `input_len` random tokens, each answered by `output_len` tokens
/// whatever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests.
    pub batch_size: usize,
    /// Tokens of each prompt.
    pub input_len: usize,
    /// Tokens of each output.
    pub output_len: usize,
    /// Seed of the random tokens.
    pub seed: u64,
}

/// The figures of one load. All but `accept_length` are of the rounds in which the whole batch was decoding: neither
/// prompts nor the thinning at the end count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bench {
    /// Requests together.
    pub batch_size: usize,
    /// Tokens of the whole batch a second.
    pub output_tokens_per_s: f64,
    /// Tokens of one request a second.
    pub tokens_per_s_per_user: f64,
    /// Duration of a round.
    pub round_ms: Spread,
    /// Produced tokens / rounds, bonus tokens and the first token included.
    pub accept_length: f64,
    /// Whether acceptance was made up instead of measured.
    pub simulated: bool,
    /// What a round would take if it did nothing but read, once for each pass, the weights it needs, and the cache.
    pub memory_floor_ms: Option<f64>,
    /// Floor / median round. Above 1 where the processor's caches hold the weights.
    pub share_of_floor: Option<f64>,
    /// Loading the engine.
    pub startup_s: f64,
    /// Capturing graphs; none on a device without them.
    pub graph_capture_s: Option<f64>,
    /// Figures are comparable where this agrees.
    pub fingerprint: Fingerprint,
}

/// Of several durations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// Where and on what figures were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fingerprint {
    /// `cpu` or `cuda:N`.
    pub device: String,
    /// Name of the processor or GPU.
    pub device_name: String,
    /// Driver version of a GPU; empty on the CPU.
    pub driver: String,
    /// Threads on a CPU, multiprocessors on a GPU.
    pub units: usize,
    /// Engine and its version.
    pub engine: String,
    /// Hash of the target's files.
    pub target: String,
    /// Hash of the draft's files; empty without a draft.
    pub draft: String,
    /// Hash of lengths and seed.
    pub workload: String,
}

/// What was seen while the whole batch was decoding.
#[derive(Default)]
struct Seen {
    rounds: Vec<RoundTiming>,
    tokens: usize,
    elapsed: Duration,
    all_tokens: usize,
    all_request_rounds: usize,
}

/// Runs a load on an idle engine that took `startup` to load; `bandwidth` is in bytes a second.
///
/// # Errors
/// When the load does not fit the engine, or the device fails.
pub fn run(engine: &mut Engine, load: &Load, startup: Duration, bandwidth: f64) -> Result<Bench, EngineError> {
    check(engine, load)?;
    let seen = decode(engine, load)?;
    let mut rounds: Vec<f64> = seen.rounds.iter().map(|timing| timing.total.as_secs_f64() * 1e3).collect();
    rounds.sort_by(f64::total_cmp);
    let (Some(min), Some(max)) = (rounds.first().copied(), rounds.last().copied()) else {
        return Err(EngineError::Configuration(format!(
            "no round had all {} requests decoding: raise --output-len (now {}), or --mem-fraction-static if the KV \
             cache ({} pages of {} tokens) does not hold them all",
            load.batch_size,
            load.output_len,
            engine.capacity().pages,
            engine.capacity().page_size
        )));
    };
    let median = (rounds[(rounds.len() - 1) / 2] + rounds[rounds.len() / 2]) / 2.0;
    let floor = traffic::bytes_a_round(engine.options(), load.batch_size, load.input_len + load.output_len / 2)
        .map(|bytes| bytes as f64 / bandwidth * 1e3)
        .filter(|floor| floor.is_finite());
    let rate = seen.tokens as f64 / seen.elapsed.as_secs_f64();
    Ok(Bench {
        batch_size: load.batch_size,
        output_tokens_per_s: rate,
        tokens_per_s_per_user: rate / load.batch_size as f64,
        round_ms: Spread { median, min, max },
        accept_length: seen.all_tokens as f64 / seen.all_request_rounds as f64,
        simulated: false,
        memory_floor_ms: floor,
        share_of_floor: floor.map(|floor| floor / median),
        startup_s: startup.as_secs_f64(),
        graph_capture_s: None,
        fingerprint: fingerprint(engine, load),
    })
}

fn check(engine: &Engine, load: &Load) -> Result<(), EngineError> {
    let wrong = |reason: String| Err(EngineError::Configuration(reason));
    let Load { batch_size, input_len, output_len, .. } = *load;
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

fn decode(engine: &mut Engine, load: &Load) -> Result<Seen, EngineError> {
    for number in 0..load.batch_size {
        engine.submit(request(engine, load, number))?;
    }
    let mut seen = Seen::default();
    let (mut begun, mut finished) = (HashSet::new(), 0);
    while !engine.is_idle() {
        let whole_batch = begun.len() == load.batch_size && finished == 0;
        let begin = Instant::now();
        let events = engine.step()?;
        let elapsed = begin.elapsed();
        let mut tokens = 0;
        for event in events {
            match event {
                Event::Tokens { request, tokens: new, .. } => {
                    begun.insert(request);
                    tokens += new.len();
                }
                Event::Finished { completion, .. } => {
                    finished += 1;
                    seen.all_tokens += completion.output_ids.len();
                    seen.all_request_rounds += completion.rounds;
                }
            }
        }
        if whole_batch && tokens > 0 {
            seen.tokens += tokens;
            seen.elapsed += elapsed;
            seen.rounds.extend(engine.statistics().last_round);
        }
    }
    Ok(seen)
}

fn request(engine: &Engine, load: &Load, number: usize) -> Request {
    let vocabulary = engine.capacity().vocab_size;
    let seed = load.seed.wrapping_add(number as u64);
    let token = |position| (uniform(seed, position) * vocabulary as f64) as u32;
    Request {
        input_ids: (0..load.input_len).map(token).collect(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_new_tokens: Some(load.output_len), ignore_eos: true, ..StopConditions::default() },
    }
}

fn fingerprint(engine: &Engine, load: &Load) -> Fingerprint {
    let device = engine.device();
    let Load { batch_size, input_len, output_len, seed } = *load;
    let workload = blake3::hash(format!("random {batch_size} {input_len} {output_len} {seed}").as_bytes());
    Fingerprint {
        device: device.device,
        device_name: device.name,
        driver: device.driver,
        units: device.units,
        engine: concat!("spectune ", env!("CARGO_PKG_VERSION")).into(),
        target: engine.identity().target.clone(),
        draft: engine.identity().draft.clone().unwrap_or_default(),
        workload: workload.to_hex()[..16].to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use schemas::tree::TreeShape;

    use super::*;
    use crate::{EngineOptions, ShapePolicy};

    fn engine(options: EngineOptions) -> Engine {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
        let options = EngineOptions {
            model_path: models.join("target"),
            draft_model_path: Some(models.join("eagle3")),
            context_length: Some(64),
            max_running_requests: 4,
            ..options
        };
        Engine::load(options).expect("the demo pair loads")
    }

    fn load(batch_size: usize, input_len: usize, output_len: usize) -> Load {
        Load { batch_size, input_len, output_len, seed: 1 }
    }

    #[test]
    fn figures_fit_each_other() {
        let policy = ShapePolicy::fixed(TreeShape::chain(2));
        // Prompts are read piece by piece, so the first requests decode before the last ones do.
        let mut engine = engine(EngineOptions { policy, chunked_prefill_size: 8, ..EngineOptions::default() });
        let bench = run(&mut engine, &load(3, 10, 24), Duration::from_secs(2), 1e9).expect("it runs");
        assert!((1.0..=3.0).contains(&bench.accept_length), "{bench:?}");
        assert!(0.0 < bench.round_ms.min && bench.round_ms.min <= bench.round_ms.median, "{bench:?}");
        assert!(bench.round_ms.median <= bench.round_ms.max, "{bench:?}");
        assert!((bench.tokens_per_s_per_user * 3.0 / bench.output_tokens_per_s - 1.0).abs() < 1e-9);
        let share = bench.memory_floor_ms.expect("a floor") / bench.round_ms.median;
        assert_eq!((bench.share_of_floor, bench.simulated), (Some(share), false));
        let json = serde_json::to_value(&bench).expect("it is data");
        assert_eq!((&json["batch_size"], &json["startup_s"]), (&3.into(), &2.0.into()));
        assert_eq!(json["fingerprint"]["device"], "cpu");
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
            let error = run(&mut engine, &load, Duration::ZERO, 1e9).expect_err("it is refused").to_string();
            assert!(error.contains(expected), "{error}");
            assert!(engine.is_idle());
        }
    }
}

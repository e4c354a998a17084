//! `spectune bench`: benchmarks the engine on random prompts, and compares it with the floor of
//! memory bandwidth and products.

mod effects;
mod loads;
mod shapes;
mod times;
mod turns;

use std::{path::PathBuf, str::FromStr, time::Instant};

use anyhow::bail;
use engine::{
    Engine, EngineOptions, ShapePolicy, Simulated,
    bench::{Bench, ExpertsRead},
};
use schemas::tree::{NodeSource, TreeShape};

use tuner::{forecast::drafts::Drafts, policies::played_load};

use crate::{
    engine_flags::EngineFlags,
    engine_setup,
    exit::Exit,
    load_flags::{LoadFlags, within},
    terminal,
};

const EXAMPLES: &str = "\
Examples:
  spectune bench --model-path models/tiny/target --batch-size 1,8 --input-len 64 --output-len 128
  spectune bench --model-path models/tiny/target --speculative-algorithm EAGLE3 \\
      --speculative-draft-model-path models/tiny/eagle3 --shapes 'none;3,1,4;3,4,8' \\
      --batch-size 1 --input-len 64 --output-len 128 --json
  spectune bench --load-format dummy --model-shape llama-3.1-8b --device cuda:0 \\
      --shapes 'none;3,1,4@3;5,8,32@3' --batch-size 1,8,32,64 --input-len 512 --output-len 384
  spectune bench --load-format dummy --model-shape glm-4.5-air --num-layers 8 --device cuda:0 \\
      --shapes 'none;3,1,4@2.5' --batch-size 1,8 --input-len 512 --output-len 256
  spectune bench --load-format dummy --model-shape qwen3-8b --speculative-algorithm DFLASH --device cuda:0 \\
      --shapes 'none;15,1,16@3;7,4,16@3' --batch-size 1,8,32 --input-len 512 --output-len 384

  A rollout of 32 prompts with 4 samples each, with the acceptance of real texts, under two policies:
    spectune bench --load-format dummy --model-shape llama-3.1-8b --speculative-algorithm EAGLE3 \\
        --device cuda:0 --simulate-acceptance trace.jsonl --rollout 32x4 --input-len 512 \\
        --median-len 200 --max-len 1500 --max-running-requests 128 --shapes 'none;3,1,4'

Prompts are random, so accept lengths measured on them say nothing about real text. A shape with \
@L accepts L tokens per round on average (bonus token included), regardless of the target, which \
times the round without measuring the draft. \
The floor of a pass is the longer of two times: to read its bytes at the memory bandwidth measured \
in the same run, and to multiply its rows with weights at the rate that the GPU sustains (known \
for Hopper GPUs in 2-byte types). It is omitted where rounds are faster, because a small model fits \
into the CPU's caches.";

/// Measure the engine on random prompts of one length, and compare it with the floor of
/// memory bandwidth and products.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    engine: EngineFlags,
    /// Tree shapes to measure in turn, as none or steps,topk,draft-tokens, each with ~rows for a
    /// budget of verified rows per request, and @accept-length to simulate acceptance; default: the
    /// shape of the engine flags
    #[arg(long, value_name = "SHAPE;…", value_delimiter = ';')]
    shapes: Vec<BenchShape>,
    /// Requests that run together; several sizes are measured in turn
    #[arg(long, value_name = "N,…", value_delimiter = ',', required_unless_present = "rollout")]
    batch_size: Vec<usize>,
    /// Tokens of each prompt
    #[arg(long, value_name = "N", required_unless_present = "times_out")]
    input_len: Option<usize>,
    /// New tokens of each request, if all have the same number
    #[arg(long, value_name = "N", required_unless_present_any = ["rollout", "requests_per_user", "times_out"])]
    output_len: Option<usize>,
    /// Play what drafts accept in a trace by position, from `spectune generate --trace`, instead of
    /// what the target decides
    #[arg(long, value_name = "FILE")]
    simulate_acceptance: Option<PathBuf>,
    #[command(flatten)]
    load: LoadFlags,
    /// Run a closed loop at each batch size: as many users, each of whom sends this many requests
    /// one after the other, with outputs as long as those of a rollout
    #[arg(long, value_name = "N", requires = "simulate_acceptance", conflicts_with = "rollout")]
    requests_per_user: Option<usize>,
    /// Policies to measure on a rollout or closed loop, from `spectune simulate --policies-out`;
    /// default: each of --shapes for all rounds
    #[arg(long, value_name = "FILE", requires = "simulate_acceptance", conflicts_with = "shapes")]
    policies: Option<PathBuf>,
    /// Which draw of the requests to run, as `spectune simulate` numbers them; default: 0
    #[arg(long, value_name = "N")]
    draw: Option<u64>,
    /// Time rounds of --shapes at --batch-size and --contexts, and write models of their times for
    /// `spectune simulate --times`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["simulate_acceptance", "rollout"])]
    times_out: Option<PathBuf>,
    /// Contexts in tokens at which --times-out times rounds
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    contexts: Vec<usize>,
    /// Maximum number of points that --times-out times; default: 40
    #[arg(long, value_name = "N")]
    points: Option<usize>,
    /// Repeats of each measurement, after one warm-up run and half a second (on GPUs a second);
    /// figures are medians. Of a rollout or closed loop, after a few short requests, the repeat of
    /// median time is shown. Several shapes, batch sizes or policies take turns, in reverse order
    /// every second time; lines are printed in the last turn, or when Ctrl-C ends it. Default: 3
    #[arg(long, value_name = "N")]
    repeats: Option<usize>,
    /// Seed of the prompts
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Replace the routers of random weights by ones that choose all experts equally often, by a
    /// hash of the logits, for comparisons with other engines: routers of random weights choose
    /// nearly the same few experts for all rows
    #[arg(long)]
    uniform_router: bool,
    /// Print one JSON object per shape and batch size
    #[arg(long)]
    json: bool,
}

/// Repeats of a measurement, if none are given.
const REPEATS: usize = 3;

/// A shape, and its simulated accept length.
#[derive(Clone, Copy, Debug)]
struct BenchShape {
    shape: TreeShape,
    simulate: Option<f32>,
}

impl FromStr for BenchShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (shape, length) = match text.split_once('@') {
            Some((shape, length)) => (shape, Some(length)),
            None => (text, None),
        };
        let shape = match shape.trim() {
            "none" => TreeShape::OFF,
            // Whether the draft can fill the tree is checked when the shape is prepared.
            triple => NodeSource::parse_any(triple).map_err(|error| error.to_string())?,
        };
        let simulate = length.map(|length| {
            let length = length.trim().parse::<f32>().ok().filter(|length| shape.reaches(f64::from(*length)));
            length.ok_or_else(|| {
                format!(
                    "{text}: the accept length after @ must be a number from 1 to {}, which is what a round of {} can yield",
                    shape.max_tokens_per_round(),
                    if shape.is_off() { "no speculation".to_owned() } else { format!("the tree {shape}") }
                )
            })
        });
        Ok(Self { shape, simulate: simulate.transpose()? })
    }
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let mut options = engine_setup::engine_options(EngineOptions::default(), &arguments.engine)?;
    check(&arguments, &options)?;
    let largest = arguments.batch_size.iter().copied().max().unwrap_or_default();
    // Batches are given, so the limit for serving must not cut them.
    options.max_running_requests = options.max_running_requests.max(largest);
    if options.capture_sizes.is_empty() && !arguments.runs_loads() {
        // Only the batches that are measured: capturing the usual ones takes longer than the bench.
        options.capture_sizes = arguments.batch_size.clone();
    }
    options.uniform_router = arguments.uniform_router;
    // The same prompts are run repeatedly, and each must be prefilled every time.
    options.disable_radix_cache = true;
    let drafts = arguments.simulate_acceptance.as_deref().map(Drafts::read).transpose()?;
    if let Some(drafts) = drafts.as_ref().filter(|_| arguments.runs_loads()) {
        let (policies, loads) = (loads::policies(&arguments)?, loads::loads(&arguments)?);
        let Some(first) = policies.first() else { bail!("give --shapes or --policies: there is nothing to measure") };
        options.policy = played_load::policy(&first.rows)?;
        let mut engine = engine_setup::load(options)?;
        terminal::note(SIMULATED);
        return loads::run(&mut engine, &arguments, drafts, &policies, &loads);
    }
    let mut trials = arguments.shapes.clone();
    if trials.is_empty() {
        let simulate = options.simulated.as_ref().and_then(Simulated::length);
        trials.push(BenchShape { shape: options.policy.shape(largest), simulate });
    }
    options.policy = ShapePolicy::fixed(trials[0].shape);
    let begin = Instant::now();
    let mut engine = engine_setup::load(options)?;
    let startup = begin.elapsed();
    if let Some(path) = &arguments.times_out {
        let shapes = trials.iter().map(|trial| trial.shape).collect();
        times::run(&mut engine, &arguments, shapes, path)?;
        return Ok(Exit::Fine);
    }
    shapes::run(&mut engine, &arguments, &trials, drafts.as_ref(), startup)
}

fn shape_name(shape: TreeShape) -> String {
    if shape.is_off() { "none".into() } else { shape.to_string() }
}

impl Arguments {
    /// Whether loads of requests with different outputs run, and not batches of equal ones.
    fn runs_loads(&self) -> bool {
        self.load.rollout.is_some() || self.requests_per_user.is_some()
    }

    /// Repeats of each measurement.
    fn repeats(&self) -> usize {
        self.repeats.unwrap_or(REPEATS)
    }
}

/// Checks the arguments before anything is loaded.
fn check(arguments: &Arguments, options: &EngineOptions) -> anyhow::Result<()> {
    let simulates = options.simulated.is_some();
    let given = [
        ("--input-len", arguments.input_len),
        ("--output-len", arguments.output_len),
        ("--repeats", arguments.repeats),
        ("--requests-per-user", arguments.requests_per_user),
        ("--points", arguments.points),
    ];
    let counts = given.into_iter().filter_map(|(flag, count)| Some((flag, count?)));
    let sizes = arguments.batch_size.iter().map(|size| ("--batch-size", *size));
    let contexts = arguments.contexts.iter().map(|context| ("--contexts", *context));
    for (flag, count) in sizes.chain(counts).chain(contexts) {
        within(flag, count)?;
    }
    effects::check(arguments)?;
    if simulates && !arguments.shapes.is_empty() {
        bail!("--simulate-accept-length has no effect with --shapes: append @L to each shape instead");
    }
    if let Some(budget) = options.policy.shapes().find_map(|shape| shape.row_budget) {
        if let Some(BenchShape { shape, .. }) = arguments.shapes.iter().find(|trial| !trial.shape.is_off()) {
            let written = TreeShape { row_budget: Some(budget), ..*shape };
            bail!(
                "--speculative-row-budget has no effect with --shapes, whose budgets are parts of the shapes: write {written}"
            );
        }
        if arguments.policies.is_some() {
            bail!("--speculative-row-budget has no effect with --policies, which name the trees: remove it");
        }
    }
    let has_length = simulates || arguments.shapes.iter().any(|trial| trial.simulate.is_some());
    if has_length && arguments.simulate_acceptance.is_some() {
        bail!("--simulate-acceptance and a simulated accept length (@L) cannot be combined: remove one");
    }
    if arguments.load.rollout.is_some() && arguments.simulate_acceptance.is_none() {
        bail!("--rollout needs --simulate-acceptance: random prompts accept nothing that real texts do");
    }
    Ok(())
}

const SIMULATED: &str = "note: simulated acceptance: what rounds accept is played from a trace. Round times are real, the \
                         generated text is meaningless";

const HEADER: &str = "shape      batch    tok/s (min–max)              tok/s/user  prefill tok/s  round ms (min–max)      \
                      accept  bytes ms  products ms  of floor\n";

fn row(figures: &Bench) -> String {
    let Bench { batch_size, output_tokens_per_s, tokens_per_s_per_user, round_ms, accept_length, .. } = figures;
    let [slowest, fastest] = figures.output_tokens_per_s_range;
    let rate = format!("{output_tokens_per_s:.1} ({slowest:.1}–{fastest:.1})");
    let rounds = format!("{:.3} ({:.3}–{:.3})", round_ms.median, round_ms.min, round_ms.max);
    let accept = format!("{accept_length:.2}{}", if figures.simulated { "*" } else { " " });
    let floor = |floor: Option<f64>| floor.map_or_else(|| "-".into(), |floor| format!("{floor:.3}"));
    let (bytes, products) = (floor(figures.memory_floor_ms), floor(figures.compute_floor_ms));
    let share = figures.share_of_floor.map_or_else(|| "-".into(), |share| format!("{:.0}%", 100.0 * share));
    let (shape, prefill) = (&figures.shape, figures.prefill_tokens_per_s);
    let energy = figures.tokens_per_joule.map_or_else(String::new, |rate| format!("  {rate:.2} tok/J"));
    let stall =
        figures.stall_ms.map_or_else(String::new, |stall| format!("  + {:.3} ms waiting for drafts", stall.median));
    let experts = figures.experts.as_ref().map_or_else(String::new, experts_read);
    let retracted = match figures.retractions {
        0 => String::new(),
        count => format!("  {count} retractions: the KV cache was full"),
    };
    format!(
        "{shape:<9} {batch_size:>6}    {rate:<26} {tokens_per_s_per_user:>12.1} {prefill:>14.0}  {rounds:<22} {accept:>7} \
         {bytes:>9} {products:>12} {share:>9}{energy}{stall}{experts}{retracted}"
    )
}

/// The experts that rounds read, beside what uniform and independent choices would read.
fn experts_read(read: &ExpertsRead) -> String {
    let count = |mean: Option<f64>| mean.map_or_else(|| "-".into(), |mean| format!("{mean:.1}"));
    let draft = read.draft.map_or_else(String::new, |mean| format!(", the draft {mean:.1} per pass"));
    format!(
        "  {} of {} experts read (even: {}, {:.3} ms){draft}{}",
        count(read.target),
        read.experts,
        count(read.target_even),
        read.even_memory_floor_ms,
        if read.uniform_router { ", uniform router" } else { "" }
    )
}

fn notes(engine: &Engine, startup: f64, bandwidth: f64) -> String {
    let device = engine.device();
    let capture = engine.capture_time().map(|time| format!(", graphs captured in {:.1} s", time.as_secs_f64()));
    let capture = capture.unwrap_or_default();
    let products = engine.product_rate().map_or_else(
        || "a rate that is not known for this device and data type".into(),
        |rate| format!("{:.2} PFLOP/s", rate / 1e15),
    );
    let cost = engine.cost();
    let experts = match cost.target.experts.or(cost.draft.experts) {
        None => "",
        Some(_) => {
            "\nexperts: distinct ones that the target reads per layer and round, counted in a run that is not timed; bytes \
             are of these; even: rows that choose uniformly and independently"
        }
    };
    let router = match engine.options().uniform_router {
        true => "; the router of these figures was replaced by one that chooses all experts equally often",
        false => "",
    };
    let energy = match engine.gpu_state().and_then(|state| state.energy_j) {
        Some(_) => "\ntok/J: output tokens per joule that the GPU used over the measured repeats, prefill included",
        None => "\nenergy: this device does not tell how much it uses",
    };
    format!(
        "{} ({}); loaded in {startup:.1} s{capture}; memory {:.0} GB/s\n\
         accept: output tokens / rounds, the first token and bonus tokens included (SGLang's definition); * simulated\n\
         bytes: time to read a round's bytes (weights once per pass, KV cache) at that bandwidth; omitted where \
         rounds are faster: caches hold the data\n\
         products: time to multiply its rows with weights at {products}; floor: for each pass the longer of the two{experts}{router}{energy}",
        device.device,
        device.name,
        bandwidth / 1e9
    )
}

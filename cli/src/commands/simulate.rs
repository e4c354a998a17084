//! `spectune simulate`: compares policies on simulated requests.

mod adaptive;
mod compare;
mod export;
mod progress;
mod report;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use schemas::{
    drafting,
    tree::{NodeSource, TreeShape},
};
use tuner::{
    forecast::{
        Memory, Setup,
        compare::{FORMAT, Policies},
        costs::{NAMES, StepCosts},
        drafts::Drafts,
        kinds,
        load::{Load, SendPattern},
        plan::{POLICIES, SimulationPlan, SimulationReport},
        rollout::Rollout,
        study::StudyProgress,
        times::StepTimes,
    },
    workload,
};

use self::{
    adaptive::AdaptiveFlags,
    export::{Export, exported},
    progress::SimulationProgress,
};
use crate::{
    exit::Exit,
    load_flags::{self, LoadFlags, refuse_given, within},
    outputs::{self, NamedFile},
    terminal,
};

const EXAMPLES: &str = "\
Examples:
  A rollout of 64 prompts with 8 samples each; accept lengths of chains of 1, 2, 3 and 4 drafts:
    spectune simulate --accept-lengths 1.8,2.4,2.8,3.1 --rollout 64x8 --median-len 1000
  The same, until 95% of the samples are done, with the flags for slime:
    spectune simulate --accept-lengths 1.8,2.4,2.8,3.1 --speculative-algorithm EAGLE3 --rollout 64x8 \\
        --finish 95 --abort --export slime
  From what a draft head proposed along real texts, with trees and budgets:
    spectune generate --model-path TARGET --speculative-algorithm EAGLE3 \\
        --speculative-draft-model-path HEAD --prompts prompts.txt --trace trace.jsonl \\
        --trace-limits '5,1,6;4,4,16'
    spectune simulate --trace trace.jsonl --batch-size 32 --times step-costs.json
  The policies as a file, measured on this machine, and the simulation beside it:
    spectune bench ENGINE_FLAGS --times-out times.json --shapes 'none;1,1,2;3,1,4' \\
        --batch-size 1,8,32 --contexts 512,2048
    spectune simulate --trace trace.jsonl --times times.json --rollout 32x4 --policies-out policies.json
    spectune bench ENGINE_FLAGS --simulate-acceptance trace.jsonl --policies policies.json \\
        --rollout 32x4 --input-len 256 --json > measured.jsonl
    spectune simulate --trace trace.jsonl --times times.json --against measured.jsonl
  A server with SGLang's adaptive steps, of its version and with its file:
    spectune simulate --accept-lengths 1.8,2.4,2.8,3.1 --batch-size 16 --policy fixed,sglang \\
        --engine-version 0.5.19 --speculative-adaptive-config adaptive.json \\
        --speculative-num-steps 3
  Requests that come in bursts of 8, with prompts in the steps of running requests:
    spectune simulate --trace trace.jsonl --request-rate 20 --burst 8 --mixed-prefill

Nothing is loaded or measured: every figure is simulated. The seconds of a step are a sum of costs \
(--times), and what a round accepts comes from --trace or --accept-lengths. Each policy runs the \
same requests. The fastest is chosen on one half of the draws and judged on the other half; \
speed-ups are medians over pairs, with quartiles. Ctrl-C ends it with the draws that are done.

Policies:
";

/// Trees of contexts up to these have rows of their own, if none are given.
const CONTEXTS: [usize; 3] = [2048, 8192, 32768];
/// Draws, if none are given.
const DRAWS: usize = 20;
/// What a measured load says itself.
const OF_LOADS: [&str; 27] = [
    "rollout",
    "lengths",
    "median_len",
    "tail",
    "max_len",
    "finish",
    "limit_drafts",
    "keep_contexts",
    "abort",
    "batch_size",
    "request_rate",
    "arrivals",
    "burst",
    "requests",
    "prompt_len",
    "shapes",
    "policy",
    "contexts",
    "max_running_requests",
    "max_total_tokens",
    "max_new_tokens",
    "cuda_graph_bs",
    "mixed_prefill",
    "draws",
    "policies_out",
    "export",
    "export_file",
];

/// Compare policies (which tree runs when) on simulated requests, before anything is measured.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub struct Arguments {
    /// Traces by position, from `spectune generate --trace`
    #[arg(long, value_name = "FILE", conflicts_with = "accept_lengths")]
    trace: Option<PathBuf>,
    /// Tokens per round of chains of 1, 2, … drafts, bonus token included, as published for a model
    /// and its draft
    #[arg(long, value_name = "L,…", value_delimiter = ',')]
    accept_lengths: Vec<f64>,
    /// The draft whose accept lengths are given, by the name of its algorithm; a trace has it
    #[arg(long, value_name = "NAME", requires = "accept_lengths", conflicts_with = "trace")]
    speculative_algorithm: Option<String>,
    /// Time of steps: a JSON file of costs, or the name of a machine
    #[arg(long, value_name = "FILE|NAME", default_value = NAMES[0].0)]
    times: String,
    #[command(flatten)]
    load: LoadFlags,
    /// Keep this many requests running
    #[arg(long, value_name = "N", group = "sent", conflicts_with = "rollout")]
    batch_size: Option<usize>,
    /// Requests per second, at random times
    #[arg(long, value_name = "R", group = "sent", conflicts_with = "rollout")]
    request_rate: Option<f64>,
    /// File of arrival times in seconds, one per line, ascending; they count from the first one
    #[arg(long, value_name = "FILE", group = "sent", conflicts_with = "rollout")]
    arrivals: Option<PathBuf>,
    /// Requests that arrive together
    #[arg(long, value_name = "N")]
    burst: Option<usize>,
    /// Number of requests of a load that is not a rollout
    #[arg(long, value_name = "N", default_value_t = 256, conflicts_with_all = ["rollout", "arrivals"])]
    requests: usize,
    /// Tokens of each prompt
    #[arg(long, value_name = "N", default_value_t = 512)]
    prompt_len: usize,
    /// Trees to choose among, as steps,topk,draft-tokens, with ~rows for a budget of verified rows
    /// per request; default: chains and trees of known acceptance
    #[arg(long, value_name = "SHAPE;…", value_delimiter = ';')]
    shapes: Vec<String>,
    /// Policies to compare with no speculation; default: all that what is known allows
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = POLICIES.map(|(name, _)| name))]
    policy: Vec<String>,
    #[command(flatten)]
    adaptive: AdaptiveFlags,
    /// Largest contexts in tokens of the buckets of a table by batch and context; default:
    /// 2048,8192,32768
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    contexts: Vec<usize>,
    /// Maximum number of running requests
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_running_requests: usize,
    /// Tokens that the KV cache holds; requests that do not fit wait, or are retracted and
    /// prefilled again. Default: as many as may run
    #[arg(long, value_name = "N")]
    max_total_tokens: Option<usize>,
    /// Limit of new tokens that each request states, which admission reckons with; default:
    /// the largest output length
    #[arg(long, value_name = "N", requires = "max_total_tokens")]
    max_new_tokens: Option<usize>,
    /// Batch sizes with graphs: batches are padded to the next one; default: those of SGLang
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    cuda_graph_bs: Vec<usize>,
    /// Prefill prompts in the steps of running requests, as vLLM does
    #[arg(long)]
    mixed_prefill: bool,
    /// Draws on which policies are judged, and as many choose among them; default: 20
    #[arg(long, value_name = "N")]
    draws: Option<usize>,
    /// Write the policies with a table as a file that `spectune bench` can measure
    #[arg(long, value_name = "FILE")]
    policies_out: Option<PathBuf>,
    /// Simulate the loads that `spectune bench --simulate-acceptance … --json` has measured, with
    /// their policies, and print both beside each other
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_LOADS)]
    against: Option<PathBuf>,
    /// Print the chosen policy as flags for slime, or as the rows of a tuned file for spectune; or
    /// the flags with which SGLang budgets the rows of DSPARK by the time of steps
    #[arg(long, value_name = "ENGINE")]
    export: Option<Export>,
    /// Where to write the file that exported flags name; default: speculative-tiers.json, or
    /// dspark-costs.json
    #[arg(long, value_name = "FILE", requires = "export")]
    export_file: Option<PathBuf>,
    /// Where --export sglang-dspark writes temperatures for the confidence head of a DSPARK draft,
    /// fitted to the trace; default: dspark-temperatures.json, if the trace has confidences
    #[arg(long, value_name = "FILE", requires_all = ["export", "trace"])]
    temperatures_file: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn after_help() -> String {
    let policies = POLICIES.map(|(name, what)| format!("  {name:<14} {what}\n")).concat();
    let machines = NAMES.map(|(name, source, _)| format!("  {name}\n      {source}\n")).concat();
    format!("{EXAMPLES}{policies}\nMachines:\n{machines}")
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    check(&arguments)?;
    check_effects(&arguments)?;
    check_outputs(&arguments)?;
    let (drafts, times) = (drafts(&arguments)?, times(&arguments)?);
    if let Some(warning) = kinds::warning(drafts.algorithm(), &times) {
        terminal::note(&format!("warning: {warning}"));
    }
    if let Some(measured) = &arguments.against {
        return compare::run(measured, &drafts, &times, arguments.json);
    }
    let given = shapes(&arguments)?;
    let plan = plan(&arguments, drafts, times, &given)?;
    let tables = match arguments.export {
        Some(Export::SglangDspark) => return export::dspark(&arguments, &plan, &given),
        Some(to) => export::exportable(to, &plan)?,
        None => Vec::new(),
    };
    let Some(found) = simulated(&plan)? else {
        terminal::note(
            "interrupted before a draw was done for the choice and one for the judgement: there is no result",
        );
        return Ok(Exit::Interrupted);
    };
    if let Some(path) = &arguments.policies_out {
        let policies = plan.named_tables()?;
        let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
        let what = format!(" ({})", names.join("; "));
        let file = Policies { format: FORMAT, policies };
        outputs::write(path, &serde_json::to_string_pretty(&file)?, &what)?;
    }
    if arguments.json {
        terminal::print(&format!("{}\n", serde_json::to_string(&found)?))?;
    } else {
        terminal::print(&report::report(&found))?;
    }
    if let Some(to) = arguments.export {
        exported(to, &arguments, &plan, &found, &tables)?;
    }
    if found.interrupted {
        terminal::note(&format!("interrupted; the result is that of {} of {} draws", found.study.draws, plan.draws));
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Fine)
}

/// Runs a plan and shows its progress; `None` if it was interrupted before there was a result.
fn simulated(plan: &SimulationPlan) -> anyhow::Result<Option<SimulationReport>> {
    let mut shown: Option<SimulationProgress> = None;
    let found = plan.run(&mut |StudyProgress { done, all }| {
        shown.get_or_insert_with(|| SimulationProgress::new(all, "simulations")).goes_on(done, all)
    });
    Ok(found?)
}

/// Checks the numbers of the command line.
fn check(arguments: &Arguments) -> anyhow::Result<()> {
    within("--prompt-len", arguments.prompt_len)?;
    arguments.draws.map_or(Ok(()), |draws| within("--draws", draws))?;
    within("--max-running-requests", arguments.max_running_requests)?;
    arguments.burst.map_or(Ok(()), |burst| within("--burst", burst))?;
    within("--requests", arguments.requests)?;
    if let Some(batch) = arguments.batch_size.filter(|batch| *batch > arguments.max_running_requests) {
        let limit = arguments.max_running_requests;
        bail!("--batch-size {batch} is above --max-running-requests {limit}: lower the one or raise the other");
    }
    let lists = [("--cuda-graph-bs", &arguments.cuda_graph_bs), ("--contexts", &arguments.contexts)];
    for (flag, numbers) in lists {
        numbers.iter().try_for_each(|number| within(flag, *number))?;
        if numbers.windows(2).any(|pair| pair[0] >= pair[1]) {
            bail!("{flag}: expected ascending numbers, none of them twice");
        }
    }
    if arguments.temperatures_file.is_some() && arguments.export != Some(Export::SglangDspark) {
        bail!("--temperatures-file is for --export sglang-dspark: remove it");
    }
    match arguments.export.filter(|_| arguments.json) {
        Some(Export::SglangDspark) => bail!("--json has no effect with --export sglang-dspark: remove it"),
        Some(Export::Slime | Export::Spectune) if arguments.export_file.is_none() => {
            bail!("--json and --export would both print to stdout: add --export-file, or remove one of them")
        }
        Some(Export::Slime | Export::Spectune) | None => {}
    }
    arguments.adaptive.check(&arguments.policy, arguments.export != Some(Export::SglangDspark))?;
    if let Some(name) = arguments.speculative_algorithm.as_deref()
        && drafting::algorithm_named(name).is_none()
    {
        let known: Vec<&str> = drafting::algorithms().collect();
        bail!("--speculative-algorithm {name}: expected one of {}", known.join(", "));
    }
    Ok(())
}

/// Refuses flags without effect on what is simulated.
fn check_effects(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { load, shapes, policy, contexts, draws, .. } = arguments;
    if arguments.export == Some(Export::SglangDspark) {
        let of_policies = [
            ("--policy", !policy.is_empty()),
            ("--policies-out", arguments.policies_out.is_some()),
            ("--draws", draws.is_some()),
            ("--contexts", !contexts.is_empty()),
            ("--max-total-tokens", arguments.max_total_tokens.is_some()),
            ("--cuda-graph-bs", !arguments.cuda_graph_bs.is_empty()),
            ("--mixed-prefill", arguments.mixed_prefill),
        ];
        refuse_given(
            &of_policies,
            "policies, and --export sglang-dspark writes costs of steps without simulating any",
        )?;
    }
    refuse_given(&[("--burst", arguments.burst.is_some() && arguments.request_rate.is_none())], "--request-rate")?;
    refuse_given(
        &[("--keep-contexts", load.keep_contexts && arguments.trace.is_none())],
        "--trace, since accept lengths are the same at all contexts",
    )?;
    let runs_one_of = |names: &[&str]| policy.is_empty() || policy.iter().any(|name| names.contains(&name.as_str()));
    refuse_given(
        &[("--contexts", !contexts.is_empty() && !runs_one_of(&["batch-context"]))],
        "--policy batch-context, whose table has rows by context",
    )?;
    let of_shapes = ["fixed", "batch", "batch-context", "vllm-schedule", "budget"];
    let is_unused = !shapes.is_empty() && arguments.export != Some(Export::SglangDspark) && !runs_one_of(&of_shapes);
    refuse_given(&[("--shapes", is_unused)], "a policy that chooses among shapes, such as --policy fixed")
}

/// Checks the files that would be written, before anything is simulated.
fn check_outputs(arguments: &Arguments) -> anyhow::Result<()> {
    let inputs = [
        ("--trace", arguments.trace.as_deref()),
        ("--arrivals", arguments.arrivals.as_deref()),
        ("--against", arguments.against.as_deref()),
        ("--speculative-adaptive-config", arguments.adaptive.file()),
        ("--times", StepCosts::named(&arguments.times).is_none().then(|| Path::new(&arguments.times))),
    ];
    let inputs = inputs.into_iter().filter_map(|(flag, path)| Some((flag, path?))).chain(arguments.load.lengths_file());
    let inputs: Vec<NamedFile<'_>> = inputs.collect();
    let given = [
        ("--policies-out", arguments.policies_out.as_deref()),
        ("--export-file", arguments.export_file.as_deref()),
        ("--temperatures-file", arguments.temperatures_file.as_deref()),
    ];
    let given: Vec<NamedFile<'_>> = given.into_iter().filter_map(|(flag, path)| Some((flag, path?))).collect();
    let mut all = given.clone();
    if let (Some(to), None) = (arguments.export, &arguments.export_file) {
        all.extend(to.default_file().map(|name| ("--export-file (default)", Path::new(name))));
    }
    if let (Some(Export::SglangDspark), None) = (arguments.export, &arguments.temperatures_file) {
        all.push(("--temperatures-file (default)", Path::new(export::TEMPERATURES)));
    }
    outputs::check_distinct(&all, &inputs)?;
    outputs::check_writable(&given)
}

/// The trees that the command line names.
fn shapes(arguments: &Arguments) -> anyhow::Result<Vec<TreeShape>> {
    let shape = |text: &String| NodeSource::parse_any(text).with_context(|| format!("--shapes {text}"));
    arguments.shapes.iter().map(shape).collect()
}

/// The plan, with the trees of the command line, if it names any.
fn plan(
    arguments: &Arguments,
    drafts: Drafts,
    times: StepTimes,
    given: &[TreeShape],
) -> anyhow::Result<SimulationPlan> {
    let limits = drafts.largest();
    let shapes = match (given, &arguments.trace) {
        ([], Some(_)) => limits.clone(),
        ([], None) => (1..=arguments.accept_lengths.len()).map(TreeShape::chain).collect(),
        (given, _) => given.to_vec(),
    };
    let load = load(arguments)?;
    let contexts = if arguments.contexts.is_empty() { &CONTEXTS } else { arguments.contexts.as_slice() };
    let most = arguments.max_running_requests;
    let capture_sizes = match arguments.cuda_graph_bs.as_slice() {
        [] => schemas::defaults::default_capture_sizes(most),
        given => given.to_vec(),
    };
    let memory = arguments.max_total_tokens.map(|tokens| Memory {
        tokens,
        max_new_tokens: arguments.max_new_tokens.unwrap_or_else(|| load.requests.lengths.most()),
        slack: Memory::slack(shapes.iter().copied()),
    });
    let setup = Setup {
        capture_sizes,
        max_running_requests: most,
        memory,
        prefill_budget: 8192,
        prefill_chunk: 8192,
        rounds_behind: 1,
        mixed_prefill: arguments.mixed_prefill,
    };
    Ok(SimulationPlan {
        drafts,
        times,
        shapes,
        limits,
        load,
        setup,
        contexts: contexts.iter().map(|bound| *bound as f64).collect(),
        draws: arguments.draws.unwrap_or(DRAWS),
        policies: arguments.policy.clone(),
        adaptive: arguments.adaptive.launch()?,
    })
}

/// What drafts would accept.
fn drafts(arguments: &Arguments) -> anyhow::Result<Drafts> {
    match &arguments.trace {
        Some(path) => Ok(Drafts::read(path)?),
        None if arguments.accept_lengths.is_empty() => bail!(
            "say what a round accepts: --trace FILE (`spectune generate … --trace FILE` writes one), or --accept-lengths L,… of \
             chains of 1, 2, … drafts"
        ),
        None => {
            // As engines spell it, however it was given; it was checked with the flags.
            let algorithm = arguments.speculative_algorithm.as_deref().and_then(drafting::algorithm_named);
            Ok(Drafts::golden(&arguments.accept_lengths)?.with_algorithm(algorithm.map(str::to_owned)))
        }
    }
}

/// The time of steps.
fn times(arguments: &Arguments) -> anyhow::Result<StepTimes> {
    match StepCosts::named(&arguments.times) {
        Some(costs) => Ok(costs.into()),
        None => StepTimes::read(Path::new(&arguments.times)).with_context(|| {
            let names = NAMES.map(|(name, ..)| name).join(", ");
            format!("--times {}: expected a file of costs, or a machine ({names})", arguments.times)
        }),
    }
}

fn load(arguments: &Arguments) -> anyhow::Result<Load> {
    let lengths = arguments.load.lengths()?;
    let (mut prompts, mut samples) = (arguments.requests, 1);
    let sent = if let Some((number, of_each, sent)) = arguments.load.rollout()? {
        (prompts, samples) = (number, of_each);
        sent
    } else if let Some(rate) = arguments.request_rate {
        if !(rate.is_finite() && rate > 0.0) {
            bail!("--request-rate {rate}: expected a finite number above 0");
        }
        SendPattern::Open { rate, burst: arguments.burst.unwrap_or(1) }
    } else if let Some(path) = &arguments.arrivals {
        let text = load_flags::read(path)?;
        let seconds = match load_flags::is_table(&text) {
            true => workload::recorded_arrivals(path, &text)?,
            false => {
                SimulationPlan::arrivals(&text).map_err(|reason| anyhow::anyhow!("{}: {reason}", path.display()))?
            }
        };
        prompts = seconds.len();
        // Times that were written in another unit show here.
        let last = seconds.last().copied().unwrap_or_default();
        terminal::note(&format!("{}: {}", path.display(), workload::span(prompts, last)));
        SendPattern::Recorded(seconds.into_iter().map(|at| at * 1e3).collect())
    } else {
        SendPattern::Closed(
            arguments.batch_size.context("give a load: --rollout, --batch-size, --request-rate or --arrivals")?,
        )
    };
    let requests = Rollout {
        prompts,
        samples,
        prompt_tokens: arguments.prompt_len,
        lengths,
        limited: arguments.load.limited()?,
        keeps_contexts: arguments.load.keep_contexts,
    };
    load_flags::checked(Load { requests, sent })
}

//! `spectune simulate`: compares policies on simulated requests.

mod compare;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use engine::PositionTrace;
use schemas::tree::{NodeSource, TreeShape};
use tuner::{
    files::traces,
    forecast::{
        Memory, Setup,
        compare::{FORMAT, Policies},
        costs::{NAMES, StepCosts},
        drafts::Drafts,
        exported,
        load::{Load, Sent},
        plan::{POLICIES, Plan, SimulationReport},
        rollout::Rollout,
        times::Times,
    },
};

use crate::{
    exit::Exit,
    load_flags::{self, LoadFlags},
    terminal,
};

const EXAMPLES: &str = "\
Examples:
  A rollout of 64 prompts with 8 samples each; accept lengths of chains of 1, 2, 3 and 4 drafts:
    spectune simulate --accept-lengths 1.8,2.4,2.8,3.1 --rollout 64x8 --median-len 1000
  The same, until 95% of the samples are done, with the flags for slime:
    spectune simulate --accept-lengths 1.8,2.4,2.8,3.1 --rollout 64x8 --finish 95 --abort --export slime
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
        --rollout 32x4 --json > measured.jsonl
    spectune simulate --trace trace.jsonl --times times.json --against measured.jsonl
  Requests that come in bursts of 8, with prompts in the steps of running requests:
    spectune simulate --trace trace.jsonl --request-rate 20 --burst 8 --mixed-prefill

Nothing is loaded or measured: every figure is simulated. The seconds of a step are a sum of costs \
(--times), and what a round accepts comes from --trace or --accept-lengths. Each policy runs the \
same requests. The fastest is chosen on one half of the draws and judged on the other half; \
speed-ups are medians over pairs, with quartiles.

Policies:
";

/// Policies that a report shows, besides no speculation and the chosen one.
const SHOWN: usize = 12;

/// Compare policies (which tree runs when) on simulated requests, before anything is measured.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub struct Arguments {
    /// Traces by position, from `spectune generate --trace`
    #[arg(long, value_name = "FILE", required_unless_present = "accept_lengths", conflicts_with = "accept_lengths")]
    trace: Option<PathBuf>,
    /// Tokens per round of chains of 1, 2, … drafts, bonus token included, as published for a model
    /// and its draft
    #[arg(long, value_name = "L,…", value_delimiter = ',')]
    accept_lengths: Vec<f64>,
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
    /// File of arrival times in seconds, one per line, ascending
    #[arg(long, value_name = "FILE", group = "sent", conflicts_with = "rollout")]
    arrivals: Option<PathBuf>,
    /// Requests that arrive together
    #[arg(long, value_name = "N", default_value_t = 1, requires = "request_rate")]
    burst: usize,
    /// Number of requests of a load that is not a rollout
    #[arg(long, value_name = "N", default_value_t = 256, conflicts_with = "rollout")]
    requests: usize,
    /// Tokens of each prompt
    #[arg(long, value_name = "N", default_value_t = 512)]
    prompt_len: usize,
    /// Trees to choose among, as steps,topk,draft-tokens; default: chains and trees of known
    /// acceptance
    #[arg(long, value_name = "SHAPE;…", value_delimiter = ';')]
    shapes: Vec<String>,
    /// Policies to compare with no speculation; default: all that what is known allows
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = POLICIES.map(|(name, _)| name))]
    policy: Vec<String>,
    /// Largest contexts in tokens of the buckets of a table by batch and context
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2048,8192,32768")]
    contexts: Vec<f64>,
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
    /// Draws on which policies are judged; as many choose among them
    #[arg(long, value_name = "N", default_value_t = 20)]
    draws: usize,
    /// Write the policies with a table as a file that `spectune bench` can measure
    #[arg(long, value_name = "FILE")]
    policies_out: Option<PathBuf>,
    /// Simulate the loads that `spectune bench --simulate-acceptance … --json` has measured, with
    /// their policies, and print both beside each other
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rollout", "batch_size", "request_rate", "arrivals"])]
    against: Option<PathBuf>,
    /// Print the chosen policy as flags for slime, or as the rows of a tuned file for spectune; or
    /// the flags with which SGLang budgets the rows of DSPARK by the time of steps
    #[arg(long, value_name = "ENGINE", value_parser = ["slime", "spectune", "sglang-dspark"])]
    export: Option<String>,
    /// Where to write the file that exported flags name; default: speculative-tiers.json, or
    /// dspark-costs.json
    #[arg(long, value_name = "FILE", requires = "export")]
    export_file: Option<PathBuf>,
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
    if let Some(measured) = &arguments.against {
        return compare::run(measured, &drafts(&arguments)?.0, &times(&arguments)?, arguments.json);
    }
    let (plan, algorithm) = plan(&arguments)?;
    if arguments.export.as_deref() == Some("sglang-dspark") {
        return export_dspark(&arguments, &plan);
    }
    let found = plan.run()?;
    if let Some(path) = &arguments.policies_out {
        let policies = plan.named_tables()?;
        let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
        terminal::note(&format!("written: {} ({})", path.display(), names.join("; ")));
        let file = Policies { format: FORMAT, policies };
        fs::write(path, serde_json::to_string_pretty(&file)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if arguments.json {
        terminal::print(&format!("{}\n", serde_json::to_string(&found)?))?;
    } else {
        terminal::print(&report(&found))?;
    }
    if arguments.export.is_some() {
        export(&arguments, &found, &algorithm)?;
    }
    Ok(Exit::Fine)
}

/// The plan, and the draft's algorithm.
fn plan(arguments: &Arguments) -> anyhow::Result<(Plan, String)> {
    let times = times(arguments)?;
    let (drafts, traced) = drafts(arguments)?;
    let limits: Vec<TreeShape> = traced.iter().flat_map(|trace| trace.largest.iter().copied()).collect();
    let algorithm = traced.first().map_or_else(|| "EAGLE3".to_owned(), |trace| trace.source.clone());
    if algorithm == "STANDALONE" && arguments.times == NAMES[0].0 {
        terminal::note(
            "warning: the times of steps are those of a head, and a pass of a whole model takes longer: give --times with a \
             file of this machine, or the name of one with a small model as its draft",
        );
    }
    let mut shapes: Vec<TreeShape> = arguments
        .shapes
        .iter()
        .map(|text| NodeSource::parse_any(text).with_context(|| format!("--shapes {text}")))
        .collect::<Result<_, _>>()?;
    if shapes.is_empty() {
        shapes = match arguments.trace {
            Some(_) => limits.clone(),
            None => (1..=arguments.accept_lengths.len()).map(TreeShape::chain).collect(),
        };
    }
    let load = load(arguments)?;
    if arguments.draws == 0 || arguments.max_running_requests == 0 {
        bail!("--draws and --max-running-requests must be at least 1");
    }
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
    let mut contexts = arguments.contexts.clone();
    contexts.retain(|bound| bound.is_finite() && *bound > 0.0);
    contexts.sort_by(f64::total_cmp);
    let plan = Plan {
        drafts,
        times,
        shapes,
        limits,
        load,
        setup,
        contexts,
        draws: arguments.draws,
        policies: arguments.policy.clone(),
    };
    Ok((plan, algorithm))
}

/// What drafts would accept, and the traces that say so, if there are any.
fn drafts(arguments: &Arguments) -> anyhow::Result<(Drafts, Vec<PositionTrace>)> {
    match &arguments.trace {
        Some(path) => {
            let traces = traces::read(path)?;
            Ok((Drafts::traced(traces.clone())?, traces))
        }
        None => Ok((Drafts::golden(&arguments.accept_lengths)?, Vec::new())),
    }
}

/// The time of steps.
fn times(arguments: &Arguments) -> anyhow::Result<Times> {
    match StepCosts::named(&arguments.times) {
        Some(costs) => Ok(costs.into()),
        None => Times::read(Path::new(&arguments.times))
            .with_context(|| format!("--times {}: not the name of a machine", arguments.times)),
    }
}

fn load(arguments: &Arguments) -> anyhow::Result<Load> {
    let lengths = arguments.load.lengths()?;
    let (mut prompts, mut samples) = (arguments.requests.max(1), 1);
    let sent = if let Some((number, of_each, sent)) = arguments.load.rollout()? {
        (prompts, samples) = (number, of_each);
        sent
    } else if let Some(rate) = arguments.request_rate {
        if !(rate.is_finite() && rate > 0.0) || arguments.burst == 0 {
            bail!("--request-rate must be above 0 and --burst at least 1");
        }
        Sent::Open { rate, burst: arguments.burst }
    } else if let Some(path) = &arguments.arrivals {
        let text = load_flags::read(path)?;
        let seconds = text.split_whitespace().map(str::parse::<f64>).collect::<Result<Vec<f64>, _>>();
        let seconds = seconds.with_context(|| format!("{}: expected seconds, one per line", path.display()))?;
        prompts = seconds.len();
        Sent::Recorded(seconds.into_iter().map(|at| at * 1e3).collect())
    } else {
        Sent::Closed(
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
    Ok(Load { requests, sent })
}

/// The result for a reader.
fn report(found: &SimulationReport) -> String {
    let SimulationReport { study, .. } = found;
    let mut text = format!("simulated: {}, median of {} draws\n\n", found.objective, study.draws);
    let retracts = study.policies.iter().any(|policy| policy.retractions > 0.0);
    let heading = if retracts { "  retractions" } else { "" };
    text += &format!("policy                seconds{heading}  speed-up  quartiles\n");
    let mut order: Vec<usize> = (0..study.policies.len()).collect();
    order.sort_by(|a, b| study.policies[*a].judged_on_s.total_cmp(&study.policies[*b].judged_on_s));
    let shown = |(place, at): &(usize, &usize)| *place < SHOWN || **at == 0 || **at == study.chosen;
    for (_, at) in order.iter().enumerate().filter(shown) {
        let (at, policy) = (*at, &study.policies[*at]);
        let [median, low, high] = policy.speedup;
        let mark = if at == study.chosen { "  chosen" } else { "" };
        let retractions = if retracts { format!("  {:>11.1}", policy.retractions) } else { String::new() };
        text += &format!(
            "{:<20} {:>8.2}{retractions}  {median:>7.3}x  {low:.3} to {high:.3}{mark}\n",
            policy.name, policy.judged_on_s
        );
    }
    if retracts {
        text += "retractions: requests put back because the KV cache was full, mean per draw\n";
    }
    let hidden = order.iter().enumerate().filter(|one| !shown(one)).count();
    if hidden > 0 {
        text += &format!("{hidden} slower policies are not shown; --json has them all\n");
    }
    text += &format!("\nregret of the choice on other draws: {:.2}%\n", study.regret * 100.0);
    if let Some(table) = found.table.as_ref().filter(|table| table.len() > 1) {
        text += "\nbatch up to  context up to  tree\n";
        for row in table {
            let context = row.context.map_or_else(|| "any".to_owned(), |context| format!("{context:.0}"));
            let shape = if row.shape.is_off() { "none".to_owned() } else { row.shape.to_string() };
            text += &format!("{:>11}  {context:>13}  {shape}\n", row.batch);
        }
    }
    text += &buckets(found);
    text += "\nbatch over time under the chosen policy, one draw\n";
    text += " from s    batch  speculating  accept length  rows per request\n";
    for slice in &found.timeline {
        text += &format!(
            "{:>7.2} {:>8.1} {:>11.0}% {:>14.2} {:>17.2}\n",
            slice.from_s,
            slice.batch,
            slice.speculating * 100.0,
            slice.accept_length,
            slice.rows
        );
    }
    text += &format!("\ntime of steps: {}\n", found.times);
    found.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}

/// Batches whose round times the table of contexts shows.
const SHOWN_BATCHES: [usize; 3] = [1, 8, 32];

/// Acceptance and round times by context.
fn buckets(found: &SimulationReport) -> String {
    if found.buckets.is_empty() {
        return String::new();
    }
    let mut text = String::from("\ncontext up to  tree        accept length  rounds  ms at batch 1, 8, 32\n");
    for bucket in &found.buckets {
        let context = bucket.context.map_or_else(|| "any".to_owned(), |context| format!("{context:.0}"));
        for one in &bucket.shapes {
            let name = if one.shape.is_off() { "none".to_owned() } else { one.shape.to_string() };
            let rounds = one.rounds.map_or_else(|| "all".to_owned(), |rounds| rounds.to_string());
            let ms = |batch: &usize| {
                let known = one.round_ms.iter().find(|(of, _)| of == batch);
                known.map_or_else(|| "-".to_owned(), |(_, ms)| format!("{ms:.2}"))
            };
            let times = SHOWN_BATCHES.iter().map(ms).collect::<Vec<_>>().join(", ");
            text += &format!("{context:>13}  {name:<10} {:>14.3} {rounds:>7}  {times}\n", one.accept_length);
        }
    }
    text + "rounds: of the trace at these contexts; all: too few there, so the accept length is that of all contexts\n"
}

/// Writes SGLang's table of step costs for DSPARK, and prints the flags that name it.
fn export_dspark(arguments: &Arguments, plan: &Plan) -> anyhow::Result<Exit> {
    let deepest = plan.shapes.iter().filter(|shape| shape.topk == 1).max_by_key(|shape| shape.num_steps);
    let chain = *deepest.filter(|shape| !shape.is_off()).context("give the chain of the head's block with --shapes")?;
    let context = plan.mean_context();
    let table = exported::dspark_costs(&plan.times, chain, arguments.max_running_requests, context)
        .map_err(|reason| anyhow::anyhow!("--export sglang-dspark: {reason}"))?;
    let path = arguments.export_file.clone().unwrap_or_else(|| "dspark-costs.json".into());
    fs::write(&path, table).with_context(|| format!("cannot write {}", path.display()))?;
    terminal::note(&format!("written: {} ({})", path.display(), plan.times.source()));
    terminal::note(&format!(
        "the times are those of a mean context of {context:.0} tokens: SGLang's table has one context. A head without a \
         confidence head verifies all rows, and so does SGLang without SGLANG_RAGGED_VERIFY_MODE"
    ));
    let file = path.display();
    terminal::print(&format!(
        "export SGLANG_RAGGED_VERIFY_MODE=compact\nSGLANG_ARGS=(\n  --speculative-algorithm DSPARK\n  \
         --speculative-dspark-block-size {}\n  --speculative-dspark-sps-table-path {file}\n)\n",
        chain.num_steps
    ))?;
    Ok(Exit::Fine)
}

/// Prints slime's flags, and writes the file that they name.
fn export(arguments: &Arguments, found: &SimulationReport, algorithm: &str) -> anyhow::Result<()> {
    let chosen = &found.study.policies[found.study.chosen].name;
    let Some(table) = &found.table else {
        bail!("the chosen policy, {chosen}, has no table that slime's engines could run; leave it out with --policy");
    };
    if arguments.export.as_deref() == Some("spectune") {
        terminal::note(
            "simulated: replace the [[policy]] rows of a tuned file by these, and measure it before you rely on it",
        );
        return terminal::print(&exported::spectune(table));
    }
    let path = arguments.export_file.clone().unwrap_or_else(|| "speculative-tiers.json".into());
    let file = path.display().to_string();
    let flags = exported::slime(algorithm, table, &file).map_err(|reason| anyhow::anyhow!("{chosen}: {reason}"))?;
    if let Some(text) = &flags.file {
        fs::write(&path, text).with_context(|| format!("cannot write {file}"))?;
        terminal::note(&format!("written: {file}"));
    }
    flags.warnings.iter().for_each(|warning| terminal::note(&format!("warning: {warning}")));
    terminal::note("simulated: measure the chosen policy before you rely on it");
    if flags.flags.is_empty() {
        terminal::note("no speculation is the fastest: leave slime's flags of speculation out");
        return Ok(());
    }
    terminal::print(&format!("SGLANG_ARGS=(\n  {}\n)\n", flags.flags.join("\n  ")))
}

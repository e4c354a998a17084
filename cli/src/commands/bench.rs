//! `spectune bench`: the engine on random prompts, beside the floor that memory sets.

use std::time::Instant;

use anyhow::{Context, bail};
use engine::{
    Engine,
    bench::{self, Bench, Load},
};

use crate::{engine_flags::EngineFlags, exit::Exit, setup, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune bench --model-path models/tiny/target --batch-size 1,8 --input-len 64 --output-len 128
  spectune bench --model-path models/tiny/target --speculative-algorithm EAGLE3 \\
      --speculative-draft-model-path models/tiny/eagle3 --speculative-num-steps 3 \\
      --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \\
      --batch-size 1 --input-len 64 --output-len 128 --json

Random prompts have no meaning: the accept length on them says nothing about text.
The floor is the time that the bytes of a round take at the memory bandwidth measured in the same run.";

/// Measure the engine on random prompts of one length, beside the floor that memory sets.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    engine: EngineFlags,
    /// Requests that run together; several sizes are measured one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', required = true)]
    batch_size: Vec<usize>,
    /// Tokens of each prompt
    #[arg(long, value_name = "N")]
    input_len: usize,
    /// New tokens of each request
    #[arg(long, value_name = "N")]
    output_len: usize,
    /// Seed of the prompts
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Print one JSON object a batch size
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let mut options = setup::engine_options(None, &arguments.engine)?;
    let largest = arguments.batch_size.iter().copied().max().unwrap_or_default();
    if arguments.batch_size.contains(&0) {
        bail!("--batch-size 0: expected at least 1");
    }
    options.max_running_requests = options.max_running_requests.max(largest);
    let begin = Instant::now();
    let mut engine = Engine::load(options)?;
    let startup = begin.elapsed();
    let bandwidth = bench::read_bandwidth();
    if !arguments.json {
        terminal::print("batch    tok/s  tok/s/user  round ms (min–max)  accept  floor ms  of floor\n")?;
    }
    for batch_size in arguments.batch_size {
        let Arguments { input_len, output_len, seed, .. } = arguments;
        let load = Load { batch_size, input_len, output_len, seed };
        let figures = bench::run(&mut engine, &load, startup, bandwidth)?;
        let line =
            if arguments.json { serde_json::to_string(&figures).context("figures as JSON")? } else { row(&figures) };
        terminal::print(&(line + "\n"))?;
    }
    if !arguments.json {
        terminal::note(
            "accept: output tokens / rounds, the first token and bonus tokens included (SGLang's definition)",
        );
    }
    Ok(Exit::Fine)
}

fn row(figures: &Bench) -> String {
    let Bench { batch_size, output_tokens_per_s, tokens_per_s_per_user, round_ms, accept_length, .. } = figures;
    let rounds = format!("{:.2} ({:.2}–{:.2})", round_ms.median, round_ms.min, round_ms.max);
    let floor = figures.memory_floor_ms.map_or_else(|| "-".into(), |floor| format!("{floor:.3}"));
    let share = figures.share_of_floor.map_or_else(|| "-".into(), |share| format!("{:.0}%", 100.0 * share));
    format!(
        "{batch_size:>5} {output_tokens_per_s:>8.1} {tokens_per_s_per_user:>11.1}  {rounds:>18} {accept_length:>7.2} \
         {floor:>9} {share:>9}"
    )
}

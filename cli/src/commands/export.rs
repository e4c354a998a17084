//! `spectune export`: a tuned file as flags for another engine.

use std::path::PathBuf;

use schemas::{
    export::{Form, Tuning, export},
    version::EngineVersion,
};

use crate::{exit::Exit, setup, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune export results/demo/tuned.toml --to sglang
  spectune export tuned.toml --to slime --batch-size 32 >> run.sh
  spectune export tuned.toml --to sglang | spectune lint -
  spectune export tuned.toml --to tensorrt-llm > config.yaml

The launch is written to standard output. Standard error says which engine was measured, what was
filled in or omitted, and repeats the warnings of the tuned file.";

/// Turn a tuned file into flags for another engine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The tuned file
    tuned: PathBuf,
    /// What to write: sglang, slime, vllm, sglang-adaptive (the file of --speculative-adaptive-config) or tensorrt-llm (the
    /// speculative part of its --config file)
    #[arg(long, value_name = "ENGINE")]
    to: Form,
    /// Running batch whose row is exported. Default: the whole table if the engine supports one, else the largest
    /// batch; for the adaptive file, the largest batch
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// Version of the engine, which decides the spelling of flags
    #[arg(long, value_name = "V")]
    engine_version: Option<EngineVersion>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let tuned = setup::read_tuned(&arguments.tuned)?;
    let exported = export(&Tuning::from(&tuned), arguments.to, arguments.batch_size, arguments.engine_version)?;
    terminal::print(&exported.text)?;
    exported.notes.iter().for_each(|note| terminal::note(&format!("note: {note}")));
    Ok(Exit::Fine)
}

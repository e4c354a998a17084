//! `spectune export`: a tuned file as flags for another engine.

use std::path::PathBuf;

use schemas::{
    export::{Form, Tuning, export},
    tuned::TunedFile,
    version::EngineVersion,
};

use crate::{
    exit::Exit,
    setup::{self, WrongFile},
    terminal,
};

const EXAMPLES: &str = "\
Examples:
  spectune export results/demo/tuned.toml --to sglang
  spectune export tuned.toml --to slime --batch-size 32 >> run.sh
  spectune export tuned.toml --to sglang | spectune lint -";

/// Turn a tuned file into flags for another engine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The tuned file
    tuned: PathBuf,
    /// What to write: sglang, slime, vllm or sglang-adaptive
    #[arg(long, value_name = "ENGINE")]
    to: Form,
    /// The running batch whose row is exported; the largest unless given
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// The engine's version, which decides how flags are spelled
    #[arg(long, value_name = "V")]
    engine_version: Option<EngineVersion>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let source = setup::read_source(&arguments.tuned)?;
    let tuned = TunedFile::read(&source).map_err(|finding| WrongFile::new(source, finding))?;
    let exported = export(&Tuning::from(&tuned), arguments.to, arguments.batch_size, arguments.engine_version)?;
    terminal::print(&exported.text)?;
    exported.notes.iter().for_each(|note| terminal::note(&format!("note: {note}")));
    Ok(Exit::Fine)
}

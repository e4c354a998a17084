//! `spectune schema`: prints the JSON Schemas of the configuration files.

use schemas::json_schema::SCHEMAS;

use crate::{exit::Exit, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune schema sweep > sweep.schema.json
  # then, as the first line of a sweep file:  #:schema ./sweep.schema.json";

/// Print the JSON Schema of a configuration file.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The kind of file
    #[arg(value_parser = names())]
    file: String,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    for schema in SCHEMAS.iter().filter(|schema| schema.name == arguments.file) {
        terminal::print(&schema.text())?;
    }
    Ok(Exit::Fine)
}

fn names() -> Vec<&'static str> {
    SCHEMAS.iter().map(|schema| schema.name).collect()
}

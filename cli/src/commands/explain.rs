//! `spectune explain`: what a rule is about.

use anyhow::bail;
use schemas::rules;

use crate::{exit::Exit, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune explain SD070
  spectune explain dtype-mismatch
  spectune explain";

/// Print the page of a rule, or the table of all rules.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A rule's code or name
    rule: Option<String>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let Some(rule) = arguments.rule else {
        terminal::print(&rules::table())?;
        return Ok(Exit::Fine);
    };
    let Some(page) = rules::explain(&rule) else {
        bail!("there is no rule '{rule}'; `spectune explain` lists them all");
    };
    terminal::print(&page)?;
    Ok(Exit::Fine)
}

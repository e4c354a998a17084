//! `spectune explain`: prints the page of a rule.

use anyhow::bail;
use lint::rules;
use schemas::text::nearest;

use crate::{exit::Exit, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune explain SD070
  spectune explain dtype-mismatch
  spectune explain --list";

/// Print the page of a rule, or the table of all rules.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A rule's code or name
    rule: Option<String>,
    /// Print the table of all rules (also the default without a rule)
    #[arg(long, conflicts_with = "rule")]
    list: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let Some(rule) = arguments.rule else {
        terminal::print(&rules::table())?;
        return Ok(Exit::Fine);
    };
    let Some(page) = rules::explain(&rule) else {
        let names: Vec<&str> = rules::RULES.iter().flat_map(|rule| [rule.code, rule.name]).collect();
        let near = nearest(&rule, &names).map_or_else(String::new, |near| format!(" (did you mean '{near}'?)"));
        bail!("there is no rule '{rule}'{near}; `spectune explain` lists them all");
    };
    terminal::print(&page)?;
    Ok(Exit::Fine)
}

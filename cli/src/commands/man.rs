//! `spectune man`: writes the manual pages, one for each command.

use std::path::PathBuf;

use anyhow::Context;

use crate::{exit::Exit, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune man --out ~/.local/share/man/man1";

/// Write the manual pages, one for each command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The folder to write to; it is created if it does not exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let out = arguments.out;
    let written = std::fs::create_dir_all(&out).and_then(|()| clap_mangen::generate_to(super::program(), &out));
    written.with_context(|| format!("cannot write the manual pages to {}", out.display()))?;
    terminal::note(&format!(
        "manual pages are in {}; read one with `man {}`",
        out.display(),
        out.join("spectune.1").display()
    ));
    Ok(Exit::Fine)
}

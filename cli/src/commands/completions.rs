//! `spectune completions`: generates shell completions for commands and flags.

use clap_complete::Shell;

use crate::{exit::Exit, terminal};

const EXAMPLES: &str = "\
Examples:
  spectune completions bash > ~/.local/share/bash-completion/completions/spectune
  spectune completions zsh > ~/.zfunc/_spectune      # a folder of $fpath
  spectune completions fish > ~/.config/fish/completions/spectune.fish";

/// Print shell completions.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::program(), "spectune", &mut text);
    terminal::print(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Fine)
}

//! The spectune command line: thin, no logic. It reads files, calls the crates and prints what they return.
#![forbid(unsafe_code)]

mod checkpoint;
mod commands;
mod engine_flags;
mod exit;
mod setup;
mod sweep_inputs;
mod terminal;
mod wrong_file;

use std::process::ExitCode;

use clap::Parser;

use crate::{commands::Command, exit::Exit};

/// Predicts whether a speculative-decoding configuration will work, finds the fastest one, and runs it.
#[derive(Debug, Parser)]
#[command(name = "spectune", version, about, after_help = exit::AFTER_HELP, propagate_version = true, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit::usage(&error),
    };
    terminal::start_log();
    match arguments.command.run() {
        Ok(exit) => exit.into(),
        Err(error) if terminal::is_broken_pipe(&error) => Exit::Fine.into(),
        Err(error) => {
            terminal::print_error(&error);
            exit::of(&error).into()
        }
    }
}

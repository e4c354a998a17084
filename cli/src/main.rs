//! The spectune command line, without logic of its own: it reads files, calls the crates and prints
//! what they return.
#![forbid(unsafe_code)]

#[cfg(feature = "engine")]
mod checkpoint;
mod commands;
#[cfg(feature = "engine")]
mod data_set;
#[cfg(feature = "engine")]
mod engine_flags;
#[cfg(feature = "engine")]
mod engine_setup;
mod exit;
mod home;
#[cfg(feature = "engine")]
mod interrupt;
#[cfg(feature = "engine")]
mod load_flags;
#[cfg(feature = "engine")]
mod outputs;
#[cfg(feature = "engine")]
mod progress;
#[cfg(feature = "engine")]
mod results_folder;
mod setup;
#[cfg(feature = "engine")]
mod sweep_inputs;
mod terminal;
mod version;
mod wrong_file;

use std::process::ExitCode;

use clap::Parser;

use crate::{commands::Arguments, exit::Exit};

fn main() -> ExitCode {
    #[cfg(feature = "engine")]
    if let Err(error) = listen() {
        terminal::print_error(&error);
        return Exit::Usage.into();
    }
    let words = match home::in_arguments(std::env::args_os()) {
        Ok(words) => words,
        Err(message) => {
            let error = anyhow::anyhow!(message);
            terminal::print_error(&error);
            return exit::from_error(&error).into();
        }
    };
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return exit::usage(&error),
    };
    terminal::start_log();
    match arguments.command.run() {
        Ok(exit) => exit.into(),
        // The reader of the output, such as `head`, has seen enough.
        Err(error) if terminal::is_broken_pipe(&error) => Exit::Fine.into(),
        Err(error) => {
            terminal::print_error(&error);
            exit::from_error(&error).into()
        }
    }
}

/// Handles signals from now on, so that none ends a command with another exit code. The supervisor
/// closes inherited files before it does.
#[cfg(feature = "engine")]
fn listen() -> anyhow::Result<()> {
    if commands::is_supervisor() { Ok(()) } else { interrupt::listen() }
}

//! `spectune-train`: `spectune train` with its steps on a GPU, and `bench`, which measures their
//! speed.
//!
//! It uses the same code and files as `spectune train`; `spectune report DIR` renders the page of a
//! run.
#![forbid(unsafe_code)]

mod bench;
mod train;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Adapts draft heads to prompts, with training steps on a GPU.
#[derive(Debug, Parser)]
#[command(name = "spectune-train", version)]
struct Arguments {
    #[command(subcommand)]
    command: TrainingCommand,
}

#[derive(Debug, Subcommand)]
enum TrainingCommand {
    /// Adapt a draft head to prompts, so that more of its drafts are accepted
    Train(train::Arguments),
    /// Time training steps of a head with random weights of a published shape
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let ended = match Arguments::parse().command {
        TrainingCommand::Train(arguments) => train::run(&arguments),
        TrainingCommand::Bench(arguments) => bench::run(&arguments).map(|()| 0),
    };
    match ended {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            2.into()
        }
    }
}

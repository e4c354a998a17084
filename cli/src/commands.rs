//! The commands, one per file.

mod bench;
mod completions;
mod demo;
mod drift;
mod explain;
mod export;
mod generate;
mod lint;
mod man;
mod merge;
mod report;
mod running;
mod schema;
mod selftest;
mod serve;
mod supervise;
mod sweep;
mod train;
mod tune;

use clap::{CommandFactory, Parser, Subcommand};

use crate::{
    exit::{self, Exit},
    version,
};

/// Checks whether a speculative-decoding configuration works, finds the fastest one, and runs it.
#[derive(Debug, Parser)]
#[command(
    name = "spectune",
    version = version::SHORT,
    long_version = version::LONG,
    about,
    after_help = exit::AFTER_HELP,
    propagate_version = true,
    disable_help_subcommand = true
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Whether this process ends the servers of another one.
pub fn is_supervisor() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == supervise::NAME)
}

/// The whole program as clap's definition, from which completions and manual pages are generated.
fn program() -> clap::Command {
    Arguments::command()
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Find what will fail, be rewritten or waste the GPU in a launch before it starts
    Lint(lint::Arguments),
    /// Print the page of a rule, or the table of all rules
    Explain(explain::Arguments),
    /// Print the JSON Schema of a configuration file
    Schema(schema::Arguments),
    /// Measure configurations on a workload and find the fastest
    Sweep(sweep::Arguments),
    /// Measure a running server as it is, or compare two of them
    Tune(tune::Arguments),
    /// Merge the shards of a sweep into one folder
    Merge(merge::Arguments),
    /// Write the ranked report of one or several sweeps
    Report(report::Arguments),
    /// Turn a tuned file into flags for another engine
    Export(export::Arguments),
    /// Generate text from a prompt
    Generate(generate::Arguments),
    /// Serve the OpenAI API
    Serve(serve::Arguments),
    /// Measure the engine on random prompts of one length, and compare it with the memory-bandwidth floor
    Bench(bench::Arguments),
    /// Adapt a draft head to prompts, so that more of its drafts are accepted
    Train(train::Arguments),
    /// Check in a request log whether acceptance has changed since a head was trained
    Drift(drift::Arguments),
    /// Check the engine's invariants and kernels on this machine's device
    Selftest(selftest::Arguments),
    /// Write the demo models and sweep files to a folder
    Demo(demo::Arguments),
    /// Print shell completions
    Completions(completions::Arguments),
    /// Write the manual pages, one for each command
    Man(man::Arguments),
    /// End servers if the process that started this one is killed
    #[command(hide = true)]
    Supervise,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The error that stopped the command; `exit::of` converts it to an exit code.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Lint(arguments) => lint::run(arguments),
            Self::Explain(arguments) => explain::run(arguments),
            Self::Schema(arguments) => schema::run(arguments),
            Self::Sweep(arguments) => sweep::run(arguments),
            Self::Tune(arguments) => tune::run(arguments),
            Self::Merge(arguments) => merge::run(arguments),
            Self::Report(arguments) => report::run(arguments),
            Self::Export(arguments) => export::run(arguments),
            Self::Generate(arguments) => generate::run(arguments),
            Self::Serve(arguments) => serve::run(arguments),
            Self::Bench(arguments) => bench::run(arguments),
            Self::Train(arguments) => train::run(arguments),
            Self::Drift(arguments) => drift::run(arguments),
            Self::Selftest(arguments) => selftest::run(arguments),
            Self::Demo(arguments) => demo::run(arguments),
            Self::Completions(arguments) => completions::run(arguments),
            Self::Man(arguments) => man::run(arguments),
            Self::Supervise => supervise::run(),
        }
    }
}

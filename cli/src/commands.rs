//! The commands, one per file.

#[cfg(feature = "engine")]
mod bench;
mod completions;
#[cfg(feature = "engine")]
mod demo;
#[cfg(feature = "engine")]
mod diagnose;
#[cfg(feature = "training")]
mod drift;
mod explain;
mod export;
#[cfg(feature = "engine")]
mod generate;
mod lint;
mod man;
#[cfg(feature = "engine")]
mod merge;
#[cfg(feature = "engine")]
mod report;
#[cfg(feature = "engine")]
mod running;
mod schema;
#[cfg(feature = "engine")]
mod selftest;
#[cfg(feature = "engine")]
mod serve;
#[cfg(feature = "engine")]
mod simulate;
#[cfg(feature = "engine")]
mod supervise;
#[cfg(feature = "engine")]
mod sweep;
#[cfg(feature = "training")]
mod train;
#[cfg(feature = "engine")]
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
#[cfg(feature = "engine")]
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
    #[cfg(feature = "engine")]
    Sweep(sweep::Arguments),
    /// Find a faster speculation for a launch file, or measure running servers as they are
    #[cfg(feature = "engine")]
    Tune(Box<tune::Arguments>),
    /// Merge the shards of a sweep into one folder
    #[cfg(feature = "engine")]
    Merge(merge::Arguments),
    /// Write the ranked report of one or several sweeps
    #[cfg(feature = "engine")]
    Report(report::Arguments),
    /// Turn a tuned file into flags for another engine
    Export(export::Arguments),
    /// Generate text from a prompt
    #[cfg(feature = "engine")]
    Generate(generate::Arguments),
    /// Serve the OpenAI API
    #[cfg(feature = "engine")]
    Serve(serve::Arguments),
    /// Measure the engine on random prompts of one length, and compare it with the memory-bandwidth
    /// floor
    #[cfg(feature = "engine")]
    Bench(bench::Arguments),
    /// Compare policies (which tree runs when) on simulated requests, before anything is measured
    #[cfg(feature = "engine")]
    Simulate(Box<simulate::Arguments>),
    /// Adapt a draft head to prompts, so that more of its drafts are accepted
    #[cfg(feature = "training")]
    Train(train::Arguments),
    /// Say from a server's log or metrics why speculation is slower than was promised, and what to
    /// change
    #[cfg(feature = "engine")]
    Diagnose(diagnose::Arguments),
    /// Check in a request log whether acceptance has changed since a head was trained
    #[cfg(feature = "training")]
    Drift(drift::Arguments),
    /// Check the engine's invariants and kernels on this machine's device
    #[cfg(feature = "engine")]
    Selftest(selftest::Arguments),
    /// Write the demo models and sweep files to a folder
    #[cfg(feature = "engine")]
    Demo(demo::Arguments),
    /// Print shell completions
    Completions(completions::Arguments),
    /// Write the manual pages, one for each command
    Man(man::Arguments),
    /// End servers if the process that started this one is killed
    #[cfg(feature = "engine")]
    #[command(hide = true)]
    Supervise,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The error that stopped the command; `exit::from_error` converts it to an exit code.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Lint(arguments) => lint::run(arguments),
            Self::Explain(arguments) => explain::run(arguments),
            Self::Schema(arguments) => schema::run(arguments),
            #[cfg(feature = "engine")]
            Self::Sweep(arguments) => sweep::run(arguments),
            #[cfg(feature = "engine")]
            Self::Tune(arguments) => tune::run(*arguments),
            #[cfg(feature = "engine")]
            Self::Merge(arguments) => merge::run(arguments),
            #[cfg(feature = "engine")]
            Self::Report(arguments) => report::run(arguments),
            Self::Export(arguments) => export::run(arguments),
            #[cfg(feature = "engine")]
            Self::Generate(arguments) => generate::run(arguments),
            #[cfg(feature = "engine")]
            Self::Serve(arguments) => serve::run(arguments),
            #[cfg(feature = "engine")]
            Self::Bench(arguments) => bench::run(arguments),
            #[cfg(feature = "engine")]
            Self::Simulate(arguments) => simulate::run(*arguments),
            #[cfg(feature = "training")]
            Self::Train(arguments) => train::run(arguments),
            #[cfg(feature = "engine")]
            Self::Diagnose(arguments) => diagnose::run(arguments),
            #[cfg(feature = "training")]
            Self::Drift(arguments) => drift::run(arguments),
            #[cfg(feature = "engine")]
            Self::Selftest(arguments) => selftest::run(arguments),
            #[cfg(feature = "engine")]
            Self::Demo(arguments) => demo::run(arguments),
            Self::Completions(arguments) => completions::run(arguments),
            Self::Man(arguments) => man::run(arguments),
            #[cfg(feature = "engine")]
            Self::Supervise => supervise::run(),
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "engine")]
    use schemas::flags::{self, Arity};

    use super::*;

    /// The linter and `tune` read command lines of `spectune serve` by this list.
    #[cfg(feature = "engine")]
    #[test]
    fn the_flags_of_serve_are_those_that_the_linter_knows() {
        let command = Arguments::command();
        let serve = command.find_subcommand("serve").expect("a command");
        let is_engines = |name: &str| flags::by_name(name).is_some_and(|flag| flag.ours);
        let arity = |argument: &clap::Arg| match argument.get_num_args() {
            _ if !argument.get_action().takes_values() => Arity::None,
            Some(range) if range.max_values() > 1 => Arity::Several,
            _ => Arity::One,
        };
        let mut own: Vec<(&str, Arity)> = serve
            .get_arguments()
            .filter_map(|argument| Some((argument.get_long()?, arity(argument))))
            .filter(|(name, _)| !is_engines(name))
            .collect();
        own.sort_by_key(|(name, _)| *name);
        assert_eq!(own, flags::all_of_serve().collect::<Vec<_>>());
    }

    #[test]
    fn help_is_wrapped_by_the_terminal_and_not_by_hand() {
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
        for command in program().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = help.lines().collect();
            let wrapped = lines.windows(2).find(|pair| pair.iter().all(|line| is_prose(line)));
            assert_eq!(wrapped, None, "{}", command.get_name());
        }
    }
}

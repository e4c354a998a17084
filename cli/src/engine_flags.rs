//! The engine flags of `serve`, `generate` and `bench`, generated from the flag table, with
//! SGLang's names and aliases.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use schemas::flags::{FLAGS, Flag, Takes};

/// The given engine flags, as words of a launch.
#[derive(Clone, Debug, Default)]
pub struct EngineFlags {
    /// Such as `["--speculative-num-steps", "3"]`.
    pub words: Vec<String>,
}

impl Args for EngineFlags {
    fn augment_args(command: Command) -> Command {
        let rows = FLAGS.iter().filter(|flag| flag.ours);
        rows.fold(command.next_help_heading("Engine flags (SGLang's names)"), |command, flag| {
            command.arg(argument(flag))
        })
        .next_help_heading(None::<&str>)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for EngineFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut words = Vec::new();
        for flag in FLAGS.iter().filter(|flag| flag.ours) {
            if flag.takes == Takes::Nothing {
                if matches.get_flag(flag.name) {
                    words.push(format!("--{}", flag.name));
                }
            } else if let Some(values) = matches.get_many::<String>(flag.name) {
                words.push(format!("--{}", flag.name));
                words.extend(values.cloned());
            }
        }
        Ok(Self { words })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(flag: &'static Flag) -> Arg {
    let argument =
        Arg::new(flag.name).long(flag.name).aliases(flag.aliases()).help(flag.help).overrides_with(flag.name);
    match flag.takes {
        Takes::Nothing => argument.action(ArgAction::SetTrue),
        Takes::Text => argument.value_name("TEXT"),
        Takes::Choice(words) => argument.value_parser(words.to_vec()),
        Takes::Integer | Takes::Size => argument.value_name("N").allow_negative_numbers(true),
        Takes::Number => argument.value_name("X"),
        Takes::Integers => argument.value_name("N").num_args(1..),
        Takes::Texts => argument.value_name("TEXT").num_args(1..),
    }
}

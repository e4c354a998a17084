//! Programs that occur in launches, and what they do: the table `data/programs.toml`.

use std::{collections::BTreeMap, sync::LazyLock};

use schemas::engines::Engine;
use serde::Deserialize;

/// What a program does with its arguments. The table explains each role.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub(super) enum ProgramRole {
    Applier,
    Client,
    Container,
    Ender,
    Engine,
    Launcher,
    Printer,
    Remote,
    Runtime,
    Scheduler,
    Shell,
    Start,
    Tool,
    Wrapper,
}

#[derive(Debug, Default, Deserialize)]
struct ProgramTable {
    programs: BTreeMap<String, Vec<ProgramRole>>,
    flags: OtherFlags,
    run: RunSwitches,
}

/// Flags that show that a program is none of the engines.
#[derive(Debug, Default, Deserialize)]
struct OtherFlags {
    diffusion: Vec<String>,
    diffusion_or_vllm: Vec<String>,
    server: Vec<String>,
    trainer: Vec<String>,
}

/// Options without a value of `run` of Docker's command line; all others have one.
#[derive(Debug, Default, Deserialize)]
struct RunSwitches {
    letters: Vec<char>,
    switches: Vec<String>,
}

const TEXT: &str = include_str!("../data/programs.toml");

static TABLE: LazyLock<ProgramTable> = LazyLock::new(|| toml::from_str(TEXT).unwrap_or_default());

/// The name of a program without its folder.
pub(super) fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or_default()
}

/// Whether a program, with or without its folder, has a role.
pub(super) fn has(word: &str, role: ProgramRole) -> bool {
    TABLE.programs.get(base(word)).is_some_and(|roles| roles.contains(&role))
}

/// Whether a program runs its arguments, or a script among them.
pub(super) fn runs_arguments(word: &str) -> bool {
    [ProgramRole::Shell, ProgramRole::Wrapper, ProgramRole::Remote, ProgramRole::Launcher, ProgramRole::Scheduler]
        .into_iter()
        .any(|role| has(word, role))
}

/// Whether a word is the first one of a command.
pub(super) fn starts_command(word: &str) -> bool {
    has(word, ProgramRole::Start) || runs_arguments(word) || base(word).starts_with("python")
}

/// Whether an option of Docker's `run`, without dashes, has no value.
pub(super) fn is_run_switch(name: &str) -> bool {
    TABLE.run.switches.iter().any(|switch| switch == name)
}

/// Whether a short option of Docker's `run` has no value.
pub(super) fn is_run_letter(letter: char) -> bool {
    TABLE.run.letters.contains(&letter)
}

/// Whether flags are those of a server for diffusion models, of what may be this engine.
pub(super) fn has_flag_of_diffusion(flags: &[&str], engine: Option<Engine>) -> bool {
    let may_be_either = engine != Some(Engine::Vllm) && has_any(flags, &TABLE.flags.diffusion_or_vllm);
    may_be_either || has_any(flags, &TABLE.flags.diffusion)
}

/// Whether flags are those of another server, whose name nothing says.
pub(super) fn has_flag_of_other_server(flags: &[&str]) -> bool {
    has_any(flags, &TABLE.flags.server)
}

/// Whether flags are those of a trainer that forwards flags to an engine.
pub(super) fn has_flag_of_trainer(flags: &[&str]) -> bool {
    has_any(flags, &TABLE.flags.trainer)
}

fn has_any(flags: &[&str], names: &[String]) -> bool {
    let name = |flag: &&str| {
        let name = flag.strip_prefix("--")?.split('=').next()?.replace('_', "-");
        Some(name.strip_prefix("sglang-").map(str::to_owned).unwrap_or(name))
    };
    flags.iter().filter_map(name).any(|name| names.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_its_roles_are_known() {
        let table: ProgramTable = toml::from_str(TEXT).expect("a table of programs with known roles");
        let section =
            TEXT.split_once("[programs]\n").and_then(|(_, rest)| rest.split_once("\n\n")).expect("a section").0;
        let names: Vec<&str> =
            section.lines().filter_map(|line| Some(line.split_once(" = ")?.0.trim_matches('"'))).collect();
        assert_eq!(names.len(), table.programs.len());
        assert!(names.is_sorted(), "{names:?}");
        for (name, roles) in &table.programs {
            assert!(!roles.is_empty() && roles.windows(2).all(|pair| pair[0] < pair[1]), "{name}: {roles:?}");
        }
        for name in &table.flags.server {
            let known = [schemas::flags::sglang(), schemas::flags::vllm()];
            assert!(known.iter().all(|engine| engine.spelling(name).is_none()), "{name}");
        }
        let flags = &table.flags;
        for list in [&flags.diffusion, &flags.diffusion_or_vllm, &flags.server, &flags.trainer, &table.run.switches] {
            assert!(!list.is_empty() && list.windows(2).all(|pair| pair[0] < pair[1]), "{list:?}");
        }
    }

    #[test]
    fn folders_are_not_part_of_a_name() {
        assert!(has("/usr/bin/bash", ProgramRole::Shell) && runs_arguments("ssh") && starts_command("python3.12"));
        assert!(!has("bash", ProgramRole::Client) && !runs_arguments("vllm") && !starts_command("echo"));
    }
}

//! The words that start the engine, and their environment.

use std::collections::BTreeMap;

use launch::{Launch, Syntax, Value};
use schemas::{
    engines::Engine,
    text::{Source, Span},
};

use super::{
    Treated, Wanted,
    variables::{Known, Missing},
};

/// Programs that start another one in the same process or beside it: the sweep does that itself.
const DROPPED: [&str; 6] = ["exec", "nohup", "setsid", "time", "command", "env"];
/// Programs that run the engine elsewhere.
const ELSEWHERE: [&str; 9] =
    ["srun", "ssh", "kubectl", "ray", "torchrun", "mpirun", "accelerate", "singularity", "apptainer"];

/// How servers are started.
#[derive(Debug)]
pub struct Program {
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub treated: Vec<Treated>,
}

/// The program of a launch.
pub fn of(
    source: &Source,
    launch: &Launch,
    wanted: &Wanted,
    known: &Known<'_>,
    missing: &mut Missing,
) -> Result<Program, String> {
    let mut env = BTreeMap::new();
    for (name, value) in launch.environment.iter() {
        // A value that is not known here may be known to the user, who is not asked for what the engine may not need.
        let value = match &value.value {
            Value::Known(text) => Some(text.clone()),
            Value::Unknown(text) => known.expand(text, &mut Missing::default()),
        };
        env.extend(value.map(|value| (name.clone(), value)));
    }
    let default = || default_command(launch.engine);
    let mut treated = Vec::new();
    if let Some(command) = &wanted.command {
        return Ok(Program { command: command.clone(), env, treated });
    }
    // slime starts its servers itself.
    if launch.syntax != Syntax::CommandLine || launch.engine == Engine::Slime {
        if let Some(image) = &launch.image {
            treated.push(Treated {
                launch: format!("image {image}"),
                measured: default().join(" "),
                why: "the engine that is installed here is started; another one: --command",
            });
        }
        return Ok(Program { command: default(), env, treated });
    }
    let words = words(source, launch, known, missing);
    let mut command = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some((name, value)) if command.is_empty() && is_name(name) => {
                env.insert(name.to_owned(), value.to_owned());
            }
            _ if command.is_empty() && DROPPED.contains(&word.as_str()) => {}
            _ => command.push(word),
        }
    }
    match command.first() {
        None => Ok(Program { command: default(), env, treated }),
        // Flags without a program.
        Some(first) if first.starts_with('-') => Ok(Program { command: default(), env, treated }),
        Some(first) if ELSEWHERE.contains(&first.as_str()) => Err(format!(
            "{first} starts the engine elsewhere: give the command that starts it here with --command, or start it as you \
             do and measure it with `spectune tune --url URL --launch FILE`"
        )),
        Some(_) => Ok(Program { command, env, treated }),
    }
}

/// The words before the first argument, expanded.
fn words(source: &Source, launch: &Launch, known: &Known<'_>, missing: &mut Missing) -> Vec<String> {
    let behind = launch.arguments.iter().map(|argument| argument.span.start);
    let end = behind.filter(|start| *start >= launch.anchor.start).min().unwrap_or(launch.span.end);
    let text = source.slice(Span::new(launch.span.start, end));
    // A positional model belongs to vLLM's arguments, so the words end before it.
    split(text)
        .into_iter()
        .filter_map(|(word, is_literal)| if is_literal { Some(word) } else { known.expand(&word, missing) })
        .collect()
}

/// Splits words as a shell does, with the information whether `$` means itself.
fn split(text: &str) -> Vec<(String, bool)> {
    let mut words = Vec::new();
    let mut word: Option<(String, bool)> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                let literal = character == '\'';
                let (_, is_literal) = word.get_or_insert_with(|| (String::new(), literal));
                *is_literal &= literal;
            }
            (None | Some('"'), '\\') => match characters.next() {
                Some('\n') | None => {}
                Some(next) => word.get_or_insert_with(|| (String::new(), true)).0.push(next),
            },
            (None, blank) if blank.is_whitespace() => words.extend(word.take()),
            (_, other) => {
                let (text, is_literal) = word.get_or_insert_with(|| (String::new(), true));
                text.push(other);
                *is_literal &= quote == Some('\'') || !matches!(other, '$' | '`');
            }
        }
    }
    words.extend(word);
    words
}

fn is_name(text: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') && text.chars().all(is_part)
}

fn default_command(engine: Engine) -> Vec<String> {
    let words: &[&str] = match engine {
        Engine::Sglang | Engine::Slime => &["python3", "-m", "sglang.launch_server"],
        Engine::Vllm => &["vllm", "serve"],
        Engine::Spectune => &["spectune", "serve"],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_are_split_as_a_shell_splits_them() {
        let words = split("A='1 2' \"$B/bin\"/vllm \\\n  'it$' x\\ y");
        let expected = [("A=1 2", true), ("$B/bin/vllm", false), ("it$", true), ("x y", true)];
        assert_eq!(words, expected.map(|(word, is_literal)| (word.to_owned(), is_literal)));
    }
}

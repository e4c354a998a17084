//! The words that start the engine, and their environment.

use std::collections::BTreeMap;

use launch::{Launch, Syntax};
use schemas::{engines::Engine, text::is_variable_name};

use super::{Treated, Wanted, missing::Missing};

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
pub fn of(launch: &Launch, wanted: &Wanted, missing: &mut Missing) -> Result<Program, String> {
    // A value that is not known here may be one that the engine does not need.
    let known =
        launch.environment.iter().filter_map(|(name, value)| Some((name.clone(), value.value.known()?.to_owned())));
    let mut env: BTreeMap<String, String> = known.collect();
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
    let words = launch.program.iter().filter_map(|word| missing.word(&word.value));
    let mut command = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some((name, value)) if command.is_empty() && is_variable_name(name) => {
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

fn default_command(engine: Engine) -> Vec<String> {
    let words: &[&str] = match engine {
        Engine::Sglang | Engine::Slime => &["python3", "-m", "sglang.launch_server"],
        Engine::Vllm => &["vllm", "serve"],
        Engine::Spectune => &["spectune", "serve"],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

//! The words that start the engine, and their environment.

use std::{collections::BTreeMap, path::Path};

use launch::{Launch, builds_image, container_of, is_runtime, working_directory};
use schemas::{
    engines::Engine,
    text::{Source, is_variable_name},
};

use super::{LaunchOverrides, LaunchProgram, Treated, container, missing::Missing};
use crate::system::server::IN_FOLDER;

/// Programs that start another one in the same process or beside it: the sweep does that itself.
const DROPPED: [&str; 6] = ["exec", "nohup", "setsid", "time", "command", "env"];
/// Programs that run the engine elsewhere.
const ELSEWHERE: [&str; 9] =
    ["srun", "ssh", "kubectl", "ray", "torchrun", "mpirun", "accelerate", "singularity", "apptainer"];

/// What starts the servers of a launch, and what is said about it.
pub fn launch_program(
    source: &Source,
    launch: &Launch,
    wanted: &LaunchOverrides,
    missing: &mut Missing,
) -> Result<LaunchProgram, String> {
    let mut program = words_of(source, launch, wanted, missing)?;
    let is_own = wanted.start.is_none() && wanted.command.is_none();
    let in_container = program.command.iter().any(|word| is_runtime(word));
    let folder = working_directory(source, wanted.variables.as_deref()).filter(|_| is_own && !in_container);
    if let Some(folder) = folder.and_then(|folder| missing.word(&folder)) {
        program.run_in(folder);
    }
    let is_said = program.treated.iter().any(|row| row.launch.starts_with("image "));
    if let Some(image) = launch.image.as_ref().filter(|_| is_own && !in_container && !is_said && !builds_image(source))
    {
        program.treated.push(Treated {
            launch: format!("image {image}"),
            measured: program.command.join(" "),
            why: "the engine that is installed here is started, not the container; another one: --command",
        });
    }
    if builds_image(source) && wanted.start.is_none() && wanted.command.is_none() {
        program.treated.push(Treated {
            launch: "the image that this file builds".into(),
            measured: program.command.join(" "),
            why: "no image is built: the engine that is installed here is started; another one: --command",
        });
    }
    Ok(program)
}

impl LaunchProgram {
    /// Starts the command in a folder.
    fn run_in(&mut self, folder: String) {
        let words = IN_FOLDER.into_iter().chain([folder.as_str()]).map(str::to_owned);
        self.command.splice(0..0, words);
        self.folder = Some(folder);
    }
}

/// The user's start command, the given words, the launch's container, or its own words.
fn words_of(
    source: &Source,
    launch: &Launch,
    wanted: &LaunchOverrides,
    missing: &mut Missing,
) -> Result<LaunchProgram, String> {
    // A value that is not known here may be one that the engine does not need.
    let known =
        launch.environment.iter().filter_map(|(name, value)| Some((name.clone(), value.value.known()?.to_owned())));
    let mut env: BTreeMap<String, String> = known.collect();
    let alone = |command: Vec<String>, env| Ok(LaunchProgram { command, env, treated: Vec::new(), folder: None });
    if let Some(start) = &wanted.start {
        return alone(start.command(), env);
    }
    if let Some(words) = &wanted.command {
        // As a shell reads them: assignments come first.
        let is_assignment = |word: &&String| word.split_once('=').is_some_and(|(name, _)| is_variable_name(name));
        let assigned = words.iter().take_while(is_assignment).count();
        let (assignments, command) = words.split_at(assigned);
        env.extend(
            assignments
                .iter()
                .filter_map(|word| word.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        return alone(command.to_vec(), env);
    }
    let folder = schemas::paths::folder_of(Path::new(source.name()));
    if let Some(run) = container_of(source, launch, wanted.variables.as_deref()) {
        if !wanted.local {
            return container::program_from_run(&run, launch, &folder, env, missing);
        }
    } else if let (Some(image), true) = (&launch.image, launch.program.is_empty()) {
        let treated = vec![Treated {
            launch: format!("image {image}"),
            measured: default_command(launch.engine).join(" "),
            why: "the engine that is installed here is started; another one: --command",
        }];
        return Ok(LaunchProgram { command: default_command(launch.engine), env, treated, folder: None });
    }
    // slime starts its servers itself.
    if launch.engine == Engine::Slime {
        return alone(default_command(launch.engine), env);
    }
    let mut command = Vec::new();
    for word in launch.program.iter().filter_map(|word| missing.word(&word.value)) {
        match word.split_once('=') {
            Some((name, value)) if command.is_empty() && is_variable_name(name) => {
                env.insert(name.to_owned(), value.to_owned());
            }
            _ if command.is_empty() && DROPPED.contains(&word.as_str()) => {}
            _ => command.push(word),
        }
    }
    if wanted.local {
        command = container::without(&command).unwrap_or(command);
    } else if let Some(program) = container::program_from_words(&command, &env) {
        return Ok(program);
    }
    match command.first() {
        None => alone(default_command(launch.engine), env),
        // Flags without a program.
        Some(first) if first.starts_with('-') => alone(default_command(launch.engine), env),
        Some(first) if ELSEWHERE.contains(&first.as_str()) => Err(format!(
            "{first} starts the engine elsewhere: give commands that start and end it with --start and --stop, the words \
             that start it here with --command, or start it as you do and measure it with `spectune tune --url URL \
             --launch FILE`"
        )),
        Some(_) => alone(command, env),
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
